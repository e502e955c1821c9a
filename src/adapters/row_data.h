// What adapters are told of a call's rows, beside which of them serves which row.
#pragma once
#include "graft/peft.h"

namespace graft::adapters {

/// An aLoRA's slot, and the tokens from which on it works.
struct Invocation {
  size_t slot;
  std::vector<int64_t> tokens;
};

/// On how many of the last tokens of each row an adapter with these invocation tokens works: from the start
/// of their last occurrence, 0 without one. [batch]
at::Tensor tokens_since(const at::Tensor& input_ids, const std::vector<int64_t>& invocation);

/// `invocations` are those of all slots that a program has.
RowData row_data(const ModelInputs& inputs, const std::vector<Invocation>& invocations, size_t slots);

/// The inputs that are the model's.
ModelInputs without_row_data(const ModelInputs& inputs);

}  // namespace graft::adapters
