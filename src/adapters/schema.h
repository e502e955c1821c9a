// Which fields the configuration of a method has, with PEFT's defaults.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace graft {
class AdapterConfig;
}

namespace graft::adapters {

/// The PEFT whose files and formulas graft has: what "peft_version" says of an adapter that is made here.
/// PEFT fills in its own where it saves, and its OFT does not load a file that has null there.
constexpr std::string_view kPeftVersion = "0.21.2";

struct Field {
  std::string_view name;
  nlohmann::json fallback = nullptr;
  /// Values that a text may have; empty: any.
  std::vector<std::string_view> allowed = {};
  enum class Rule {
    typed,        ///< of the default's type (or null)
    any,          ///< the method looks at it itself
    default_only  ///< PEFT has it, graft does not: any other value is an error
  } rule = Rule::typed;
  /// Of a field that is null or an object: what the object has.
  std::vector<Field> parts = {};
};

/// A field whose value is null, or an object of these.
Field object_field(std::string_view name, std::vector<Field> parts, const nlohmann::json& fallback = nullptr);

/// An object field's value with what it leaves out filled in; none where the field is not set.
std::optional<nlohmann::json> object_of(const AdapterConfig& config, std::string_view field);

/// What every adapter's configuration has: bookkeeping that changes no result.
const std::vector<Field>& common_fields();
/// What the configuration of every method has that is put on chosen layers.
const std::vector<Field>& target_fields();

}  // namespace graft::adapters
