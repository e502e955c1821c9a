#include "capture/op_facts.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <set>
#include <string>

namespace graft {

bool reads_on_host(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::data_dependent_output); }
bool draws_numbers(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::nondeterministic_seeded); }

bool draws_numbers(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  if (!draws_numbers(op)) return false;
  const auto place = op.schema().argumentIndexWithName("dropout_p");
  return !place || arguments[static_cast<size_t>(*place)].toDouble() != 0;
}

bool gives_no_tensor(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::none_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
    return r.type()->isSubtypeOf(*c10::TensorType::get()) ||
           r.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

bool computes_nothing(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  if (gives_no_tensor(op) && !reads_on_host(op)) return true;
  return std::ranges::any_of(arguments, [](const c10::IValue& value) {
    bool meta = value.isDevice() && value.toDevice().is_meta();
    each_tensor(value, [&](const at::Tensor& t) { meta |= t.is_meta(); });
    return meta;
  });
}

bool gives_sizes_too(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::_scaled_dot_product_flash_attention",
                                              "aten::_scaled_dot_product_cudnn_attention",
                                              "aten::_scaled_dot_product_fused_attention_overrideable",
                                              "aten::_flash_attention_forward",
                                              "aten::_cudnn_attention_forward",
                                              "aten::_efficient_attention_forward"};
  return names.contains(op.schema().name());
}

bool shape_depends_on_data(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  const auto& name = op.schema().name();
  if (name == "aten::one_hot") return stack.back().toInt() <= 0;
  if (name != "aten::index" && name != "aten::_unsafe_index") return true;
  bool mask = false;
  each_tensor(stack.back(), [&](const at::Tensor& t) {
    mask |= t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
  });
  return mask;
}

bool makes_empty(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {
      "aten::empty",          "aten::empty_like",        "aten::empty_strided",
      "aten::new_empty",      "aten::new_empty_strided", "aten::empty_permuted",
      "aten::empty_quantized"};
  return names.contains(op.schema().name());
}

bool overwrites(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::copy_", "aten::fill_", "aten::zero_"};
  return names.contains(op.schema().name()) || draws_numbers(op);
}

bool keeps_dtype(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {"aten::add_",       "aten::sub_",     "aten::mul_",
                                              "aten::addcmul_",   "aten::addcdiv_", "aten::lerp_",
                                              "aten::index_copy_"};
  return names.contains(op.schema().name());
}

}  // namespace graft
