#include "io/minja/functions.h"

#include <algorithm>
#include <ctime>

#include "io/minja/python_json.h"

namespace graft::io {
namespace {
using minja::ArgumentsValue;
using minja::Context;
using minja::Value;
using ContextPointer = std::shared_ptr<Context>;

/// A filter or function over its arguments by position.
template <class Body>
Value function(const char* name, size_t least, size_t most, Body body) {
  return Value::callable([name, least, most, body](const ContextPointer&, ArgumentsValue& given) {
    given.expectArgs(name, {least, most}, {0, 0});
    return Value(body(given.args));
  });
}

std::string text_of(const Value& value, const char* filter) {
  if (!value.is_string())
    throw std::runtime_error(std::string(filter) + " needs a text, not " + value.dump());
  return value.get<std::string>();
}

/// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
Value to_json(const ContextPointer&, ArgumentsValue& given) {
  static const char* const names[] = {"value", "ensure_ascii", "indent", "separators", "sort_keys"};
  Value arguments[std::size(names)];
  if (given.args.size() > std::size(names)) throw std::runtime_error("tojson has too many arguments");
  std::copy(given.args.begin(), given.args.end(), arguments);
  for (const auto& [key, value] : given.kwargs) {
    const auto* found = std::find(std::begin(names), std::end(names), key);
    if (found == std::end(names)) throw std::runtime_error("tojson has no argument " + key);
    arguments[found - std::begin(names)] = value;
  }
  const auto& [value, ensure_ascii, indent, separators, sort_keys] = arguments;
  PythonJsonOptions options{.ensure_ascii = ensure_ascii.to_bool(), .sort_keys = sort_keys.to_bool()};
  if (!indent.is_null()) {
    options.indent = indent.get<int64_t>();
    budget::expect(1000, static_cast<size_t>(std::max<int64_t>(0, *options.indent)));
  }
  if (!separators.is_null()) {
    if (!separators.is_array() || separators.size() != 2)
      throw std::runtime_error("tojson needs two separators");
    options.item_separator = text_of(separators.at(0), "tojson");
    options.key_separator = text_of(separators.at(1), "tojson");
  }
  return python_json(value.get<nlohmann::ordered_json>(), options);
}

std::string time_now(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[256];
  return {text, std::strftime(text, sizeof text, format.c_str(), &parts)};
}

Value reversed(const Value& value) {
  if (value.is_string()) return budget::sliced(value.get<std::string>(), {}, {}, -1);
  if (!value.is_array()) throw std::runtime_error("reverse needs a list or a text, not " + value.dump());
  auto result = Value::array();
  for (size_t i = value.size(); i-- > 0;) result.push_back(value.at(i));
  return result;
}

Value first_of(const Value& value) {
  if (value.is_string()) {
    const auto found = budget::character(value.get<std::string>(), 0);
    return found ? Value(*found) : Value();
  }
  if (!value.is_array()) throw std::runtime_error("first needs a list or a text, not " + value.dump());
  return value.size() == 0 ? Value() : value.at(size_t{0});
}

/// As str.capitalize() and str.title() do for ASCII.
std::string cased(const std::string& text, bool every_word) {
  std::string result = text;
  bool starts = true;
  for (char& c : result) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) c = static_cast<char>(starts ? c & ~0x20 : c | 0x20);
    starts = every_word && !letter && static_cast<unsigned char>(c) < 0x80;
  }
  return result;
}

std::string replaced(const std::string& text, const std::string& before, const std::string& after) {
  budget::expect_replaced(text, before, after);
  std::string result;
  size_t done = 0;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, done)) {
    result.append(text, done, at - done).append(after);
    done = at + before.size();
  }
  return result.append(text, done);
}

}  // namespace

void add_template_functions(Context& context, std::string& raised) {
  const auto add = [&](const char* name, const Value& value) { context.set(name, value); };
  add("raise_exception", function("raise_exception", 1, 1, [&raised](const auto& given) -> Value {
        raised = given[0].to_str();
        throw std::runtime_error(raised);
      }));
  add("strftime_now", function("strftime_now", 1, 1, [](const auto& given) {
        return time_now(text_of(given[0], "strftime_now"));
      }));
  add("tojson", Value::callable(to_json));
  add("dict", Value::callable([](const ContextPointer&, ArgumentsValue& given) {
        given.expectArgs("dict", {0, 0}, {0, given.kwargs.size()});
        auto result = Value::object();
        for (const auto& [key, value] : given.kwargs) result.set(key, value);
        return result;
      }));
  // Filters.
  add("first", function("first", 1, 1, [](const auto& given) { return first_of(given[0]); }));
  add("reverse", function("reverse", 1, 1, [](const auto& given) { return reversed(given[0]); }));
  add("capitalize", function("capitalize", 1, 1, [](const auto& given) {
        return cased(text_of(given[0], "capitalize"), false);
      }));
  add("title",
      function("title", 1, 1, [](const auto& given) { return cased(text_of(given[0], "title"), true); }));
  add("replace", function("replace", 3, 3, [](const auto& given) {
        return replaced(text_of(given[0], "replace"), text_of(given[1], "replace"),
                        text_of(given[2], "replace"));
      }));
  add("float", function("float", 1, 1, [](const auto& given) {
        return given[0].is_number() ? given[0].template get<double>() : 0.0;
      }));
  add("d", context.get("default"));
  // Tests, as selectattr() and select() name them.
  add("eq", context.get("equalto"));
  for (const char* name : {"ne", "!="})
    add(name, function("ne", 2, 2, [](const auto& given) { return given[0] != given[1]; }));
  add("defined", function("defined", 1, 1, [](const auto& given) { return !given[0].is_null(); }));
  add("undefined", function("undefined", 1, 1, [](const auto& given) { return given[0].is_null(); }));
}

}  // namespace graft::io
