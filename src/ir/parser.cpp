#include "ir/parser.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "graft/error.h"

namespace graft::ir {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph graph() {
    keyword("graph");
    expect('(');
    for (bool first = true; !accept(')'); first = false) {
      if (!first) expect(',');
      input();
    }
    expect('{');
    while (!accept_keyword("return")) statement();
    expect('(');
    for (bool first = true; !accept(')'); first = false) {
      if (!first) expect(',');
      graph_.add_result(accept_keyword("None") ? nullptr : used_value());
    }
    expect('}');
    skip_space();
    if (at_ < text_.size()) fail("text after the graph");
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    size_t line = 1, column = 1;
    for (const char c : text_.substr(0, at_)) c == '\n' ? (++line, column = 1) : ++column;
    throw FormatError("[ir] line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
                      what);
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == ':';
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (peek() == ' ' || peek() == '\n') ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }
  /// The word at this place without taking it.
  std::string_view word() {
    skip_space();
    size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  std::string_view take_word(std::string_view what) {
    const auto found = word();
    if (found.empty()) fail("expected " + std::string(what));
    at_ += found.size();
    return found;
  }
  bool accept_keyword(std::string_view wanted) {
    if (word() != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  void keyword(std::string_view wanted) {
    if (!accept_keyword(wanted)) fail("expected \"" + std::string(wanted) + "\"");
  }

  template <class T>
  T number(std::string_view what) {
    skip_space();
    T value{};
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("expected " + std::string(what));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  std::string string() {
    expect('"');
    std::string value;
    for (; peek() != '"'; ++at_) {
      if (at_ >= text_.size()) fail("a string that does not end");
      if (peek() != '\\') {
        value += peek();
        continue;
      }
      ++at_;
      if (peek() == 'n')
        value += '\n';
      else if (peek() == '"' || peek() == '\\')
        value += peek();
      else
        fail("an unknown escape in a string");
    }
    ++at_;
    return value;
  }

  std::vector<Dim> dims(char close) {
    std::vector<Dim> values;
    for (bool first = true; !accept(close); first = false) {
      if (!first) expect(',');
      values.push_back(number<Dim>("a size"));
    }
    return values;
  }

  DType dtype() {
    const auto start = at_;
    const auto found = dtype_named(take_word("a dtype"));
    if (!found) at_ = start, fail("an unknown dtype");
    return *found;
  }

  Device device() {
    const auto start = at_;
    const auto name = take_word("a device");
    if (name == "cpu") return {};
    if (name == "meta") return {Device::Kind::meta, 0};
    int index = 0;
    if (name.starts_with("cuda:")) {
      const auto digits = name.substr(5);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
      if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0)
        return {Device::Kind::cuda, index};
    }
    at_ = start;
    fail("an unknown device; known: cpu, meta, cuda:N");
  }

  TensorType type() {
    TensorType type;
    type.dtype = dtype();
    expect('[');
    type.sizes = dims(']');
    Dim count = 1;
    for (const auto size : type.sizes) {
      if (size < 0 || (size > 0 && count > std::numeric_limits<Dim>::max() / size))
        fail("sizes that no tensor has");
      count *= std::max<Dim>(size, 1);
    }
    type.strides = accept('{') ? dims('}') : contiguous_strides(type.sizes);
    if (type.strides.size() != type.sizes.size()) fail("as many strides as sizes are needed");
    if (accept('@')) type.device = device();
    return type;
  }

  int value_id() {
    expect('%');
    const int id = number<int>("a value's number");
    if (id < 0) fail("a value's number is not negative");
    return id;
  }
  Value* used_value() {
    const auto start = at_;
    const auto found = values_.find(value_id());
    if (found == values_.end()) at_ = start, fail("a value that is not defined before it is used");
    return found->second;
  }
  void define(Value& value, int id) {
    value.id_ = id;
    if (!values_.emplace(id, &value).second) fail("%" + std::to_string(id) + " is defined twice");
    graph_.next_id_ = std::max(graph_.next_id_, id < std::numeric_limits<int>::max() ? id + 1 : id);
  }

  void input() {
    const int id = value_id();
    auto name = string();
    expect(':');
    define(graph_.add_input(std::move(name), type()), id);
  }

  void statement() {
    std::vector<int> ids;
    std::vector<TensorType> types;
    skip_space();
    if (peek() == '%') {
      do {
        ids.push_back(value_id());
        expect(':');
        types.push_back(type());
      } while (accept(','));
      expect('=');
    }
    std::string op(take_word("an operator"));
    if (op.find("::") == std::string::npos) fail("an operator is NAMESPACE::NAME");
    expect('(');
    std::vector<NamedArgument> arguments;
    for (bool first = true; !accept(')'); first = false) {
      if (!first) expect(',');
      std::string name(take_word("an argument's name"));
      if (std::any_of(arguments.begin(), arguments.end(), [&](const auto& a) { return a.name == name; }))
        fail("the argument \"" + name + "\" twice");
      expect('=');
      arguments.push_back({std::move(name), argument()});
    }
    auto& node = graph_.add_node(std::move(op), std::move(arguments), std::move(types));
    for (size_t i = 0; i < ids.size(); ++i) define(node.output(i), ids[i]);
    while (peek() == ' ') ++at_;
    if (peek() == '#') node.set_scope(comment());
  }

  std::string comment() {
    ++at_;
    while (peek() == ' ') ++at_;
    const auto end = std::min(text_.find('\n', at_), text_.size());
    std::string scope(text_.substr(at_, end - at_));
    at_ = end;
    return scope;
  }

  Argument argument() {
    skip_space();
    switch (peek()) {
      case '%':
        return used_value();
      case '"':
        return Attribute(string());
      case '\'':
        ++at_;
        return Attribute(Symbol{std::string(take_word("a word"))});
      case '@':
        ++at_;
        return Attribute(device());
      case '[':
        ++at_;
        return list();
      case '-':
        return scalar();
      default:
        break;
    }
    if (accept_keyword("None")) return Attribute(None{});
    if (accept_keyword("Undefined")) return Attribute(Undefined{});
    if (accept_keyword("true")) return Attribute(true);
    if (accept_keyword("false")) return Attribute(false);
    if (accept_keyword("complex")) return complex_number();
    if (accept_keyword("tensors")) return value_list();
    if (peek() >= '0' && peek() <= '9') return scalar();
    if (word() == "inf" || word() == "nan") return scalar();
    const auto kind = dtype();
    if (!accept('[')) return Attribute(kind);
    expect(']');
    if (kind == DType::f64) return Attribute(std::vector<double>{});
    if (kind == DType::boolean) return Attribute(std::vector<bool>{});
    fail("only f64[] and bool[] are empty lists");
  }

  /// An integer, unless a point, an exponent or a word says float.
  Attribute scalar() {
    skip_space();
    size_t end = at_ + (peek() == '-');
    while (end < text_.size() &&
           (is_word(text_[end]) || text_[end] == '+' || (text_[end] == '-' && text_[end - 1] == 'e')))
      ++end;
    if (text_.substr(at_, end - at_).find_first_of(".ein") != std::string_view::npos)
      return number<double>("a number");
    return number<int64_t>("a number");
  }

  Attribute complex_number() {
    expect('(');
    const double real = part();
    expect(',');
    const double imaginary = part();
    expect(')');
    return std::complex<double>(real, imaginary);
  }

  double part() {
    const auto value = scalar();
    if (!std::holds_alternative<double>(value))
      fail("the parts of a complex number are floats; write 1.0 for 1");
    return std::get<double>(value);
  }

  Argument value_list() {
    expect('[');
    ValueList values;
    for (bool first = true; !accept(']'); first = false) {
      if (!first) expect(',');
      values.push_back(accept_keyword("None") ? nullptr : used_value());
    }
    return values;
  }

  Argument list() {
    if (word() == "true" || word() == "false") {
      std::vector<bool> values;
      do {
        const bool yes = accept_keyword("true");
        if (!yes) keyword("false");
        values.push_back(yes);
      } while (accept(','));
      expect(']');
      return Attribute(std::move(values));
    }
    std::vector<int64_t> integers;
    std::vector<double> numbers;
    for (bool first = true; !accept(']'); first = false) {
      if (!first) expect(',');
      const auto value = scalar();
      if (const auto* integer = std::get_if<int64_t>(&value))
        integers.push_back(*integer);
      else
        numbers.push_back(std::get<double>(value));
      if (!integers.empty() && !numbers.empty()) fail("a list of integers and floats; write 1.0 for 1");
    }
    if (!numbers.empty()) return Attribute(std::move(numbers));
    return Attribute(std::move(integers));
  }

  std::string_view text_;
  size_t at_ = 0;
  Graph graph_;
  std::unordered_map<int, Value*> values_;
};

Graph parse(std::string_view text) { return Parser(text).graph(); }

}  // namespace graft::ir
