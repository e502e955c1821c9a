#include "support/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "graft/error.h"

namespace graft {

struct Regex::Code {
  pcre2_code* code;
  explicit Code(pcre2_code* c) : code(c) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex::Regex(std::string_view pattern, std::string_view what) : what_(what) {
  int error = 0;
  PCRE2_SIZE place = 0;
  auto* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                             &place, nullptr);
  if (!code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    throw ConfigError(std::string(what) + ": \"" + std::string(pattern) + "\" is not a regular expression: " +
                      reinterpret_cast<char*>(text) + " at character " + std::to_string(place));
  }
  code_ = std::make_shared<Code>(code);
}

bool Regex::run(std::string_view text, unsigned options, const std::string* name, std::string* group) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr), pcre2_match_data_free);
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                PCRE2_ANCHORED | options, data.get(), nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0)
    throw ConfigError(what_ + ": the regular expression could not be matched against \"" + std::string(text) +
                      "\" (PCRE2 error " + std::to_string(found) + "): is it too deeply nested?");
  if (name) {
    PCRE2_UCHAR* start = nullptr;
    PCRE2_SIZE length = 0;
    if (pcre2_substring_get_byname(data.get(), reinterpret_cast<PCRE2_SPTR>(name->c_str()), &start,
                                   &length) != 0)
      return false;
    group->assign(reinterpret_cast<char*>(start), length);
    pcre2_substring_free(start);
  }
  return true;
}

bool Regex::matches_all(std::string_view text) const {
  return run(text, PCRE2_ENDANCHORED, nullptr, nullptr);
}

bool Regex::matches_start(std::string_view text) const { return run(text, 0, nullptr, nullptr); }

std::optional<std::string> Regex::group(std::string_view text, const std::string& name) const {
  std::string found;
  if (!run(text, 0, &name, &found)) return std::nullopt;
  return found;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace graft
