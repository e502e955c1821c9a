#include "capture/number_twin.h"

#include <ATen/ScalarOps.h>

#include <string>
#include <unordered_map>

namespace graft {
namespace {

/// The argument that is a number, by the operator's name, which has an overload `.Scalar` and one `.Tensor`.
const std::unordered_map<std::string, size_t>& operators() {
  static const auto all = [] {
    std::unordered_map<std::string, size_t> arguments;
    for (const char* name :
         {"add", "sub", "mul", "div", "rsub", "eq", "ne", "lt", "le", "gt", "ge", "remainder"})
      arguments.emplace(std::string("aten::") + name, 1);
    for (const char* name : {"add_", "sub_", "mul_", "div_", "remainder_"})
      arguments.emplace(std::string("aten::") + name, 1);
    arguments.emplace("aten::masked_fill", 2);
    arguments.emplace("aten::masked_fill_", 2);
    return arguments;
  }();
  return all;
}

}  // namespace

std::optional<NumberTwin> number_twin(const c10::OperatorHandle& op) {
  if (op.schema().overload_name() != "Scalar") return std::nullopt;
  const auto found = operators().find(op.schema().name());
  if (found == operators().end()) return std::nullopt;
  const auto twin = c10::Dispatcher::singleton().findSchema({found->first, "Tensor"});
  if (!twin) return std::nullopt;
  return NumberTwin{*twin, found->second};
}

bool is_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu();
}

at::Tensor number_tensor(const c10::Scalar& number) {
  auto tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

bool is_number_like(const c10::IValue& value, const at::Tensor& number) {
  switch (number.scalar_type()) {
    case at::kDouble:
      return value.isDouble();
    case at::kLong:
      return value.isInt();
    default:
      return false;
  }
}

}  // namespace graft
