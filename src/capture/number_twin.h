// Operators that take a C++ number where another overload takes a tensor: `x * 2.5` is aten::mul.Scalar, and
// gives what aten::mul.Tensor gives with the number as a tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace graft {

struct NumberTwin {
  c10::OperatorHandle op;  ///< that takes a tensor
  size_t argument;         ///< which, of both
};
/// Of an operator that takes a number; nothing for others.
std::optional<NumberTwin> number_twin(const c10::OperatorHandle& op);

/// Whether a tensor is a C++ number on its way into an operator.
bool is_number(const at::Tensor& tensor);
at::Tensor number_tensor(const c10::Scalar& number);
/// Whether a C++ number would be a tensor of the same dtype.
bool is_number_like(const c10::IValue& value, const at::Tensor& number);

}  // namespace graft
