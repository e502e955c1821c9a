// What must hold for a compiled program to serve a call: everything its capture took for granted.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

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
  bool holds(const at::Tensor& tensor) const;
  /// What differs, in words; call it where holds() is false.
  std::string difference(const at::Tensor& tensor) const;
  std::string to_string() const;

 private:
  bool defined_ = false, requires_grad_ = false, any_grad_ = false;
  at::ScalarType dtype_ = at::kFloat;
  at::Device device_ = at::kCPU;
  std::vector<int64_t> sizes_, strides_;
};

/// The state of the thread and the process that decides what operators do.
struct Surroundings {
  bool grad, inference, autocast_cpu, autocast_cuda, deterministic;
  at::ScalarType autocast_cpu_dtype, autocast_cuda_dtype, default_dtype;
  bool operator==(const Surroundings&) const = default;

  static Surroundings now();
  std::string difference(const Surroundings& now) const;
};

/// The guards over the arguments of a call.
class ArgumentGuards {
 public:
  ArgumentGuards() = default;
  ArgumentGuards(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed);
  bool hold(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed) const;
  std::string difference(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& fixed) const;
  std::vector<std::string> to_strings() const;

 private:
  std::vector<TensorGuard> tensors_;
  std::vector<int64_t> fixed_;
  std::vector<uint32_t> aliases_;  // for each the first one that shares its memory
};

}  // namespace graft
