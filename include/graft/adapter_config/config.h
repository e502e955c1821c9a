// Any adapter's configuration, and the kinds of values that its fields have beside numbers and texts.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

/// Modules by name: a list of names (each the whole path or its end), or one regular expression over whole
/// paths; "all-linear" is every linear layer but the output layer. Empty: what PEFT has for the model type.
class ModuleNames {
 public:
  ModuleNames() = default;
  ModuleNames(std::initializer_list<const char*> names) : set_(true), names_(names.begin(), names.end()) {}
  ModuleNames(std::vector<std::string> names) : set_(true), names_(std::move(names)) {}
  ModuleNames(const char* pattern) : set_(true), pattern_(pattern) {}
  ModuleNames(std::string pattern) : set_(true), pattern_(std::move(pattern)) {}

  /// Not left alone: an empty list is one, too.
  bool is_set() const { return set_; }
  bool empty() const { return names_.empty() && !pattern_; }
  const std::vector<std::string>& names() const { return names_; }
  const std::optional<std::string>& pattern() const { return pattern_; }

 private:
  bool set_ = false;
  std::vector<std::string> names_;
  std::optional<std::string> pattern_;
};

class AdapterConfig {
 public:
  /// Reads DIR/adapter_config.json, or that file itself.
  static AdapterConfig from_pretrained(const std::filesystem::path& dir);
  /// `label` names the text in error messages.
  static AdapterConfig from_json(std::string_view text, std::string_view label = "adapter_config.json");

  /// "LORA", "IA3", ...
  const std::string& peft_type() const;
  /// Whether the field is set to anything but null, false or empty.
  bool has(std::string_view field) const;
  // UsageError for a field that the method does not have.
  int64_t integer(std::string_view field) const;
  double number(std::string_view field) const;
  bool boolean(std::string_view field) const;
  std::string string(std::string_view field) const;
  /// Null gives none; one string gives one.
  std::vector<std::string> strings(std::string_view field) const;
  std::vector<int64_t> integers(std::string_view field) const;
  ModuleNames modules(std::string_view field) const;
  /// {"pattern": number}, in the order of the text: the first that matches a layer counts.
  std::vector<std::pair<std::string, double>> pattern(std::string_view field) const;
  /// {"name": [whole numbers, or true and false as 1 and 0]}, sorted by name.
  std::vector<std::pair<std::string, std::vector<int64_t>>> lists(std::string_view field) const;
  /// Any field, as JSON.
  std::string text(std::string_view field) const;
  bool is_string(std::string_view field) const;
  bool is_object(std::string_view field) const;
  /// An empty list is one, too.
  bool is_list(std::string_view field) const;

  /// A copy with one field set to a JSON value.
  AdapterConfig with(std::string_view field, std::string_view json_value) const;
  AdapterConfig with(std::string_view field, const std::vector<std::string>& values) const;

  /// All fields of the method, sorted, as PEFT writes them.
  std::string dump() const;

 private:
  struct State;
  static AdapterConfig from_values(const std::shared_ptr<State>& state);
  explicit AdapterConfig(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Of fields that are true, false or a word.
class FlagOrName {
 public:
  FlagOrName(bool flag) : flag_(flag) {}
  FlagOrName(const char* name) : FlagOrName(std::string(name)) {}
  FlagOrName(std::string name) : flag_(name == "true"), name_(std::move(name)) {}

  /// Empty for a flag; "true" and "false" are flags.
  std::string name() const { return name_ == "true" || name_ == "false" ? "" : name_; }
  bool flag() const { return flag_; }

 private:
  bool flag_;
  std::string name_;
};

/// Tokens of the input embedding, or of layers by name; one of the two, or neither.
struct TokenIndices {
  std::vector<int64_t> tokens = {};
  std::map<std::string, std::vector<int64_t>> by_layer = {};
};

/// How many singular values, or which share of them: 3 is three of them, 0.5 half.
class RankOrShare {
 public:
  RankOrShare(int count) : RankOrShare(int64_t{count}) {}
  RankOrShare(int64_t count) : value_(static_cast<double>(count)) {}
  RankOrShare(double share) : value_(share), is_share_(true) {}

  double value() const { return value_; }
  bool is_share() const { return is_share_; }

 private:
  double value_;
  bool is_share_ = false;
};

}  // namespace graft
