#!/usr/bin/env python3
"""Makes the minja.hpp that graft is built with from the one that was fetched: patch_minja.py IN OUT.

minja is a small Jinja for chat templates that trusts them: it has no bounds on work or memory, and some templates crash it (a division by
zero, range() with four arguments, recursive macros). Templates are files from strangers, so the build puts calls to src/io/minja/budget.h
into it, and mends where it differs from Jinja and templates in use can tell. Each change names a text that stands there a known number of
times; another version of the file, where one of them does not, is refused.
"""
import pathlib
import sys

B = "::graft::io::budget::"
LEVEL = f"const {B}Level graft_level; "

# (text, what it becomes, how often it stands there)
BOUNDS = [
    ("#include <nlohmann/json.hpp>", '#include <nlohmann/json.hpp>\n#include "io/minja/budget.h"', 1),
    # Steps, nesting and memory: everything passes through these.
    ("return do_evaluate(context);", f"{LEVEL}auto graft_value = do_evaluate(context); {B}charge(graft_value.graft_bytes()); return graft_value;", 1),
    ("            do_render(out, context);", f"            {LEVEL}do_render(out, context);", 1),
    ("      out << text;\n", f"      {B}charge(text.size()); out << text;\n", 1),
    ("  Value() {}\n", """  Value() {}
  size_t graft_bytes() const {
    size_t bytes = sizeof(Value);
    if (is_string()) bytes += primitive_.get_ref<const std::string &>().size();
    // What others hold as well was counted when it was made.
    if (array_ && array_.use_count() == 1) for (const auto & each : *array_) bytes += each.graft_bytes();
    if (object_ && object_.use_count() == 1) for (const auto & each : *object_) bytes += sizeof(json) + each.second.graft_bytes();
    return bytes;
  }
""", 1),
    ("    auto print_indent = [&](int level) {", f"    {LEVEL}{B}charge(sizeof(Value) + (is_string() ? primitive_.get_ref<const std::string &>().size() : 0) + "
     "(indent > 0 ? static_cast<size_t>(level + 1) * indent : 0));\n    auto print_indent = [&](int level) {", 1),
    ("  bool operator==(const Value & other) const {\n", f"  bool operator==(const Value & other) const {{\n    {LEVEL}\n", 1),
    ("inline json Value::get<json>() const {\n", f"inline json Value::get<json>() const {{\n  {LEVEL}{B}charge(sizeof(json) + (is_string() ? primitive_.get_ref<const std::string &>().size() : 0));\n", 1),
    # Single operations that make much of little.
    ("        std::ostringstream out;\n        for (int64_t i = 0, n = rhs.get<int64_t>(); i < n; ++i) {\n          out << to_str();\n        }\n        return out.str();\n",
     f"        return {B}repeated(to_str(), rhs.get<int64_t>());\n", 1),
    ("        startEndStep[i] = v;", '        if (i > 2) throw std::runtime_error("range takes at most three arguments");\n        startEndStep[i] = v;', 1),
    ("    int64_t step = param_set[2] ? startEndStep[2] : 1;", f"    int64_t step = param_set[2] ? startEndStep[2] : 1;\n    {B}expect_range(start, end, step);", 1),
    ("            auto after = vargs.args[1].get<std::string>();", f"            auto after = vargs.args[1].get<std::string>();\n            {B}expect_replaced(str, before, after);", 1),
    ("      std::ostringstream oss;", f"      {B}expect(items.size(), sep.size());\n      std::ostringstream oss;", 1),
    ('    std::string indent(args.get<int64_t>("indent", 0), \' \');', '    const auto graft_width = args.get<int64_t>("indent", 4);\n'
     f'    {B}expect(text.size(), graft_width < 0 ? 0 : graft_width);\n    std::string indent(graft_width < 0 ? 0 : graft_width, \' \');', 1),
    ("            iterable_value.for_each([&](Value & item) {", f"            iterable_value.for_each([&](Value & item) {{\n                {B}step();\n                {B}charge(2 * item.graft_bytes());", 1),
    # An error says where it came from once, not at every level it passes; leaving a loop is none.
    ("            if (location.source) out << error_location_suffix(", f"            if (location.source && {B}locates()) out << error_location_suffix(", 1),
    ("""        } catch (const LoopControlException & e) {
            // TODO: make stack creation lazy. Only needed if it was thrown outside of a loop.
            std::ostringstream err;
            err << e.what();
            if (location_.source) err << error_location_suffix(*location_.source, location_.pos);
            throw LoopControlException(err.str(), e.control_type);
""", "        } catch (const LoopControlException &) {\n            throw;\n", 1),
    ("            if (location_.source) err << error_location_suffix(", f"            if (location_.source && {B}locates()) err << error_location_suffix(", 1),
    # Parsing: anchored searches instead of searches of all that is left, and no deeper than rendering.
    ("if (std::regex_search(it, end, match, regex) && match.position() == 0) {",
     f"{B}step();\n        if (std::regex_search(it, end, match, regex, std::regex_constants::match_continuous)) {{", 2),
    ("    std::shared_ptr<Expression> parseExpression(bool allow_if_expr = true) {", f"    std::shared_ptr<Expression> parseExpression(bool allow_if_expr = true) {{\n        {LEVEL}", 1),
    ("          auto sub = parseLogicalNot();", f"          {LEVEL}\n          auto sub = parseLogicalNot();", 1),
    ("            auto expr = parseMathMulDiv();", f"            {LEVEL}\n            auto expr = parseMathMulDiv();", 1),
    ("          bool fully = false) const {", f"          bool fully = false) const {{\n        {LEVEL}", 1),
    ('text = std::regex_replace(text, trailing_space_regex, "");', f"text = {B}trimmed(std::move(text), false, true);", 1),
    ('text = std::regex_replace(text, leading_space_regex, "");', f"text = {B}trimmed(std::move(text), true, false);", 1),
    ("                static std::regex trailing_space_regex(R\"(\\s+$)\");\n", "", 1),
    ("                static std::regex leading_space_regex(R\"(^\\s+)\");\n", "", 1),
]
CRASHES = [
    ("case Op::DivDiv:    return l.get<int64_t>() / r.get<int64_t>();", f"case Op::DivDiv:    return {B}floor_divided(l.get<int64_t>(), r.get<int64_t>());", 1),
    ("case Op::Mod:       return l.get<int64_t>() % r.get<int64_t>();", f"case Op::Mod:       return {B}remainder(l.get<int64_t>(), r.get<int64_t>());", 1),
    ("    return get<int64_t>() % rhs.get<int64_t>();", f"    return {B}remainder(get<int64_t>(), rhs.get<int64_t>());", 1),
    ("        return get<int64_t>() / rhs.get<int64_t>();\n      else\n        return get<double>() / rhs.get<double>();",
     f"        return {B}divided(static_cast<double>(get<int64_t>()), static_cast<double>(rhs.get<int64_t>()));\n      else\n        return {B}divided(get<double>(), rhs.get<double>());", 1),
    ("(step < 0 ? -1 : len);", f"(step < 0 ? -1 : len);\n          {B}clamp_slice(start, end, step, static_cast<int64_t>(len));", 1),
    # A loop's and a macro's functions refer to what is gone when they are called later.
    ("              size_t cycle_index = 0;", "              auto cycle_at = std::make_shared<size_t>(0);", 1),
    ('loop.set("cycle", Value::callable([&](', 'loop.set("cycle", Value::callable([cycle_at](', 1),
    ("                  auto item = args.args[cycle_index];", "                  auto item = args.args[*cycle_at % args.args.size()];", 1),
    ("                  cycle_index = (cycle_index + 1) % args.args.size();\n", "", 1),
    ('                  loop.set("index0", (int64_t) i);', '                  loop.set("index0", (int64_t) i);\n                  *cycle_at = i;', 1),
    ("auto recursive = !consumeToken(recursive_tok).empty();",
     'auto recursive = !consumeToken(recursive_tok).empty();\n              if (recursive) throw std::runtime_error("Recursive loops are not supported");', 1),
    ('        if (!name) throw std::runtime_error("MacroNode.name is null");', f"        {B}require_outermost(macro_context.get());", 1),
    ("        if (l.is_callable()) {", "        if (false) {", 1),
    # Lists that hold themselves would never be freed: lists do not change (nor do they in transformers' sandbox), and what objects were given
    # is taken from them in the end.
    ('          if (method->get_name() == "append") {\n', """          if (method->get_name() == "append" || method->get_name() == "insert" || method->get_name() == "pop") {
              throw std::runtime_error("A template must not change a list");
          } else if (method->get_name() == "append") {
""", 1),
    ('            vargs.expectArgs("pop method", {1, 1}, {0, 0});', '            throw std::runtime_error("A template must not change an object");', 1),
    ("        ns_value.set(name, this->value->evaluate(context));", f"""        auto graft_value = this->value->evaluate(context);
        if (graft_value.is_array() || graft_value.is_object())
          {B}at_end([ns_value]() mutable {{ for (const auto & each : ns_value.keys()) ns_value.pop(each); }});
        ns_value.set(name, graft_value);""", 1),
    ("  size_t end = s.find(sep);", '  if (sep.empty()) throw std::runtime_error("empty separator");\n  size_t end = s.find(sep);', 1),
]
JINJA = [
    # Texts are characters, not bytes.
    ("    if (is_string()) return primitive_.get<std::string>().length();", f"    if (is_string()) return {B}length(primitive_.get_ref<const std::string &>());", 1),
    ("      for (char c : primitive_.get<std::string>()) {", f"      for (const auto & c : {B}characters(primitive_.get<std::string>())) {{", 1),
    ("        auto val = Value(std::string(1, c));", "        auto val = Value(c);", 1),
    ("          auto len = target_value.size();", f"""          if (target_value.is_string()) {{
            const auto part = [&](const std::shared_ptr<Expression> & each) {{
              return each ? std::optional<int64_t>(each->evaluate(context).get<int64_t>()) : std::nullopt;
            }};
            return {B}sliced(target_value.get<std::string>(), part(slice->start), part(slice->end), part(slice->step));
          }}
          auto len = target_value.size();""", 1),
    ("          return target_value.get(index_value);", f"""          if (target_value.is_string() && index_value.is_number_integer()) {{
            const auto character = {B}character(target_value.get<std::string>(), index_value.get<int64_t>());
            return character ? Value(*character) : Value();
          }}
          return target_value.get(index_value);""", 1),
    ('  auto charset = chars.empty() ? " \\t\\n\\r" : chars;', f"  if (chars.empty()) return {B}stripped(s, left, right);\n  const auto & charset = chars;", 1),
    # A place that a list does not have is undefined.
    ("      return array_->at(index < 0 ? array_->size() + index : index);",
     "      const auto place = index < 0 ? static_cast<int64_t>(array_->size()) + index : index;\n"
     "      return place < 0 || place >= static_cast<int64_t>(array_->size()) ? Value() : (*array_)[place];", 1),
    # Values that are false are values.
    ("if (item.to_bool() && item == value) return true;", "if (item == value) return true;", 1),
    ("if (!(*array_)[i].to_bool() || !(*other.array_)[i].to_bool() || (*array_)[i] != (*other.array_)[i]) return false;",
     "if ((*array_)[i] != (*other.array_)[i]) return false;", 1),
    ("if (!item.second.to_bool() || !other.object_->count(item.first)", "if (!other.object_->count(item.first)", 1),
    ("      return primitive_ == other.primitive_;", "      return !other.array_ && !other.object_ && primitive_ == other.primitive_;", 1),
    ("    if (is_array()) return !empty();\n    return true;", "    if (is_array()) return !empty();\n    if (is_object() && !callable_) return !object_->empty();\n    return true;", 1),
    ("            if (!l.to_bool()) return Value(false);\n            return right->evaluate(context).to_bool();",
     "            if (!l.to_bool()) return l;\n            return right->evaluate(context);", 1),
    ('    if (is_null()) out << "null";', '    if (is_null()) out << (to_json ? "null" : "None");', 1),
    # What is missing is written as nothing.
    ('    if (is_null()) return "None";', '    if (is_null()) return "";', 1),
    # Tests.
    ('              if (name == "sequence") return l.is_array();', '              if (name == "sequence") return l.is_iterable();', 1),
    ('              if (name == "true") return l.to_bool();', '              if (name == "true") return l.is_boolean() && l.to_bool();', 1),
    ('              if (name == "false") return !l.to_bool();', '              if (name == "false") return l.is_boolean() && !l.to_bool();\n'
     '              if (name == "undefined") return l.is_null();\n              if (name == "callable") return l.is_callable();\n'
     f'              if (name == "odd") return {B}remainder(l.get<int64_t>(), 2) == 1;\n              if (name == "even") return {B}remainder(l.get<int64_t>(), 2) == 0;', 1),
    # A loop's variables and a macro's parameters are its own.
    ("                destructuring_assign(var_names, context, item);",
     "                auto graft_scope = Context::make(Value::object(), context);\n                destructuring_assign(var_names, graft_scope, item);", 1),
    ("if (!condition || condition->evaluate(context).to_bool()) {", "if (!condition || condition->evaluate(graft_scope).to_bool()) {", 1),
    ("            auto call_context = macro_context;", "            auto call_context = Context::make(Value::object(), macro_context);", 1),
    ("                if (!param_set[i] && params[i].second != nullptr) {",
     "                if (!param_set[i] && params[i].second == nullptr) call_context->set(params[i].first, Value());\n"
     "                if (!param_set[i] && params[i].second != nullptr) {", 1),
    # lstrip_blocks is for blocks, not for expressions; indent leaves empty lines alone.
    ("} else if (options.lstrip_blocks && it != end) {", "} else if (options.lstrip_blocks && it != end && (*it)->type != TemplateToken::Type::Expression) {", 1),
    ("      if (needs_indent) out += indent;", "      if (needs_indent && !line.empty()) out += indent;", 1),
    # selectattr without a test selects items.
    ("          res.push_back(attr);\n", "          if (attr.to_bool() == is_select) res.push_back(item);\n", 1),
    # What the assistant said, for training.
    ("class ExpressionNode : public TemplateNode {", f"""class GenerationMark : public TemplateNode {{
    bool begins;
public:
    GenerationMark(const Location & loc, bool begins) : TemplateNode(loc), begins(begins) {{}}
    void do_render(std::ostringstream & out, const std::shared_ptr<Context> &) const override {{ {B}mark_generation(out, begins); }}
}};

class ExpressionNode : public TemplateNode {{""", 1),
    ("              children.emplace_back(std::move(body));", """              children.emplace_back(std::make_shared<GenerationMark>(token->location, true));
              children.emplace_back(std::move(body));
              children.emplace_back(std::make_shared<GenerationMark>(token->location, false));""", 1),
]


def patched(text):
    for old, new, times in BOUNDS + CRASHES + JINJA:
        found = text.count(old)
        if found != times:
            sys.exit(f"patch_minja: {old!r} stands {found} times in this minja.hpp, not {times}: it is not the version that is known")
        text = text.replace(old, new)
    return text


if __name__ == "__main__":
    source, target = map(pathlib.Path, sys.argv[1:])
    result = patched(source.read_text())
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text() != result:
        target.write_text(result)
