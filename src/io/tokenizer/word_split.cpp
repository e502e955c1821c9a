#include "io/tokenizer/word_split.h"

#include <algorithm>

#include "io/format/quote.h"
#include "io/tokenizer/fields.h"

namespace graft::io {
namespace {

/// A match joins the stretch before it, unless that is a match too.
std::vector<Stretch> joined_to_previous(const std::vector<Stretch>& stretches, bool backwards) {
  std::vector<Stretch> joined;
  bool after_match = false;
  for (const Stretch& each : stretches) {
    if (each.matched && !after_match && !joined.empty())
      (backwards ? joined.back().begin : joined.back().end) = backwards ? each.begin : each.end;
    else
      joined.push_back(each);
    after_match = each.matched;
  }
  return joined;
}

std::vector<Stretch> runs(const std::vector<Stretch>& stretches) {
  std::vector<Stretch> joined;
  for (const Stretch& each : stretches) {
    if (!joined.empty() && joined.back().matched == each.matched)
      joined.back().end = each.end;
    else
      joined.push_back(each);
  }
  return joined;
}

}  // namespace

Behavior read_behavior(Fields& fields, const std::string& fallback) {
  const std::string name = fallback.empty() ? fields.string("behavior") : fields.string("behavior", fallback);
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  fields.fail("has the behavior " + quote(name) +
              "; known are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void split_word(const Word& word, std::vector<Stretch> stretches, Behavior behavior,
                std::vector<Word>& words) {
  switch (behavior) {
    case Behavior::removed:
      std::erase_if(stretches, [](const Stretch& each) { return each.matched; });
      break;
    case Behavior::isolated:
      break;
    case Behavior::merged_with_previous:
      stretches = joined_to_previous(stretches, /*backwards=*/false);
      break;
    case Behavior::merged_with_next:
      std::reverse(stretches.begin(), stretches.end());
      stretches = joined_to_previous(stretches, /*backwards=*/true);
      std::reverse(stretches.begin(), stretches.end());
      break;
    case Behavior::contiguous:
      stretches = runs(stretches);
      break;
  }
  for (const auto& [begin, end, matched] : stretches)
    if (begin < end) words.push_back({word.text.substr(begin, end - begin), word.first && begin == 0});
}

}  // namespace graft::io
