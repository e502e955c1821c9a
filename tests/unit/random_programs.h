// What random programs over tensors are made with: numbers from a seed and from the environment, and
// arguments that operators may take.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace graft::random_programs {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// From low to high, both among the possible.
  int64_t number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  size_t index(size_t count) { return static_cast<size_t>(number(0, static_cast<int64_t>(count) - 1)); }
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(engine_) < p; }
  template <class T>
  const T& among(const std::vector<T>& all) {
    return all[index(all.size())];
  }

 private:
  std::mt19937_64 engine_;
};

inline uint64_t from_environment(const char* name, uint64_t standard) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : standard;
}

/// Torch appends a backtrace of its own after it.
inline std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Numbers for an operator over these tensors; eager decides whether they are valid.
inline int64_t any_dim(Random& r, const Tensor& t) { return r.number(0, std::max<int64_t>(t.dim() - 1, 0)); }
inline Ints one_dim(Random& r, const Tensors& t) { return {any_dim(r, t[0])}; }
inline Ints dim_and_flag(Random& r, const Tensors& t) { return {any_dim(r, t[0]), r.number(0, 1)}; }
inline Ints two_dims(Random& r, const Tensors& t) { return {any_dim(r, t[0]), any_dim(r, t[0])}; }
inline Ints slice_of(Random& r, const Tensors& t) {
  const auto d = any_dim(r, t[0]);
  const auto size = t[0].dim() ? t[0].size(d) : 1;
  const auto start = r.number(0, size);
  return {d, start, r.number(start, size + 1), r.number(1, 3)};
}
inline Ints a_row(Random& r, const Tensors& t) {
  const auto d = any_dim(r, t[0]);
  return {d, t[0].dim() ? r.number(-t[0].size(d), t[0].size(d) - 1) : 0};
}
inline Ints one_to_three(Random& r, const Tensors&) { return {r.number(1, 3)}; }
inline at::ScalarType dtype_of(int64_t i) {
  constexpr at::ScalarType all[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                    at::kLong,   at::kInt,   at::kChar, at::kShort};
  return all[i];
}
inline Ints a_dtype(Random& r, const Tensors&) { return {r.number(0, 7)}; }

}  // namespace graft::random_programs
