// What a recorder asks about an operator.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>

namespace graft {

/// Every tensor in an argument or a result, in lists too, undefined ones left out.
template <class F>
void each_tensor(const c10::IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector())
      if (t.defined()) f(t);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) each_tensor(item, f);
  }
}

bool reads_on_host(const c10::OperatorHandle& op);
bool draws_numbers(const c10::OperatorHandle& op);
/// With these arguments: attention without dropout does not.
bool draws_numbers(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
/// promote_types and the like.
bool gives_no_tensor(const c10::OperatorHandle& op);
/// A call that computes nothing: it is about types, or about sizes alone (the meta device), and not part of a
/// program.
bool computes_nothing(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
/// Beside tensors it gives numbers that follow from the sizes of its arguments: a graph holds them as what
/// they are where they are used.
bool gives_sizes_too(const c10::OperatorHandle& op);
/// With these arguments. Indexing with numbers gives a known shape; only masks make it depend on the data.
bool shape_depends_on_data(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
/// Makes a tensor and leaves its memory as it is.
bool makes_empty(const c10::OperatorHandle& op);
/// Of an operator in place: what was there before does not matter.
bool overwrites(const c10::OperatorHandle& op);
/// Operators in place whose twins give a tensor of the same dtype if all they are given have it.
bool keeps_dtype(const c10::OperatorHandle& op);

}  // namespace graft
