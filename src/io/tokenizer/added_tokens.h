// Tokens found in the text before the model sees it: [MASK], <|endoftext|>, words somebody added. They are
// cut out first, in two rounds: those with normalized = false from the raw text, the others from what the
// normalizer made of the rest.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace graft::io {

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool single_word = false;  ///< found only between non-word characters
  bool lstrip = false;       ///< swallows the white space on its left
  bool rstrip = false;       ///< and on its right
  bool normalized = true;    ///< looked for in the normalized text, in its own normalized form
  bool special = false;      ///< left out by decode's skip_special_tokens
  std::string pattern = {};  ///< what is looked for: content, normalized if `normalized`
};

class AddedTokens {
 public:
  /// A stretch of the text; an id where it is an added token, -1 where it is plain text.
  struct Span {
    int64_t id;
    std::string_view text;
  };

  /// `is_word` is a regex's \w, for single_word. Throws ConfigError for an empty pattern and for one that two
  /// tokens share.
  AddedTokens(std::vector<AddedToken> tokens, bool (*is_word)(char32_t));
  ~AddedTokens();

  /// The spans of `text`, in order, none of them empty. `normalized` chooses the round.
  std::vector<Span> split(std::string_view text, bool normalized) const;

  const AddedToken* find(int64_t id) const;
  const AddedToken* find(std::string_view content) const;
  bool is_special(std::string_view content) const { return special_.contains(std::string(content)); }
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  class Trie;
  bool stands_alone(std::string_view text, size_t start, size_t end) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int64_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  std::unordered_set<std::string> special_;
  bool (*is_word_)(char32_t);
  std::unique_ptr<Trie> raw_, normalized_;
};

}  // namespace graft::io
