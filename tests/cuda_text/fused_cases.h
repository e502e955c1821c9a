// Functions whose kernels have each layout of src/targets/cuda_code/layout.cpp, with sizes that leave
// something over.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace graft::fused_cases {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Fused {
  std::string name;
  Tensors inputs;
  std::function<Tensors(const Tensors&)> function;
  bool fails = false;      ///< an index is data, and may be out of range
  bool gradients = false;  ///< of all floating inputs, too
};

inline Tensor made(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::isFloatingType(dtype) ? at::randn(sizes).to(dtype) : at::randint(0, 2, sizes).to(dtype);
}

inline Tensors pointwise(const Tensors& t) { return {(t[0] * 2 + t[1]).relu()}; }
inline Tensors softmax(const Tensors& t) { return {t[0].softmax(-1)}; }
inline Tensors layer_norm(const Tensors& t) {
  return {at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2]), t[0].sum(-1)};
}
inline Tensors column_sums(const Tensors& t) { return {(t[0] * t[0]).sum(0), t[0].amax(0)}; }
inline Tensors positions(const Tensors& t) { return {t[0].argmax(-1), t[0].argmin(-1), t[0].amax(-1)}; }
inline Tensors column_positions(const Tensors& t) { return {t[0].argmax(0), t[0].argmin(0)}; }
inline Tensors truths(const Tensors& t) { return {t[0].any(-1), t[0].all(-1), t[0].logical_not()}; }
inline Tensors whole_sums(const Tensors& t) { return {t[0].sum(-1), t[0].amax(-1), t[0] + 3}; }
inline Tensors product_with_vector(const Tensors& t) { return {(t[0] * t[1]).sum(-1)}; }
inline Tensors cross_entropy(const Tensors& t) { return {at::cross_entropy_loss(t[0], t[1])}; }
inline Tensors lookup(const Tensors& t) { return {at::embedding(t[0], t[1]) * 2}; }
inline Tensors lookup_and_norm(const Tensors& t) { return {at::embedding(t[0], t[1]).softmax(-1)}; }
inline Tensors table_gradient(const Tensors& t) {
  return {at::embedding_dense_backward(t[0], t[1], /*num_weights=*/11, /*padding_idx=*/-1,
                                       /*scale_grad_by_freq=*/false)};
}
inline Tensors added_rows(const Tensors& t) { return {t[0].index_add(0, t[1], t[2])}; }
inline Tensors transposed(const Tensors& t) { return {t[0].t().contiguous() + 1, t[0].t().softmax(-1)}; }

inline void add_pointwise(std::vector<Fused>& all, at::ScalarType dtype) {
  const auto add = [&](const std::string& name, at::IntArrayRef sizes) {
    all.push_back({name, {made(sizes, dtype), made(sizes, dtype)}, pointwise});
  };
  add("flat, few", {3, 17});
  add("flat, by 1", {5, 1781});
  // Just enough points for the widest access, and sizes that only allow half of it.
  const int64_t width = 16 / at::elementSize(dtype);
  add("flat, widest", {37, (16384 * width / 37 / width + 1) * width});
  if (width > 2) add("flat, half as wide", {37, (16384 * width / 37 / width + 1) * width + width / 2});
}

inline void add_rows(std::vector<Fused>& all, at::ScalarType dtype) {
  const auto add = [&](const std::string& name, at::IntArrayRef sizes) {
    const auto x = made(sizes, dtype), w = made({sizes.back()}, dtype);
    all.push_back({"softmax, " + name, {x}, softmax});
    all.push_back({"layer norm, " + name, {x, w, w.clone()}, layer_norm});
  };
  add("a row for each thread", {300, 7});
  add("a row for each warp", {19, 40});
  add("a row for each warp, odd", {5, 31});
  add("a row for each warp, nothing left", {9, 256});
  add("a row for each block", {3, 1032});
  add("a row for each block, odd", {2, 1033});
  add("a row for each block, nothing left", {2, 4096});
  if (dtype == at::kFloat || dtype == at::kHalf) {
    add("long rows", {2, 33000});
    add("long rows, odd", {2, 4099});
  }
  // A block for each, were they fewer.
  if (dtype == at::kFloat) all.push_back({"softmax, many rows", {made({2051, 132}, dtype)}, softmax});
}

inline void add_positions(std::vector<Fused>& all, at::ScalarType dtype) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{9, 7}, {9, 100}, {3, 1500}, {2, 4099}})
    all.push_back({"positions", {made(sizes, dtype)}, positions});
  all.push_back({"positions in columns", {made({50, 33}, dtype)}, column_positions});
}

/// Rows that several warps share, several or one to a block, so many that the last block may have some left.
inline void add_many_rows(std::vector<Fused>& all, at::ScalarType dtype) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {512, 256}, {513, 1032}, {516, 2048}, {514, 2056}, {513, 4104}, {515, 517}, {515, 259}})
    all.push_back(
        {"product with a vector", {made(sizes, dtype), made({sizes.back()}, dtype)}, product_with_vector});
  all.push_back({"positions in many rows", {made({515, 1032}, dtype)}, positions});
}

inline void add_columns(std::vector<Fused>& all, at::ScalarType dtype) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{200, 33}, {17, 32}, {16, 65}, {3, 40}, {40, 3}})
    all.push_back({"columns", {made(sizes, dtype)}, column_sums});
  all.push_back({"transposed", {made({31, 64}, dtype)}, transposed});
}

inline void add_gradients(std::vector<Fused>& all, at::ScalarType dtype) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{19, 40}, {40, 17}, {3, 1032}, {2, 4099}}) {
    const auto x = made(sizes, dtype), w = made({sizes.back()}, dtype);
    const auto labels = at::randint(0, sizes.back(), {sizes[0]}, at::kLong);
    all.push_back({"softmax and its gradient", {x}, softmax, false, true});
    all.push_back({"layer norm and its gradient", {x, w, w.clone()}, layer_norm, false, true});
    all.push_back({"cross entropy and its gradient", {x, labels}, cross_entropy, false, true});
  }
}

/// Every layout and every way of waiting once.
inline std::vector<Fused> samples() {
  const auto ids = at::randint(0, 11, {4, 9}, at::kLong);
  return {
      {"flat", {made({37, 1776}, at::kFloat), made({37, 1776}, at::kFloat)}, pointwise},
      {"a row for each warp", {made({19, 40}, at::kFloat)}, softmax},
      {"a row for each block", {made({3, 1032}, at::kFloat)}, softmax},
      // Others reach the barrier of their next reduction before they come to the next row.
      {"one reduction",
       {made({3, 1032}, at::kFloat)},
       [](const Tensors& t) { return Tensors{t[0].sum(-1)}; }},
      {"positions", {made({3, 1500}, at::kFloat)}, positions},
      {"rows for some warps each",
       {made({513, 1032}, at::kFloat), made({1032}, at::kFloat)},
       product_with_vector},
      {"columns", {made({200, 33}, at::kFloat)}, column_sums},
      {"embedding", {made({11, 16}, at::kFloat), ids}, lookup, true},
      {"index_add",
       {made({11, 8}, at::kFloat), at::randint(0, 11, {6}, at::kLong), made({6, 8}, at::kFloat)},
       added_rows},
  };
}

inline std::vector<Fused> table() {
  std::vector<Fused> all;
  at::manual_seed(2);
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    add_pointwise(all, dtype);
    add_rows(all, dtype);
    add_columns(all, dtype);
    add_positions(all, dtype);
    if (dtype == at::kFloat || dtype == at::kHalf) add_many_rows(all, dtype);
    if (dtype == at::kFloat || dtype == at::kBFloat16) add_gradients(all, dtype);
    all.push_back(
        {"cross entropy", {made({9, 50}, dtype), at::randint(0, 50, {9}, at::kLong)}, cross_entropy});
    all.push_back({"cross entropy, long",
                   {made({3, 1001}, dtype), at::randint(0, 1001, {3}, at::kLong)},
                   cross_entropy});
  }
  for (const auto dtype : {at::kLong, at::kInt, at::kByte}) {
    add_positions(all, dtype);
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 7}, {5, 100}, {2, 1500}})
      all.push_back({"whole numbers", {made(sizes, dtype)}, whole_sums});
  }
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{5, 7}, {5, 100}, {2, 1500}, {2, 9001}})
    all.push_back({"flags", {made(sizes, at::kBool)}, truths});
  const auto ids = at::randint(0, 11, {4, 9}, at::kLong);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    all.push_back({"embedding", {made({11, 16}, dtype), ids}, lookup, true});
    all.push_back({"embedding, wide", {made({11, 2048}, dtype), ids}, lookup, true});
    all.push_back({"embedding and softmax", {made({11, 40}, dtype), ids}, lookup_and_norm, true});
    all.push_back({"gradient of an embedding", {made({4, 9, 8}, dtype), ids}, table_gradient});
    all.push_back({"index_add",
                   {made({11, 8}, dtype), at::randint(0, 11, {6}, at::kLong), made({6, 8}, dtype)},
                   added_rows});
  }
  return all;
}

}  // namespace graft::fused_cases
