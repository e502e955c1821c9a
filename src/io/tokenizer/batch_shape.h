// Cutting and padding encodings to a common length, with the Rust library's rules.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graft/tokenizer.h"

namespace graft::io {

enum class Side { left, right };

struct Truncation {
  enum class Strategy { longest_first, only_first, only_second };
  Side side = Side::right;  ///< the side on which tokens are dropped
  Strategy strategy = Strategy::longest_first;
};

struct Padding {
  Side side = Side::right;
  std::optional<int64_t> id;
  int64_t type_id = 0;
};

/// Cuts so that both together have at most `max_length` tokens (special tokens are not among them yet).
/// Throws UsageError when the strategy may not touch what would have to go.
void truncate(std::vector<int64_t>& text, std::vector<int64_t>* pair, int64_t max_length,
              const Truncation& how);

/// REQUIRES: how.id is set.
void pad(Tokenizer::Encoding& encoding, int64_t length, const Padding& how);

}  // namespace graft::io
