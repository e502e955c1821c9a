#include "graft/config.h"

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "graft/error.h"
#include "io/format/gguf_config.h"
#include "io/format/hub_cache.h"
#include "io/format/json.h"
#include "io/gguf.h"

namespace graft {
using nlohmann::json;

struct Config::State {
  json values;
  std::string label;
  // The keys read so far. Models read their config in forward, which several threads may do at once.
  mutable std::mutex guard;
  mutable std::set<std::string, std::less<>> read;

  void mark_read(std::string_view key) const {
    const std::lock_guard<std::mutex> lock(guard);
    read.emplace(key);
  }

  const json* find(std::string_view key) const {
    mark_read(key);
    auto it = values.find(key);
    return it == values.end() || it->is_null() ? nullptr : &*it;
  }

  [[noreturn]] void missing(std::string_view key) const {
    throw ConfigError("[config] " + label + " has no \"" + std::string(key) + "\", which this model needs");
  }

  [[noreturn]] void wrong(std::string_view key, std::string_view wanted, const json& got) const {
    throw ConfigError("[config] " + label + ": \"" + std::string(key) + "\" must be " + std::string(wanted) +
                      ", got " + got.dump());
  }

  template <class T, class Check>
  T get(std::string_view key, const std::optional<T>& fallback, std::string_view wanted, Check check) const {
    const json* found = find(key);
    if (!found) {
      if (!fallback) missing(key);
      return *fallback;
    }
    if (!check(*found)) wrong(key, wanted, *found);
    return found->template get<T>();
  }
};

Config Config::from_json(std::string_view text, std::string_view label) {
  auto state = std::make_shared<State>();
  state->label = label;
  state->values = io::parse_json(text, label);
  if (!state->values.is_object()) throw FormatError("[config] " + state->label + " is not a JSON object");
  return Config(std::move(state));
}

Config Config::from_pretrained(const std::filesystem::path& given) {
  const auto dir = io::local_path(given);
  if (const auto gguf = io::gguf_file_at(dir)) {
    const auto file = io::GgufFile::open(*gguf);
    return from_json(io::gguf_config(file->header(), file->label()).dump(), gguf->string());
  }
  const auto path = dir / "config.json";
  if (!std::filesystem::exists(path))
    throw IoError("[config] " + dir.string() +
                  " has no config.json; give a folder as transformers' save_pretrained writes it, or a .gguf "
                  "file");
  auto state = std::make_shared<State>();
  state->label = path.string();
  state->values = io::read_json_file(path);
  if (!state->values.is_object()) throw FormatError("[config] " + state->label + " is not a JSON object");
  return Config(std::move(state));
}

bool Config::has(std::string_view key) const { return state_->find(key) != nullptr; }

int64_t Config::integer(std::string_view key, std::optional<int64_t> fallback) const {
  return state_->get<int64_t>(key, fallback, "an integer",
                              [](const json& v) { return v.is_number_integer(); });
}

double Config::number(std::string_view key, std::optional<double> fallback) const {
  return state_->get<double>(key, fallback, "a number", [](const json& v) { return v.is_number(); });
}

bool Config::boolean(std::string_view key, std::optional<bool> fallback) const {
  return state_->get<bool>(key, fallback, "true or false", [](const json& v) { return v.is_boolean(); });
}

std::string Config::string(std::string_view key, const std::optional<std::string>& fallback) const {
  return state_->get<std::string>(key, fallback, "a string", [](const json& v) { return v.is_string(); });
}

std::vector<int64_t> Config::integers(std::string_view key,
                                      const std::optional<std::vector<int64_t>>& fallback) const {
  return state_->get<std::vector<int64_t>>(key, fallback, "a list of integers", [](const json& v) {
    return v.is_array() &&
           std::all_of(v.begin(), v.end(), [](const json& e) { return e.is_number_integer(); });
  });
}

std::vector<double> Config::numbers(std::string_view key,
                                    const std::optional<std::vector<double>>& fallback) const {
  return state_->get<std::vector<double>>(key, fallback, "a list of numbers", [](const json& v) {
    return v.is_array() && std::all_of(v.begin(), v.end(), [](const json& e) { return e.is_number(); });
  });
}

std::vector<std::string> Config::strings(std::string_view key,
                                         const std::optional<std::vector<std::string>>& fallback) const {
  return state_->get<std::vector<std::string>>(key, fallback, "a list of strings", [](const json& v) {
    return v.is_array() && std::all_of(v.begin(), v.end(), [](const json& e) { return e.is_string(); });
  });
}

std::array<int64_t, 2> Config::height_width(std::string_view key, int64_t fallback) const {
  const json* found = state_->find(key);
  if (!found) return {fallback, fallback};
  const auto is_size = [](const json& v) { return v.is_number_integer() && v > 0 && v <= INT32_MAX; };
  if (is_size(*found)) return {found->get<int64_t>(), found->get<int64_t>()};
  if (!found->is_array() || found->size() != 2 || !is_size(found->at(0)) || !is_size(found->at(1)))
    state_->wrong(key, "a positive number or a list of two: height, width", *found);
  return {found->at(0).get<int64_t>(), found->at(1).get<int64_t>()};
}

std::optional<int64_t> Config::optional_integer(std::string_view key) const {
  if (!has(key)) return {};
  return integer(key);
}

Config Config::object(std::string_view key) const {
  auto state = std::make_shared<State>();
  state->label = state_->label + ", \"" + std::string(key) + "\"";
  const json* found = state_->find(key);
  state->values = found ? *found : json::object();
  if (!state->values.is_object()) state_->wrong(key, "an object", *found);
  return Config(std::move(state));
}

int64_t Config::size(std::string_view key, std::optional<int64_t> fallback, int64_t least) const {
  const int64_t value = integer(key, fallback);
  // A size beyond 2^31 is a broken file, and products of two of them must not overflow.
  if (value < least || value > INT32_MAX)
    throw ConfigError("[config] " + state_->label + ": \"" + std::string(key) + "\" must be between " +
                      std::to_string(least) + " and 2147483647, got " + std::to_string(value));
  return value;
}

int64_t Config::num_labels() const {
  if (const json* labels = state_->find("id2label")) {
    state_->find("label2id");
    state_->find("num_labels");
    if (!labels->is_object() || labels->empty()) state_->wrong("id2label", "a non-empty object", *labels);
    return static_cast<int64_t>(labels->size());
  }
  return size("num_labels", 2);
}

void Config::set(std::string_view key, std::string_view value) {
  state_->values[std::string(key)] = std::string(value);
}
void Config::set(std::string_view key, int64_t value) { state_->values[std::string(key)] = value; }
void Config::set(std::string_view key, bool value) { state_->values[std::string(key)] = value; }
void Config::set(std::string_view key, const std::vector<std::string>& value) {
  state_->values[std::string(key)] = value;
}

void Config::set_num_labels(int64_t count) {
  json id2label = json::object(), label2id = json::object();
  for (int64_t i = 0; i < count; ++i) {
    id2label[std::to_string(i)] = "LABEL_" + std::to_string(i);
    label2id["LABEL_" + std::to_string(i)] = i;
  }
  state_->values["id2label"] = std::move(id2label);
  state_->values["label2id"] = std::move(label2id);
  state_->values.erase("num_labels");
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : state_->values.items()) names.push_back(key);
  return names;
}

std::vector<std::string> Config::unread() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : state_->values.items())
    if (!value.is_null() && !state_->read.contains(key)) names.push_back(key);
  return names;
}

void Config::acknowledge(const std::vector<std::string_view>& keys) const {
  for (auto key : keys) state_->mark_read(key);
}

std::string Config::dump() const { return state_->values.dump(2) + "\n"; }

}  // namespace graft
