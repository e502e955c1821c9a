#include "io/tokenizer/token_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/token_regex_sets.h"

namespace graft::io {

struct TokenRegex::Code {
  pcre2_code* code;
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

namespace {

// White_Space, which for PCRE2 also has U+180E.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D} \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// What Oniguruma's \w has beside letters, marks, digits and connectors.
constexpr std::string_view kOtherWords =
    R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

std::string category(std::string_view name) {
  return "\\p{" + std::string(name) + "}" + younger_characters(name);
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& label) : pattern_(pattern), label_(label) {}

  std::string translate() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        class_member(c);
      else
        plain(c);
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("[tokenizer] " + label_ + ": the pattern " + quote(pattern_) + " " + what);
  }

  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  void plain(char c) {
    copy(1);
    if (c != '[') return;
    in_class_ = true;
    if (at_ < pattern_.size() && pattern_[at_] == '^') copy(1);
    if (at_ < pattern_.size() && pattern_[at_] == ']') copy(1);  // first in a class: itself
  }

  void class_member(char c) {
    if (pattern_.substr(at_, 2) == "[:") {
      const size_t end = pattern_.find(":]", at_);
      if (end != pattern_.npos) return copy(end + 2 - at_);
    }
    if (c == '[' || pattern_.substr(at_, 2) == "&&")
      fail("has a character class inside another, which is not supported");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  /// A set by its members, or all but them.
  void set(const std::string& members, bool negated, size_t length) {
    if (in_class_ && negated) return copy(length);  // as the engine has it
    at_ += length;
    if (in_class_)
      out_ += members;
    else
      out_ += (negated ? "[^" : "[") + members + "]";
  }

  void escape() {
    const char next = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (next) {
      case 's':
      case 'S':
        return set(std::string(kSpaces), next == 'S', 2);
      case 'd':
      case 'D':
        return set(category("Nd"), next == 'D', 2);
      case 'w':
      case 'W':
        return set(category("L") + category("M") + category("Nd") + category("Nl") + category("Pc") +
                       std::string(kOtherWords),
                   next == 'W', 2);
      case 'p':
      case 'P':
        return property(next == 'P');
      case 'h':
      case 'H':
        return set("0-9A-Fa-f", next == 'H', 2);
      default:
        return copy(2);
    }
  }

  void property(bool negated) {
    const size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == pattern_.npos)
      fail("has a \\p without {name}");
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    set(category(name), negated, end + 1 - at_);
  }

  std::string_view pattern_;
  const std::string& label_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

}  // namespace

std::string pcre2_pattern(std::string_view pattern, const std::string& label) {
  return Translator(pattern, label).translate();
}

TokenRegex::TokenRegex(std::string_view pattern, const std::string& label, bool is_literal) : label_(label) {
  check_utf8(pattern, label);
  const std::string text = is_literal ? std::string(pattern) : pcre2_pattern(pattern, label);
  const uint32_t options = is_literal ? PCRE2_UTF | PCRE2_LITERAL
                                      : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE place = 0;
  auto* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options, &error, &place, nullptr);
  if (!code) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    throw ConfigError("[tokenizer] " + label + ": the pattern " + quote(pattern) +
                      " is not a regular expression: " + reinterpret_cast<char*>(message));
  }
  code_ = std::make_shared<Code>(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where the platform has none, matching is slower
}

TokenRegex::TokenRegex(std::string_view pattern, const std::string& label)
    : TokenRegex(pattern, label, /*is_literal=*/false) {}

TokenRegex TokenRegex::literal(std::string_view text, const std::string& label) {
  return {text, label, /*is_literal=*/true};
}

std::vector<Stretch> TokenRegex::stretches(std::string_view text) const {
  const MatchData data(pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  std::vector<Stretch> found;
  size_t done = 0;
  size_t last_match = std::string_view::npos;
  for (size_t from = 0; from <= text.size();) {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | options, data.get(), nullptr);
    };
    int result = run(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw Error("[tokenizer] " + label_ + ": a regular expression could not be matched against a text of " +
                  std::to_string(text.size()) + " bytes (PCRE2 error " + std::to_string(result) + ")");
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    const size_t begin = match[0], end = match[1];
    if (begin == end &&
        end == last_match) {  // an empty match right after the last: continue a character later
      if (from >= text.size()) break;
      next_code_point(text, from);
      continue;
    }
    if (done < begin) found.push_back({done, begin, false});
    found.push_back({begin, end, true});
    done = from = last_match = end;
  }
  if (done < text.size()) found.push_back({done, text.size(), false});
  return found;
}

std::string TokenRegex::replaced(std::string_view text, std::string_view content) const {
  std::string out;
  for (const auto& [begin, end, matched] : stretches(text))
    out += matched ? content : text.substr(begin, end - begin);
  return out;
}

TokenRegex read_pattern(Fields& fields, std::string_view key) {
  Fields pattern(fields.at(key), fields.label() + ", \"" + std::string(key) + "\"");
  const bool regex = pattern.find("Regex") != nullptr;
  const std::string text = pattern.string(regex ? "Regex" : "String");
  pattern.finish();
  if (text.empty()) pattern.fail("is empty");
  return regex ? TokenRegex(text, fields.label()) : TokenRegex::literal(text, fields.label());
}

}  // namespace graft::io
