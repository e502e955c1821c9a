// Reads a JSON object whose fields are all known: what is set but was never read is an error, so that an
// option of a newer tokenizer.json is never silently ignored.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace graft::io {

class Fields {
 public:
  /// `label` says where the object stands: "tokenizer.json, model". REQUIRES: `object` outlives this.
  Fields(const nlohmann::json& object, std::string label);

  /// Null when the field is absent or null.
  const nlohmann::json* find(std::string_view key);
  /// Throws ConfigError when the field is absent or null.
  const nlohmann::json& at(std::string_view key);
  // Without a default the field is required. The wrong type is a ConfigError that names the field.
  bool boolean(std::string_view key, std::optional<bool> fallback = {});
  std::string string(std::string_view key, std::optional<std::string> fallback = {});
  /// A count or an id: at least 0 and below 2^32, as in the Rust library.
  int64_t number(std::string_view key, std::optional<int64_t> fallback = {});
  /// For fields that change nothing here.
  void ignore(std::initializer_list<std::string_view> keys);

  /// Throws ConfigError naming the fields that are set and were not read.
  void finish() const;

  const std::string& label() const { return label_; }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  const nlohmann::json& object_;
  std::string label_;
  std::set<std::string, std::less<>> read_;
};

/// A value that must be an id or a count.
int64_t as_number(const nlohmann::json& value, const std::string& label);

}  // namespace graft::io
