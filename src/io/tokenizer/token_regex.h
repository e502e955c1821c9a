// Regular expressions of a tokenizer.json, which mean what Oniguruma makes of them with Unicode 16.
//
// They are run by PCRE2, whose tables depend on its version and whose \s, \w and \d are other sets: those and
// \p{...} are written out. What only Oniguruma knows (classes in classes) is a ConfigError.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/word_split.h"

namespace graft::io {

class TokenRegex {
 public:
  /// `label` says where the pattern stands.
  TokenRegex(std::string_view pattern, const std::string& label);
  /// A pattern that is text to be found as it is.
  static TokenRegex literal(std::string_view text, const std::string& label);

  /// The text as matches and what lies between them. Throws Error when matching takes too much backtracking.
  std::vector<Stretch> stretches(std::string_view text) const;
  /// The text with each match replaced by `content`, taken as it is.
  std::string replaced(std::string_view text, std::string_view content) const;

 private:
  struct Code;
  TokenRegex(std::string_view pattern, const std::string& label, bool is_literal);
  std::shared_ptr<const Code> code_;
  std::string label_;
};

/// From a field {"Regex": "..."} or {"String": "..."}.
TokenRegex read_pattern(Fields& fields, std::string_view key);

/// The pattern in PCRE2's spelling.
std::string pcre2_pattern(std::string_view pattern, const std::string& label);

}  // namespace graft::io
