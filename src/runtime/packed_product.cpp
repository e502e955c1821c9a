#include "runtime/packed_product.h"

#include <ATen/ATen.h>

namespace graft {

std::shared_ptr<const PackedProduct::Packed> PackedProduct::packed_for(const at::Tensor& weight) {
  // What is in the weight is looked at without the lock: other threads do so at the same time.
  const auto latest = [&] {
    const std::lock_guard<std::mutex> lock(guard_);
    return packed_;
  };
  const auto set = [&](std::shared_ptr<const Packed> packed) {
    const std::lock_guard<std::mutex> lock(guard_);
    packed_ = std::move(packed);
  };
  if (!runtime::TensorStamp::can_be_stamped(weight)) return nullptr;
  if (auto known = latest(); known && known->stamp.matches(weight)) return known;
  const std::lock_guard<std::mutex> lock(packing_);
  if (auto known = latest()) {
    if (known->stamp.matches(weight)) return known;  // another thread has laid it out
    if (known->stamp.is_in_training(weight)) {       // it would be laid out in every call
      if (known->tensor.defined()) set(std::make_shared<Packed>(Packed{{}, known->stamp}));
      return nullptr;
    }
  }
  auto made = std::make_shared<Packed>(Packed{{}, runtime::TensorStamp(weight, effort_)});
  made->tensor = pack(weight.detach());
  // Somebody may have written into it meanwhile: what was read is neither the old nor the new.
  set(made->stamp.matches(weight) || made->stamp.is_in_training(weight) ? made : nullptr);
  return made;
}

void PackedProduct::forget() {
  const std::lock_guard<std::mutex> lock(guard_);
  packed_ = nullptr;
}

at::Tensor PackedProduct::run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              const Packed* packed) const {
  return packed ? multiply(x, packed->tensor, weight, bias, epilogue_) : run_plain(x, weight, bias);
}

at::Tensor PackedProduct::run_plain(const at::Tensor& x, const at::Tensor& weight,
                                    const at::Tensor& bias) const {
  return apply(epilogue_, at::linear(x, weight, bias));
}

}  // namespace graft
