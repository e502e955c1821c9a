// Texts that end a row: whether the last token completes one, as transformers' StopStringCriteria has it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graft/tokenizer.h"

namespace graft::generation {

/// Bytes are compared, of each token by itself as it stands inside a text: so a stop string may begin and end
/// within tokens, in the middle of a character of several bytes, and be a special token.
class StopStrings {
 public:
  StopStrings(std::vector<std::string> strings, std::shared_ptr<const Tokenizer> tokenizer);

  /// Whether one of the strings is in the text of `ids` and its end in that of the last one.
  bool completed_by(std::span<const int64_t> ids) const;

 private:
  /// None for an id without a token, over which nothing reaches.
  const std::optional<std::string>& text_of(int64_t id) const;

  std::vector<std::string> strings_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int64_t> before_;  ///< the tokens of a text that a token is put after
  size_t longest_ = 0;
  mutable std::map<int64_t, std::optional<std::string>> texts_;
};

}  // namespace graft::generation
