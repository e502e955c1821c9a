// What must hold for a compiled program to serve a call: everything its capture took for granted.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

namespace graft {

/// What a program takes for granted of one tensor.
class TensorGuard {
 public:
  TensorGuard() = default;
  /// `any_grad`: requires_grad may change.
  explicit TensorGuard(const at::Tensor& tensor, bool any_grad = false);
  /// Also where the tensor begins in its storage.
  void guard_offset(const at::Tensor& tensor);
  bool holds(const at::Tensor& tensor) const;
  /// Whether it requires a gradient where the guarded one did not, or the other way round, or is a leaf.
  bool has_other_flags(const at::Tensor& tensor) const;
  /// What differs, in words; call it where holds() is false.
  std::string difference(const at::Tensor& tensor) const;
  std::string to_string() const;

 private:
  bool defined_ = false, requires_grad_ = false, any_grad_ = false, leaf_ = true, inference_ = false;
  bool conj_ = false, neg_ = false;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  at::Layout layout_ = at::kStrided;
  std::vector<int64_t> sizes_, strides_;
  std::optional<int64_t> offset_;
};

/// The state of the thread and the process that decides what operators do.
struct GlobalState {
  struct Autocast {
    bool enabled = false;
    at::ScalarType dtype = at::kFloat;
    bool operator==(const Autocast&) const = default;
  };
  static constexpr size_t max_targets = 4;

  bool grad, inference, deterministic, fill_empty;
  bool flash_attention, memory_efficient_attention, math_attention;
  at::ScalarType default_dtype;
  std::array<Autocast, max_targets> autocast;  ///< by the device of each target, in the order of their list
  bool operator==(const GlobalState&) const = default;

  static GlobalState now();
  std::string difference(const GlobalState& now) const;
};

/// Of a program that writes into some of its inputs: no other input lies in the same memory, else a write
/// would have to be seen there. Inputs that are other parts of a written one's storage are those that were so
/// at capture: they share its version, by which autograd tells which views have the history they were made
/// with.
class MemoryGuard {
 public:
  /// By number among the inputs: those that are written to, and those that differ from call to call. `inputs`
  /// as they were at capture.
  MemoryGuard(std::vector<size_t> written, std::vector<size_t> arguments,
              const std::vector<at::Tensor>& inputs);
  bool holds(const std::vector<at::Tensor>& inputs) const;

 private:
  bool holds_for(size_t written, size_t other, const std::vector<at::Tensor>& inputs) const;

  std::vector<size_t> written_, arguments_;
  std::vector<std::pair<size_t, size_t>> in_one_storage_;  ///< a written one and another, sorted
  /// What was in these places when all inputs were last compared, as one number: parameters stay where they
  /// are, and comparing hundreds with each other takes longer than a small call.
  mutable std::atomic<uint64_t> compared_{0};
};

/// The guards over the arguments of a call.
class ArgumentGuards {
 public:
  ArgumentGuards() = default;
  /// `numbers`: which of `fixed` are numbers.
  ArgumentGuards(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed,
                 std::vector<size_t> numbers = {});
  void guard_offsets(const std::vector<at::Tensor>& tensors);
  /// `any_numbers`: the numbers may be other ones.
  bool hold(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed,
            bool any_numbers = false) const;
  /// Whether the numbers are other ones. Where the guards hold but for these.
  bool has_other_numbers(const std::vector<int64_t>& fixed) const { return fixed != fixed_; }
  std::string difference(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed,
                         bool any_numbers = false) const;
  std::vector<std::string> to_strings() const;

 private:
  bool is_same(const std::vector<int64_t>& fixed, bool any_numbers) const;

  std::vector<TensorGuard> tensors_;
  std::vector<int64_t> fixed_;
  std::vector<size_t> numbers_;    // places in `fixed_`, sorted
  std::vector<uint32_t> aliases_;  // for each the first one that shares its memory
  std::vector<uint32_t> same_;     // for each the first one that is the very same tensor
};

}  // namespace graft
