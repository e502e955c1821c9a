// Cutting a word where something matches: what becomes of the matches is the splitter's `behavior`.
#pragma once
#include <string_view>
#include <vector>

#include "io/format/utf8.h"
#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
/// From a field: "Isolated" and so on.
Behavior read_behavior(Fields& fields, const std::string& fallback = "");

struct Stretch {
  size_t begin, end;
  bool matched;
};

/// REQUIRES: the stretches cover the word, in order.
void split_word(const Word& word, std::vector<Stretch> stretches, Behavior behavior,
                std::vector<Word>& words);

/// Each character that matches is a stretch of its own.
template <class Matches>
std::vector<Stretch> matching_characters(std::string_view text, Matches matches) {
  std::vector<Stretch> stretches;
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    if (!matches(next_code_point(text, pos))) continue;
    if (done < start) stretches.push_back({done, start, false});
    stretches.push_back({start, pos, true});
    done = pos;
  }
  if (done < text.size()) stretches.push_back({done, text.size(), false});
  return stretches;
}

/// A pre-tokenizer that splits at characters.
template <class Matches>
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(Matches matches, Behavior behavior) : matches_(matches), behavior_(behavior) {}
  void split(const Word& word, std::vector<Word>& words) const override {
    split_word(word, matching_characters(word.text, matches_), behavior_, words);
  }

 private:
  Matches matches_;
  Behavior behavior_;
};

}  // namespace graft::io
