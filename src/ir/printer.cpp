// The text of a graph. parser.h has the grammar.
#include <charconv>
#include <cmath>

#include "ir/graph.h"

namespace graft::ir {
namespace {

template <class... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

/// The shortest digits that read back as the same number, and always with a point or exponent, so that a
/// float stays one.
std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  std::string text(digits, end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

template <class T, class Print>
std::string list(const std::vector<T>& values, Print print) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + print(values[i]);
  return text + "]";
}

std::string name(const Value* value) { return value ? "%" + std::to_string(value->id()) : "None"; }

std::string text_of(const Attribute& attribute) {
  return std::visit(
      Overloaded{
          [](None) -> std::string { return "None"; }, [](Undefined) -> std::string { return "Undefined"; },
          [](bool v) -> std::string { return v ? "true" : "false"; },
          [](int64_t v) { return std::to_string(v); }, [](double v) { return number(v); },
          [](const std::complex<double>& v) {
            return "complex(" + number(v.real()) + ", " + number(v.imag()) + ")";
          },
          [](const std::string& v) { return quoted(v); }, [](const Symbol& v) { return "'" + v.name; },
          [](DType v) { return std::string(name_of(v)); }, [](const Device& v) { return "@" + to_string(v); },
          [](const std::vector<int64_t>& v) { return list(v, [](int64_t x) { return std::to_string(x); }); },
          // An empty list has no element to show its type by, so it says it.
          [](const std::vector<double>& v) { return v.empty() ? "f64[]" : list(v, number); },
          [](const std::vector<bool>& v) {
            return v.empty() ? "bool[]" : list(v, [](bool x) -> std::string { return x ? "true" : "false"; });
          }},
      attribute);
}

std::string text_of(const Argument& argument) {
  return std::visit(Overloaded{[](const Value* v) { return name(v); },
                               [](const ValueList& v) { return "tensors" + list(v, name); },
                               [](const Attribute& v) { return text_of(v); }},
                    argument);
}

}  // namespace

std::string to_string(const Node& node) {
  std::string text;
  for (const auto& output : node.outputs())
    text += (text.empty() ? "" : ", ") + name(output.get()) + ": " + to_string(output->type());
  text += text.empty() ? "" : " = ";
  text += node.op() + "(";
  for (size_t i = 0; i < node.arguments().size(); ++i) {
    const auto& argument = node.arguments()[i];
    text += (i ? ", " : "") + argument.name + "=" + text_of(argument.value);
  }
  text += ")";
  return node.scope().empty() ? text : text + "  # " + node.scope();
}

std::string to_string(const Graph& graph) {
  std::string text = "graph(";
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    text += (i ? ",\n      " : "") + name(graph.inputs()[i].get()) + " " + quoted(graph.input_name(i)) +
            ": " + to_string(graph.inputs()[i]->type());
  text += ") {\n";
  for (const auto& node : graph.nodes()) text += "  " + to_string(*node) + "\n";
  text += "  return (";
  for (size_t i = 0; i < graph.results().size(); ++i) text += (i ? ", " : "") + name(graph.results()[i]);
  return text + ")\n}\n";
}

}  // namespace graft::ir
