#include "compiler/guards.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <sstream>

#include "capture/ivalue.h"
#include "targets/targets.h"

namespace graft {
namespace {

template <class T>
std::string changed(const std::string& what, const T& was, const T& is) {
  std::ostringstream text;
  text << what << " is " << is << ", the program was compiled for " << was;
  return text.str();
}

at::IntArrayRef view(const std::vector<int64_t>& v) { return v; }

/// Of tensors one after the other, the first that shares memory with the last. Pair by pair: arguments are
/// few.
class Sharing {
 public:
  uint32_t next(const at::Tensor& tensor) {
    const auto* storage = storage_of(tensor);
    const auto place = static_cast<uint32_t>(storages_.size());
    storages_.push_back(storage);
    if (!storage) return place;
    return static_cast<uint32_t>(std::ranges::find(storages_, storage) - storages_.begin());
  }

 private:
  c10::SmallVector<const c10::StorageImpl*, 16> storages_;  // no memory of its own in most calls
};

uint32_t first_same(const std::vector<at::Tensor>& tensors, size_t i) {
  size_t k = 0;
  while (k < i && !tensors[k].is_same(tensors[i])) ++k;
  return static_cast<uint32_t>(k);
}

}  // namespace

TensorGuard::TensorGuard(const at::Tensor& tensor, bool any_grad)
    : defined_(tensor.defined()), any_grad_(any_grad) {
  if (!defined_) return;
  requires_grad_ = tensor.requires_grad();
  leaf_ = tensor.is_leaf();
  inference_ = tensor.is_inference();
  conj_ = tensor.is_conj();
  neg_ = tensor.is_neg();
  dtype_ = tensor.scalar_type();
  device_ = tensor.device();
  sizes_ = tensor.sizes().vec();
  layout_ = tensor.layout();
  if (layout_ == at::kStrided) strides_ = tensor.strides().vec();
}

void TensorGuard::guard_offset(const at::Tensor& tensor) {
  if (tensor.defined()) offset_ = tensor.storage_offset();
}

bool TensorGuard::holds(const at::Tensor& tensor) const {
  if (!tensor.defined() || !defined_) return tensor.defined() == defined_;
  return tensor.sizes() == view(sizes_) && tensor.layout() == layout_ &&
         (layout_ != at::kStrided || tensor.strides() == view(strides_)) && tensor.scalar_type() == dtype_ &&
         tensor.device() == device_ && (any_grad_ || !has_other_flags(tensor)) &&
         tensor.is_inference() == inference_ && tensor.is_conj() == conj_ && tensor.is_neg() == neg_ &&
         (!offset_ || tensor.storage_offset() == *offset_) && !tensor._fw_grad(/*level=*/0).defined();
}

bool TensorGuard::has_other_flags(const at::Tensor& tensor) const {
  return tensor.defined() && defined_ &&
         (tensor.requires_grad() != requires_grad_ || tensor.is_leaf() != leaf_);
}

std::string TensorGuard::difference(const at::Tensor& tensor) const {
  if (tensor.defined() != defined_)
    return defined_ ? "no tensor is given, the program was compiled for one"
                    : "a tensor is given, the program was compiled for none";
  if (tensor.sizes() != view(sizes_)) return changed("shape", view(sizes_), tensor.sizes());
  if (tensor.layout() != layout_) return changed("layout", layout_, tensor.layout());
  if (layout_ == at::kStrided && tensor.strides() != view(strides_))
    return changed("strides", view(strides_), tensor.strides());
  if (tensor.scalar_type() != dtype_) return changed("dtype", dtype_, tensor.scalar_type());
  if (tensor.device() != device_) return changed("device", device_, tensor.device());
  if (tensor.is_inference() != inference_) return changed("is_inference", inference_, tensor.is_inference());
  if (tensor.is_conj() != conj_) return changed("the conjugate bit", conj_, tensor.is_conj());
  if (tensor.is_neg() != neg_) return changed("the negative bit", neg_, tensor.is_neg());
  if (offset_ && tensor.storage_offset() != *offset_)
    return changed("the offset in its storage", *offset_, tensor.storage_offset());
  if (tensor._fw_grad(/*level=*/0).defined())
    return "it has a forward-mode tangent, and programs are compiled for none";
  if (tensor.requires_grad() == requires_grad_) return changed("is_leaf", leaf_, tensor.is_leaf());
  return changed("requires_grad", requires_grad_, tensor.requires_grad());
}

std::string TensorGuard::to_string() const {
  if (!defined_) return "not given";
  std::ostringstream text;
  text << dtype_ << view(sizes_) << " strides " << view(strides_) << " on " << device_
       << (any_grad_        ? ""
           : requires_grad_ ? ", requires grad"
                            : "");
  return text.str();
}

namespace {

const std::vector<at::DeviceType>& target_devices() {
  static const auto devices = [] {
    std::vector<at::DeviceType> all;
    for (const auto* target : targets()) all.push_back(at::Device(std::string(target->name())).type());
    TORCH_INTERNAL_ASSERT(all.size() <= GlobalState::max_targets);
    return all;
  }();
  return devices;
}

std::array<GlobalState::Autocast, GlobalState::max_targets> autocast_now() {
  std::array<GlobalState::Autocast, GlobalState::max_targets> states;
  for (size_t i = 0; i < target_devices().size(); ++i)
    states[i] = {at::autocast::is_autocast_enabled(target_devices()[i]),
                 at::autocast::get_autocast_dtype(target_devices()[i])};
  return states;
}

}  // namespace

GlobalState GlobalState::now() {
  const auto& context = at::globalContext();
  return {.grad = at::GradMode::is_enabled(),
          .inference = c10::InferenceMode::is_enabled(),
          .deterministic = context.deterministicAlgorithms(),
          .fill_empty = context.deterministicFillUninitializedMemory(),
          .flash_attention = context.userEnabledFlashSDP(),
          .memory_efficient_attention = context.userEnabledMemEfficientSDP(),
          .math_attention = context.userEnabledMathSDP(),
          .default_dtype = c10::get_default_dtype_as_scalartype(),
          .autocast = autocast_now()};
}

std::string GlobalState::difference(const GlobalState& now) const {
  if (grad != now.grad) return changed("grad mode", grad, now.grad);
  if (inference != now.inference) return changed("inference mode", inference, now.inference);
  for (size_t i = 0; i < target_devices().size(); ++i) {
    const auto device = c10::DeviceTypeName(target_devices()[i], /*lower_case=*/true);
    if (autocast[i].enabled != now.autocast[i].enabled)
      return changed("autocast on " + device, autocast[i].enabled, now.autocast[i].enabled);
    if (autocast[i].dtype != now.autocast[i].dtype)
      return changed("autocast's dtype on " + device, autocast[i].dtype, now.autocast[i].dtype);
  }
  if (deterministic != now.deterministic)
    return changed("deterministic algorithms", deterministic, now.deterministic);
  if (fill_empty != now.fill_empty) return changed("filling of empty tensors", fill_empty, now.fill_empty);
  if (flash_attention != now.flash_attention ||
      memory_efficient_attention != now.memory_efficient_attention || math_attention != now.math_attention)
    return "the kinds of attention that may be used are not those the program was compiled for";
  return changed("the default dtype", default_dtype, now.default_dtype);
}

namespace {

bool share_storage(const at::Tensor& a, const at::Tensor& b) {
  return storage_of(a) && storage_of(a) == storage_of(b);
}

}  // namespace

MemoryGuard::MemoryGuard(std::vector<size_t> written, std::vector<size_t> arguments,
                         const std::vector<at::Tensor>& inputs)
    : written_(std::move(written)), arguments_(std::move(arguments)) {
  for (const size_t a : written_)
    for (size_t b = 0; b < inputs.size(); ++b)
      if (a != b && share_storage(inputs[a], inputs[b])) in_one_storage_.emplace_back(a, b);
  std::ranges::sort(in_one_storage_);
}

bool MemoryGuard::holds_for(size_t written, size_t other, const std::vector<at::Tensor>& inputs) const {
  if (written == other) return true;
  const auto &a = inputs[written], &b = inputs[other];
  const bool shared = share_storage(a, b);
  if (!shared && in_one_storage_.empty()) return true;
  return shared == std::ranges::binary_search(in_one_storage_, std::pair(written, other)) &&
         (!shared || !bytes_of(a).meets(bytes_of(b)));
}

bool MemoryGuard::holds(const std::vector<at::Tensor>& inputs) const {
  if (written_.empty()) return true;
  for (const size_t argument : arguments_) {
    const bool is_written = std::find(written_.begin(), written_.end(), argument) != written_.end();
    if (is_written) {
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!holds_for(argument, i, inputs)) return false;
    } else {
      for (const size_t i : written_)
        if (!holds_for(i, argument, inputs)) return false;
    }
  }
  uint64_t seen = 0x9e3779b97f4a7c15;
  for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
    if (k < arguments_.size() && arguments_[k] == i) {
      ++k;
      continue;
    }
    if (!inputs[i].defined()) continue;
    seen = (seen ^ reinterpret_cast<uintptr_t>(storage_of(inputs[i]))) * 0xff51afd7ed558ccd;
    seen = (seen ^ static_cast<uint64_t>(inputs[i].storage_offset())) * 0xc4ceb9fe1a85ec53;
    seen ^= seen >> 29;
  }
  if (compared_.load(std::memory_order_relaxed) == seen) return true;
  for (const size_t a : written_)
    for (size_t b = 0; b < inputs.size(); ++b)
      if (!holds_for(a, b, inputs)) return false;
  compared_.store(seen, std::memory_order_relaxed);
  return true;
}

ArgumentGuards::ArgumentGuards(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed,
                               std::vector<size_t> numbers)
    : fixed_(fixed), numbers_(std::move(numbers)) {
  Sharing sharing;
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors_.emplace_back(tensors[i]);
    aliases_.push_back(sharing.next(tensors[i]));
    same_.push_back(first_same(tensors, i));
  }
}

void ArgumentGuards::guard_offsets(const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) tensors_[i].guard_offset(tensors[i]);
}

bool ArgumentGuards::is_same(const std::vector<int64_t>& fixed, bool any_numbers) const {
  if (!any_numbers) return fixed == fixed_;
  if (fixed.size() != fixed_.size()) return false;
  auto number = numbers_.begin();
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (number != numbers_.end() && *number == i)
      ++number;
    else if (fixed[i] != fixed_[i])
      return false;
  }
  return true;
}

bool ArgumentGuards::hold(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed,
                          bool any_numbers) const {
  if (tensors.size() != tensors_.size() || !is_same(fixed, any_numbers)) return false;
  Sharing sharing;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors_[i].holds(tensors[i]) || sharing.next(tensors[i]) != aliases_[i] ||
        first_same(tensors, i) != same_[i])
      return false;
  return true;
}

std::string ArgumentGuards::difference(const std::vector<at::Tensor>& tensors,
                                       const std::vector<int64_t>& fixed, bool any_numbers) const {
  if (tensors.size() != tensors_.size())
    return changed("the number of tensors", tensors_.size(), tensors.size());
  if (!is_same(fixed, any_numbers))
    return "an argument that is not a tensor (a number, a string, a length) has another value";
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tensors_[i].holds(tensors[i]))
      return "argument " + std::to_string(i) + ": " + tensors_[i].difference(tensors[i]);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (first_same(tensors, i) != same_[i])
      return "which arguments are the same tensor has changed since the program was compiled";
  return "which arguments share memory has changed since the program was compiled";
}

std::vector<std::string> ArgumentGuards::to_strings() const {
  std::vector<std::string> lines;
  lines.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i)
    lines.push_back("argument " + std::to_string(i) + ": " + tensors_[i].to_string());
  return lines;
}

}  // namespace graft
