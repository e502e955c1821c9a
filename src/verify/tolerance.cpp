#include "verify/tolerance.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "capture/ivalue.h"

namespace graft::verify {
namespace {

/// Fractions of the largest value. Deep networks multiply the rounding of one operator; a wrong value is off
/// by far more than these.
double tolerance_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-8;
    case at::kFloat:
      return 1e-3;
    case at::kHalf:
      return 2e-2;
    case at::kBFloat16:
      return 6e-2;
    default:
      return 0;
  }
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

/// Rows are judged by their own largest value as well, a little more loosely: else small numbers could be
/// anything beside large ones.
constexpr double row_factor = 4;
/// So many elements at least make a row: the largest of fewer may be next to nothing by chance.
constexpr int64_t shortest_row = 16;
/// What is below this is nothing, whatever the largest value.
constexpr double smallest = 1e-30;

/// The elements of a row: those of the last dimension, or of as many as it takes.
int64_t row_length(const at::Tensor& tensor) {
  int64_t length = 1;
  for (int64_t d = tensor.dim(); d-- > 0 && length < shortest_row;) length *= tensor.size(d);
  return length;
}

}  // namespace

at::Tensor in_rows(const at::Tensor& tensor) { return tensor.reshape({-1, row_length(tensor)}); }

namespace {

/// As within(), of floats in one pass: a training step has three of them for each parameter. The bits of
/// floats without their signs are in the order of their sizes, with infinity and NaN above all others.
bool floats_within(double tolerance, const float* got, const float* want, int64_t rows, int64_t length) {
  constexpr uint32_t size_bits = 0x7fffffff, infinity = 0x7f800000;
  uint32_t largest_of_all = 0, apart_of_all = 0;
  for (int64_t row = 0; row < rows; ++row, got += length, want += length) {
    uint32_t largest = 0, apart = 0;
    for (int64_t i = 0; i < length; ++i) {
      largest = std::max(largest, std::bit_cast<uint32_t>(want[i]) & size_bits);
      apart = std::max(apart, std::bit_cast<uint32_t>(got[i] - want[i]) & size_bits);
    }
    if (largest >= infinity || apart >= infinity ||
        std::bit_cast<float>(apart) > row_factor * tolerance * std::bit_cast<float>(largest))
      return false;
    largest_of_all = std::max(largest_of_all, largest);
    apart_of_all = std::max(apart_of_all, apart);
  }
  return std::bit_cast<float>(apart_of_all) <= tolerance * std::bit_cast<float>(largest_of_all);
}

/// The usual case, in few passes over the memory: all finite, and near enough.
bool within(double tolerance, const at::Tensor& got, const at::Tensor& want) {
  if (want.scalar_type() == at::kFloat && want.is_cpu() && got.is_cpu() && want.is_contiguous() &&
      got.is_contiguous()) {
    const int64_t length = row_length(want);
    return floats_within(tolerance, got.const_data_ptr<float>(), want.const_data_ptr<float>(),
                         want.numel() / length, length);
  }
  const auto w = in_rows(want);
  const auto largest = w.abs().amax(1).to(at::kDouble),
             apart = (in_rows(got) - w).abs().amax(1).to(at::kDouble);
  return apart.isfinite().logical_and(largest.isfinite()).all().item<bool>() &&
         apart.max().item<double>() <= tolerance * largest.max().item<double>() &&
         apart.le(largest * (row_factor * tolerance)).all().item<bool>();
}

}  // namespace

at::Tensor nonfinite_codes(const at::Tensor& values) {
  return values.masked_fill(values.isfinite(), 0).nan_to_num(/*nan=*/2, /*posinf=*/1, /*neginf=*/-1);
}

std::string difference(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (got.defined() != want.defined())
    return got.defined() ? "compiled code gives a tensor, the eager function gives none"
                         : "compiled code gives no tensor, the eager function gives one";
  if (!got.defined()) return "";
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type() || got.device() != want.device())
    return "compiled code gives " + describe(got) + ", the eager function gives " + describe(want);
  if (got.numel() == 0) return "";
  if (want.is_complex())
    return difference(at::view_as_real(got.detach().resolve_conj()),
                      at::view_as_real(want.detach().resolve_conj()), computed_in);
  if (!want.is_floating_point()) {
    if (at::equal(got.detach(), want.detach())) return "";
    return std::to_string(got.ne(want).sum().item<int64_t>()) + " of " + std::to_string(got.numel()) +
           " values differ";
  }
  const double tolerance = std::max(tolerance_of(want.scalar_type()), tolerance_of(computed_in));
  if (within(tolerance, got.detach(), want.detach())) return "";
  const auto g = in_rows(got.detach().to(at::kDouble)), w = in_rows(want.detach().to(at::kDouble));
  if (!at::equal(nonfinite_codes(w), nonfinite_codes(g))) return "NaN or infinity is in different places";
  const auto odd = w.isfinite().logical_not();
  const auto largest = w.masked_fill(odd, 0).abs().amax(1);
  const auto apart = (g - w).masked_fill(odd, 0).abs().amax(1);
  const double largest_of_all = largest.max().item<double>(), apart_of_all = apart.max().item<double>();
  std::ostringstream text;
  if (apart_of_all > tolerance * largest_of_all + smallest) {
    text << "the values differ by up to " << apart_of_all << ", the largest value is " << largest_of_all;
    return text.str();
  }
  const auto over = apart - largest * (row_factor * tolerance) - smallest;
  const auto row = over.argmax().item<int64_t>();
  if (over[row].item<double>() <= 0) return "";
  text << "the values of row " << row << " differ by up to " << apart[row].item<double>()
       << ", the row's largest value is " << largest[row].item<double>();
  return text.str();
}

double fraction_differing(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (got.numel() == 0) return 0;
  const auto g = got.detach().to(at::kDouble), w = want.detach().to(at::kDouble);
  const double tolerance =
      want.is_floating_point() ? std::max(tolerance_of(want.scalar_type()), tolerance_of(computed_in)) : 0;
  const double limit = tolerance * w.abs().nan_to_num(0, 0, 0).max().item<double>();
  const auto near = (g - w).abs().le(limit).logical_or(g.eq(w)).logical_or(g.isnan().logical_and(w.isnan()));
  return 1 - near.to(at::kDouble).mean().item<double>();
}

at::ScalarType coarsest_dtype(const ir::Graph& graph) {
  auto coarsest = at::kDouble;
  const auto see = [&](const ir::Value& value) {
    const auto dtype = to_torch(value.type().dtype);
    if (tolerance_of(dtype) > tolerance_of(coarsest)) coarsest = dtype;
  };
  for (const auto& input : graph.inputs()) see(*input);
  for (const auto& node : graph.nodes())
    for (const auto& output : node->outputs()) see(*output);
  return coarsest;
}

}  // namespace graft::verify
