#include "io/tokenizer/batch_shape.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::io {
namespace {

int64_t length_of(const std::vector<int64_t>& ids) { return static_cast<int64_t>(ids.size()); }

void cut(std::vector<int64_t>& ids, int64_t length, Side side) {
  const int64_t extra = length_of(ids) - length;
  if (extra <= 0) return;
  if (side == Side::left)
    ids.erase(ids.begin(), ids.begin() + extra);
  else
    ids.resize(static_cast<size_t>(length));
}

// The longer of the two is cut down to the shorter, then both alike; an odd token goes to the longer one.
void cut_longest_first(std::vector<int64_t>& text, std::vector<int64_t>& pair, int64_t max_length,
                       Side side) {
  const bool text_is_longer = text.size() > pair.size();
  int64_t shorter = std::min(length_of(text), length_of(pair));
  int64_t longer = shorter > max_length ? shorter : std::max(shorter, max_length - shorter);
  if (shorter + longer > max_length) {
    shorter = max_length / 2;
    longer = shorter + max_length % 2;
  }
  cut(text, text_is_longer ? longer : shorter, side);
  cut(pair, text_is_longer ? shorter : longer, side);
}

}  // namespace

void truncate(std::vector<int64_t>& text, std::vector<int64_t>* pair, int64_t max_length,
              const Truncation& how) {
  const int64_t extra = length_of(text) + (pair ? length_of(*pair) : 0) - max_length;
  if (max_length == 0) {
    text.clear();
    if (pair) pair->clear();
    return;
  }
  if (extra <= 0) return;
  if (how.strategy == Truncation::Strategy::longest_first) {
    if (pair)
      cut_longest_first(text, *pair, max_length, how.side);
    else
      cut(text, max_length, how.side);
    return;
  }
  std::vector<int64_t>* target = how.strategy == Truncation::Strategy::only_first ? &text : pair;
  if (!target)
    throw UsageError(
        "[tokenizer] this tokenizer truncates only the pair, and a text without a pair is too long");
  if (length_of(*target) <= extra)
    throw UsageError(
        "[tokenizer] the one sequence that this tokenizer truncates is too short to make room for " +
        std::to_string(max_length) + " tokens");
  cut(*target, length_of(*target) - extra, how.side);
}

void pad(Tokenizer::Encoding& encoding, int64_t length, const Padding& how) {
  const int64_t missing = length - length_of(encoding.ids);
  if (missing <= 0) return;
  const auto fill = [&](std::vector<int64_t>& values, int64_t value) {
    values.insert(how.side == Side::left ? values.begin() : values.end(), static_cast<size_t>(missing),
                  value);
  };
  fill(encoding.ids, *how.id);
  fill(encoding.type_ids, how.type_id);
  fill(encoding.attention_mask, 0);
}

}  // namespace graft::io
