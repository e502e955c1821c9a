#include "io/tokenizer/fields.h"

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {
using nlohmann::json;

namespace {
[[noreturn]] void wrong_type(const std::string& label, std::string_view wanted, const json& got) {
  const std::string shown = got.is_string()       ? quote(got.get_ref<const std::string&>())
                            : got.is_structured() ? got.type_name()
                                                  : got.dump();
  throw ConfigError("[tokenizer] " + label + " must be " + std::string(wanted) + ", got " + shown);
}
}  // namespace

Fields::Fields(const json& object, std::string label) : object_(object), label_(std::move(label)) {
  if (!object.is_object()) wrong_type(label_, "an object", object);
}

const json* Fields::find(std::string_view key) {
  read_.emplace(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

const json& Fields::at(std::string_view key) {
  const json* found = find(key);
  if (!found) fail("has no \"" + std::string(key) + "\"");
  return *found;
}

bool Fields::boolean(std::string_view key, std::optional<bool> fallback) {
  const json* found = fallback ? find(key) : &at(key);
  if (!found) return *fallback;
  if (!found->is_boolean()) wrong_type(label_ + ", \"" + std::string(key) + "\"", "true or false", *found);
  return found->get<bool>();
}

std::string Fields::string(std::string_view key, std::optional<std::string> fallback) {
  const json* found = fallback ? find(key) : &at(key);
  if (!found) return *fallback;
  if (!found->is_string()) wrong_type(label_ + ", \"" + std::string(key) + "\"", "a string", *found);
  return found->get<std::string>();
}

int64_t Fields::number(std::string_view key, std::optional<int64_t> fallback) {
  const json* found = fallback ? find(key) : &at(key);
  return found ? as_number(*found, label_ + ", \"" + std::string(key) + "\"") : *fallback;
}

void Fields::ignore(std::initializer_list<std::string_view> keys) {
  for (auto key : keys) read_.emplace(key);
}

void Fields::finish() const {
  std::string unknown;
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && !read_.contains(key)) unknown += (unknown.empty() ? "" : ", ") + quote(key);
  if (!unknown.empty()) fail("sets " + unknown + ", which this version of graft does not know");
}

void Fields::fail(const std::string& what) const { throw ConfigError("[tokenizer] " + label_ + " " + what); }

int64_t as_number(const json& value, const std::string& label) {
  // Parsed numbers are unsigned where they can be; those of a document made here need not be.
  const bool fits = value.is_number_integer() && (value.is_number_unsigned() || value.get<int64_t>() >= 0) &&
                    value.get<uint64_t>() <= UINT32_MAX;
  if (!fits) wrong_type(label, "a whole number below 2^32", value);
  return value.get<int64_t>();
}

}  // namespace graft::io
