// Regular expressions with the meaning Python's `re` gives them, as far as both know them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace graft {

class Regex {
 public:
  /// ConfigError naming the place of a mistake; `what` says where the pattern stands.
  Regex(std::string_view pattern, std::string_view what);

  /// re.fullmatch
  bool matches_all(std::string_view text) const;
  /// re.match: from the start of the text, not necessarily to its end.
  bool matches_start(std::string_view text) const;
  /// The group of that name in a match from the start of the text.
  std::optional<std::string> group(std::string_view text, const std::string& name) const;

 private:
  struct Code;
  bool run(std::string_view text, unsigned options, const std::string* name, std::string* group) const;
  std::shared_ptr<const Code> code_;
  std::string what_;
};

/// The text as a pattern that matches itself only.
std::string escaped(std::string_view text);

}  // namespace graft
