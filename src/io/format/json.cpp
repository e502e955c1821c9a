#include "io/format/json.h"

#include <vector>

#include "io/format/mapped_file.h"
#include "io/format/quote.h"
#include "io/format/strict_sax.h"

namespace graft::io {
namespace {

using nlohmann::json;

/// Builds the value. Pointers into it stay valid: an object or array does not grow while one of its members
/// is open.
template <class Json>
class TreeSax final : public StrictSax {
 public:
  TreeSax(std::string_view label, size_t max_depth) : StrictSax("[json]", std::string(label), max_depth) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }

  bool key(std::string& name) override {
    auto [slot, fresh] = open_.back()->emplace(name, nullptr);
    if (!fresh) fail_here("the key " + quote(name) + " appears twice in one object");
    member_ = &*slot;
    return true;
  }

 protected:
  void open_object() override { open_.push_back(add(Json::object())); }
  void open_array() override { open_.push_back(add(Json::array())); }
  void close_object() override { open_.pop_back(); }
  void close_array() override { open_.pop_back(); }

 private:
  Json* add(Json value) {
    Json* slot = &root_;
    if (!open_.empty()) {
      slot = open_.back()->is_array() ? &open_.back()->emplace_back() : member_;
    }
    *slot = std::move(value);
    return slot;
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }

  Json root_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // where the value of the last key goes
};

template <class Json>
Json parsed(std::string_view text, std::string_view label, JsonLimits limits) {
  TreeSax<Json> sax(label, limits.max_depth);
  if (text.size() > limits.max_bytes) {
    sax.fail("the JSON has " + std::to_string(text.size()) + " bytes, more than the " +
             std::to_string(limits.max_bytes) + " allowed");
  }
  parse_strict(text, sax);
  return sax.take();
}

template <class Json>
Json read(const std::filesystem::path& path, JsonLimits limits) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return parsed<Json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, quote_path(path), limits);
}

}  // namespace

json parse_json(std::string_view text, std::string_view label, JsonLimits limits) {
  return parsed<json>(text, label, limits);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view label, JsonLimits limits) {
  return parsed<nlohmann::ordered_json>(text, label, limits);
}

json read_json_file(const std::filesystem::path& path, JsonLimits limits) { return read<json>(path, limits); }

nlohmann::ordered_json read_ordered_json_file(const std::filesystem::path& path, JsonLimits limits) {
  return read<nlohmann::ordered_json>(path, limits);
}

}  // namespace graft::io
