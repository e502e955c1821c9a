#include "graft/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "adapters/method.h"
#include "adapters/schema.h"
#include "graft/error.h"
#include "io/format/hub_cache.h"
#include "io/format/json.h"
#include "support/log.h"

namespace graft {
using adapters::Field;
using nlohmann::json;

struct AdapterConfig::State {
  json values;
  nlohmann::ordered_json written;  // the same, in the order of the text
  std::string label, type;
  const adapters::Method* method = nullptr;

  explicit State(std::string_view name, nlohmann::ordered_json all)
      : values(all), written(std::move(all)), label(name) {}

  const Field& field(std::string_view name) const {
    for (const auto* list : lists())
      for (const auto& each : *list)
        if (each.name == name) return each;
    throw UsageError("[adapters] " + type + " has no field \"" + std::string(name) + "\"");
  }

  std::vector<const std::vector<Field>*> lists() const {
    std::vector<const std::vector<Field>*> all{&adapters::common_fields(), &method->fields};
    if (method->on_layers()) all.push_back(&adapters::target_fields());
    return all;
  }

  const json& get(std::string_view name) const {
    const auto& known = field(name);
    const auto found = values.find(name);
    return found == values.end() ? known.fallback : *found;
  }

  [[noreturn]] void wrong(std::string_view name, const std::string& wanted) const {
    throw ConfigError("[adapters] " + label + ": \"" + std::string(name) + "\" must be " + wanted + ", got " +
                      get(name).dump());
  }
};

namespace {

bool is_empty(const json& value) {
  return value.is_null() || value == false ||
         ((value.is_string() || value.is_array() || value.is_object()) && value.empty());
}

std::string type_name(const json& like) {
  if (like.is_boolean()) return "true or false";
  if (like.is_number_integer()) return "a whole number";
  if (like.is_number()) return "a number";
  if (like.is_string()) return "a string";
  if (like.is_array()) return "a list";
  if (like.is_object()) return "an object";
  return "a string";
}

bool same_type(const json& value, const json& like) {
  if (like.is_null()) return value.is_string();
  if (like.is_number_integer()) return value.is_number_integer();
  if (like.is_number()) return value.is_number();
  return value.type() == like.type();
}

/// `value` is one a field may have, or a ConfigError.
void check_value(const std::string& label, const Field& field, const json& value) {
  const auto wrong = [&](const std::string& wanted) {
    throw ConfigError("[adapters] " + label + ": \"" + std::string(field.name) + "\" must be " + wanted +
                      ", got " + value.dump());
  };
  if (field.rule == Field::Rule::default_only) {
    if (!is_empty(value) && value != field.fallback)
      throw ConfigError("[adapters] " + label + ": \"" + std::string(field.name) + "\" is " + value.dump() +
                        ", which graft does not support; it must be " + field.fallback.dump());
    return;
  }
  if (field.name == "modules_to_save" && value.is_string()) wrong("a list of strings");
  if (!field.parts.empty()) {
    if (!value.is_null() && !value.is_object()) wrong("an object");
    for (const auto& [name, part] : value.items()) {
      const auto is_it = [&name = name](const Field& each) { return each.name == name; };
      const auto known = std::find_if(field.parts.begin(), field.parts.end(), is_it);
      const auto inside = label + ": \"" + std::string(field.name) + '"';
      if (known != field.parts.end())
        check_value(inside, *known, part);
      else if (!is_empty(part))
        throw ConfigError("[adapters] " + inside + ": \"" + name + "\" is " + part.dump() +
                          ", and there is no such field");
    }
  }
  if (field.rule == Field::Rule::any) return;
  // One of several words is needed; elsewhere whoever reads the field says what null means.
  const bool needed = !field.allowed.empty() && !field.fallback.is_null();
  if (value.is_null() && !needed) return;
  if (!value.is_null() && !same_type(value, field.fallback)) wrong(type_name(field.fallback));
  const auto too_large = [](const json& number) {
    return number.is_number() && std::abs(number.get<double>()) > std::numeric_limits<float>::max();
  };
  if (too_large(value) || (value.is_object() && std::any_of(value.begin(), value.end(), too_large)))
    wrong("small enough for a float32");
  // Ranks, sizes and numbers of things, by layer; only what scales may have a fraction.
  if (field.name.ends_with("_pattern")) {
    const bool whole = field.name != "alpha_pattern" && field.name != "lambda_pattern";
    for (const auto& each : value)
      if (!(whole ? each.is_number_integer() : each.is_number()))
        wrong(whole ? "an object of whole numbers" : "an object of numbers");
  }
  if (field.name.ends_with("dropout") && !(value >= 0.0 && value <= 1.0)) wrong("between 0 and 1");
  if (field.allowed.empty()) return;
  const auto text = value.is_null() ? "" : value.get<std::string>();
  if (std::find(field.allowed.begin(), field.allowed.end(), text) != field.allowed.end()) return;
  std::string known;
  for (const auto& each : field.allowed) known += (known.empty() ? "\"" : ", \"") + std::string(each) + "\"";
  wrong("one of " + known);
}

/// Fields that say which layers are meant, and would be left out beside the others.
void check_targets(const std::string& label, const AdapterConfig& config) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError("[adapters] " + label + ": " + what);
  };
  const auto targets = config.modules("target_modules");
  const auto& fields = adapters::find_method(config.peft_type()).fields;
  const bool has_parameters = std::any_of(fields.begin(), fields.end(),
                                          [](const Field& f) { return f.name == "target_parameters"; }) &&
                              config.has("target_parameters");
  if (config.is_list("target_modules") && targets.empty() && !has_parameters)
    refuse("\"target_modules\" is an empty list: name the layers to adapt, or leave it out");
  for (const char* field : {"layers_to_transform", "layers_pattern"})
    if (targets.pattern() && config.has(field))
      refuse('"' + std::string(field) + "\" has no effect where \"target_modules\" is one text and no list");
  if (config.has("layers_pattern") && !config.has("layers_to_transform"))
    refuse("\"layers_pattern\" has no effect without \"layers_to_transform\"");
}

}  // namespace

AdapterConfig AdapterConfig::from_values(const std::shared_ptr<State>& state) {
  if (!state->values.is_object()) throw FormatError("[adapters] " + state->label + " is not a JSON object");
  const auto type = state->values.find("peft_type");
  if (type == state->values.end() || !type->is_string())
    throw ConfigError("[adapters] " + state->label +
                      " has no \"peft_type\": it does not say which method it is for");
  state->type = type->get<std::string>();
  state->method = &adapters::find_method(state->type);
  std::string noted;
  for (const auto& [name, value] : state->values.items()) {
    const Field* known = nullptr;
    for (const auto* list : state->lists())
      for (const auto& field : *list)
        if (field.name == name) known = &field;
    if (known && !state->method->lacks_field(name)) {
      check_value(state->label, *known, value);
    } else if (is_empty(value)) {
      noted += (noted.empty() ? "" : ", ") + name;
    } else {
      throw ConfigError("[adapters] " + state->label + ": \"" + name + "\" is " + value.dump() + ", and " +
                        state->type + " has no such field here: what it asks for would be left out");
    }
  }
  if (!noted.empty())
    log_warning("[adapters] " + state->label +
                ": fields that this build does not know, none of them set: " + noted);
  AdapterConfig config(state);
  if (state->method->on_layers()) check_targets(state->label, config);
  if (state->method->check) state->method->check(config);
  return config;
}

AdapterConfig AdapterConfig::from_json(std::string_view text, std::string_view label) {
  return from_values(std::make_shared<State>(label, io::parse_ordered_json(text, label)));
}

AdapterConfig AdapterConfig::from_pretrained(const std::filesystem::path& given) {
  const auto dir = io::local_path(given);
  const auto path = std::filesystem::is_regular_file(dir) ? dir : dir / "adapter_config.json";
  if (!std::filesystem::exists(path))
    throw IoError("[adapters] there is no " + path.string() +
                  ": an adapter's folder holds adapter_config.json and adapter_model.safetensors");
  const auto config = from_values(std::make_shared<State>(path.string(), io::read_ordered_json_file(path)));
  const auto& method = *config.state_->method;
  return method.located ? method.located(config, path) : config;
}

const std::string& AdapterConfig::peft_type() const { return state_->type; }
bool AdapterConfig::has(std::string_view field) const { return !is_empty(state_->get(field)); }

int64_t AdapterConfig::integer(std::string_view field) const {
  const auto& value = state_->get(field);
  if (!value.is_number_integer()) state_->wrong(field, "a whole number");
  return value.get<int64_t>();
}
double AdapterConfig::number(std::string_view field) const {
  const auto& value = state_->get(field);
  if (!value.is_number()) state_->wrong(field, "a number");
  return value.get<double>();
}
bool AdapterConfig::boolean(std::string_view field) const {
  const auto& value = state_->get(field);
  if (value.is_null()) return false;
  if (!value.is_boolean()) state_->wrong(field, "true or false");
  return value.get<bool>();
}
std::string AdapterConfig::string(std::string_view field) const {
  const auto& value = state_->get(field);
  if (value.is_null()) return "";
  if (!value.is_string()) state_->wrong(field, "a string");
  return value.get<std::string>();
}

std::vector<std::string> AdapterConfig::strings(std::string_view field) const {
  const auto& value = state_->get(field);
  if (value.is_null()) return {};
  if (value.is_string()) return {value.get<std::string>()};
  const auto is_string = [](const json& each) { return each.is_string(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_string))
    state_->wrong(field, "a list of strings");
  return value.get<std::vector<std::string>>();
}

std::vector<int64_t> AdapterConfig::integers(std::string_view field) const {
  const auto& value = state_->get(field);
  if (value.is_null()) return {};
  if (value.is_number_integer()) return {value.get<int64_t>()};
  const auto is_integer = [](const json& each) { return each.is_number_integer(); };
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_integer))
    state_->wrong(field, "a list of whole numbers");
  return value.get<std::vector<int64_t>>();
}

ModuleNames AdapterConfig::modules(std::string_view field) const {
  const auto& value = state_->get(field);
  if (value.is_string()) return value.get<std::string>();
  return strings(field);
}

std::vector<std::pair<std::string, double>> AdapterConfig::pattern(std::string_view field) const {
  const auto& value = state_->get(field);
  std::vector<std::pair<std::string, double>> pairs;
  if (value.is_null()) return pairs;
  if (!value.is_object()) state_->wrong(field, "an object of numbers");
  if (value.empty()) return pairs;
  for (const auto& [key, number] : state_->written.at(std::string(field)).items()) {
    if (!number.is_number()) state_->wrong(field, "an object of numbers");
    pairs.emplace_back(key, number.get<double>());
  }
  return pairs;
}

std::vector<std::pair<std::string, std::vector<int64_t>>> AdapterConfig::lists(std::string_view field) const {
  const auto& value = state_->get(field);
  std::vector<std::pair<std::string, std::vector<int64_t>>> all;
  if (value.is_null()) return all;
  const auto wanted = "an object of lists of whole numbers, or of true and false";
  if (!value.is_object()) state_->wrong(field, wanted);
  for (const auto& [key, list] : value.items()) {
    const auto fits = [](const json& each) { return each.is_number_integer() || each.is_boolean(); };
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), fits)) state_->wrong(field, wanted);
    auto& numbers = all.emplace_back(key, std::vector<int64_t>{}).second;
    for (const auto& each : list)
      numbers.push_back(each.is_boolean() ? each.get<bool>() : each.get<int64_t>());
  }
  return all;
}

std::string AdapterConfig::text(std::string_view field) const { return state_->get(field).dump(); }
bool AdapterConfig::is_string(std::string_view field) const { return state_->get(field).is_string(); }
bool AdapterConfig::is_object(std::string_view field) const { return state_->get(field).is_object(); }
bool AdapterConfig::is_list(std::string_view field) const { return state_->get(field).is_array(); }

AdapterConfig AdapterConfig::with(std::string_view field, std::string_view json_value) const {
  auto values = state_->written;
  values[std::string(field)] = io::parse_ordered_json(json_value, field);
  return from_json(values.dump(), state_->label);
}

AdapterConfig AdapterConfig::with(std::string_view field, const std::vector<std::string>& values) const {
  return with(field, json(values).dump());
}

std::string AdapterConfig::dump() const {
  std::map<std::string, nlohmann::ordered_json, std::less<>> all = state_->written;
  for (const auto* list : state_->lists())
    for (const auto& field : *list)
      if (!all.contains(field.name) && !state_->method->lacks_field(field.name))
        all[std::string(field.name)] = field.fallback;
  if (auto& version = all.at("peft_version"); version.is_null()) version = adapters::kPeftVersion;
  return nlohmann::ordered_json(all).dump(2) + "\n";
}

}  // namespace graft
