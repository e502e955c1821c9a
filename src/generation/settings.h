// The settings of generation, each said once: its name in generation_config.json, its field, what it may be
// and what it does. Reading files, the flags of `graft generate` and check() come from this table.
#pragma once
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <variant>

#include "graft/generate.h"

namespace graft::generation {

/// What a flag belongs to in --help.
enum class SettingGroup : uint8_t { length, tokens, beams, rules, sampling, guesses };

struct Setting {
  using Field = std::variant<
      int64_t GenerationConfig::*, std::optional<int64_t> GenerationConfig::*, double GenerationConfig::*,
      std::optional<double> GenerationConfig::*, bool GenerationConfig::*,
      std::vector<int64_t> GenerationConfig::*, std::vector<std::vector<int64_t>> GenerationConfig::*,
      std::vector<std::string> GenerationConfig::*, EarlyStopping GenerationConfig::*,
      std::vector<TokenBias> GenerationConfig::*, std::optional<LengthDecay> GenerationConfig::*>;

  std::string_view name;  ///< transformers'; the flag has dashes
  Field field;
  SettingGroup group;
  std::string_view help;  ///< of the flag
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;            ///< `least` itself is too little
  std::string_view advice = "";  ///< for a number out of this range

  /// The type of its value in words, "a whole number".
  std::string_view wanted() const;
  /// The same in a word for --help, "N".
  std::string takes() const;
  /// From a value as it stands in a file; false for one of another type.
  bool read(GenerationConfig& config, const nlohmann::json& value) const;
  /// The same with null for what is not said. ConfigError for another type, which names `label`.
  void read(GenerationConfig& config, const nlohmann::json& value, const std::string& label) const;
  /// The value that a flag's text stands for, for read(): numbers and lists as they are, commas between ids.
  nlohmann::json parse(const std::string& text) const;
  /// UsageError for a number out of its range.
  void check(const GenerationConfig& config) const;
};

std::span<const Setting> settings();

/// Why a field of generation_config.json cannot be followed; none where it can, or where its value changes
/// nothing.
std::optional<std::string> why_refused(std::string_view key, const nlohmann::json& value);
/// Whether a field changes no token: bookkeeping, what is returned beside them, which cache is used.
bool changes_nothing(std::string_view key);

}  // namespace graft::generation
