#include "verify/tolerance.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <set>
#include <sstream>

#include "capture/ivalue.h"

namespace graft {
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
  text << tensor.scalar_type() << tensor.sizes();
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

/// By rows, in memory of its own if need be.
at::Tensor in_rows(const at::Tensor& tensor) { return tensor.reshape({-1, row_length(tensor)}); }

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

/// 0 where it is finite; else what stands there.
at::Tensor odd_ones(const at::Tensor& values) {
  return values.masked_fill(values.isfinite(), 0).nan_to_num(/*nan=*/2, /*posinf=*/1, /*neginf=*/-1);
}

}  // namespace

std::string difference(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (got.defined() != want.defined()) return got.defined() ? "is there, should not be" : "is missing";
  if (!got.defined()) return "";
  if (got.sizes() != want.sizes() || got.scalar_type() != want.scalar_type() || got.device() != want.device())
    return "is " + describe(got) + ", should be " + describe(want);
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
  if (!at::equal(odd_ones(w), odd_ones(g))) return "NaN or infinity stands in other places";
  const auto odd = w.isfinite().logical_not();
  const auto largest = w.masked_fill(odd, 0).abs().amax(1);
  const auto apart = (g - w).masked_fill(odd, 0).abs().amax(1);
  const double largest_of_all = largest.max().item<double>(), apart_of_all = apart.max().item<double>();
  std::ostringstream text;
  text << "differs by ";
  if (apart_of_all > tolerance * largest_of_all + smallest) {
    text << apart_of_all << " where the largest value is " << largest_of_all;
    return text.str();
  }
  const auto over = apart - largest * (row_factor * tolerance) - smallest;
  const auto row = over.argmax().item<int64_t>();
  if (over[row].item<double>() <= 0) return "";
  text << apart[row].item<double>() << " in row " << row << ", where the largest value is "
       << largest[row].item<double>();
  return text.str();
}

double share_apart(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (got.numel() == 0) return 0;
  const auto g = got.detach().to(at::kDouble), w = want.detach().to(at::kDouble);
  const double tolerance =
      want.is_floating_point() ? std::max(tolerance_of(want.scalar_type()), tolerance_of(computed_in)) : 0;
  const double limit = tolerance * w.abs().nan_to_num(0, 0, 0).max().item<double>();
  const auto near = (g - w).abs().le(limit).logical_or(g.eq(w)).logical_or(g.isnan().logical_and(w.isnan()));
  return 1 - near.to(at::kDouble).mean().item<double>();
}

at::ScalarType coarsest_of(const ir::Graph& graph) {
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

namespace {

/// Whole numbers and flags: each is one that rounding may lead to.
bool is_one_of(const at::Tensor& got, const at::Tensor& want, const at::Tensor& precise,
               const std::vector<at::Tensor>& perturbed) {
  auto explained = got.eq(want).logical_or(got.eq(precise));
  for (const auto& other : perturbed) explained = explained.logical_or(got.eq(other));
  return explained.all().item<bool>();
}

}  // namespace

bool is_noise(const at::Tensor& got, const at::Tensor& want, const at::Tensor& plain,
              const at::Tensor& precise, const std::vector<at::Tensor>& perturbed, at::ScalarType computed_in,
              bool may_overflow) {
  const at::NoGradGuard no_grad;
  if (!precise.defined() || !plain.defined() || got.sizes() != precise.sizes() ||
      want.sizes() != precise.sizes())
    return false;
  if (!want.is_floating_point())
    return share_apart(want, plain, computed_in) <= few_at_a_kink && is_one_of(got, want, precise, perturbed);
  // Another order of operations may round worse by a small factor; a wrong value is off by thousands. Not so
  // in half precision, where a rounding is near a hundredth of a value: but there kernels round less often
  // than eager code, not more.
  const bool half = at::isReducedFloatingType(computed_in);
  const double same_order = 4, other_order = half ? 2 : 32, unit = half ? 0x1p-8 : 0x1p-23;
  // Where one of them is infinite or not a number, `got` is as the exact result would be in its dtype, or as
  // eager's; such places are compared no further.
  const auto exact = odd_ones(precise.to(want.scalar_type()).to(at::kDouble));
  const auto mine = odd_ones(got.detach().to(at::kDouble)), theirs = odd_ones(want.detach().to(at::kDouble));
  if (!may_overflow && !mine.eq(exact).logical_or(mine.eq(theirs)).all().item<bool>()) return false;
  const auto odd = mine.ne(0).logical_or(theirs.ne(0)).logical_or(exact.ne(0));
  const auto values = [&](const at::Tensor& t) {
    return in_rows(t.detach().to(at::kDouble).masked_fill(odd, 0));
  };
  const auto p = values(precise);
  const auto from_precise = [&](const at::Tensor& t) {
    return (values(t) - p).abs().nan_to_num(0, 0, 0).amax(1);
  };
  auto rounding = from_precise(plain);
  for (const auto& other : perturbed) rounding = at::maximum(rounding, from_precise(other));
  const double rounding_of_all = rounding.max().item<double>();
  if ((values(want) - values(plain)).abs().nan_to_num(0, 0, 0).max().item<double>() >
      same_order * rounding_of_all)
    return false;
  const auto apart = from_precise(got);
  const auto allowed = at::maximum(rounding, p.abs().amax(1) * unit) * (2 * other_order);
  return apart.max().item<double>() <= other_order * rounding_of_all && apart.le(allowed).all().item<bool>();
}

RandomState::RandomState(const std::vector<at::Generator>& generators,
                         const std::vector<at::Tensor>& inputs) {
  const auto save = [&](at::Generator generator) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    saved_.push_back({generator, generator.get_state()});
  };
  std::set<at::Device, bool (*)(const at::Device&, const at::Device&)> devices(
      [](const at::Device& a, const at::Device& b) {
        return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
      });
  devices.insert(at::kCPU);
  for (const auto& input : inputs)
    if (input.defined() && input.is_cuda()) devices.insert(input.device());
  for (const auto& device : devices) save(at::globalContext().defaultGenerator(device));
  for (const auto& generator : generators) save(generator);
}

void RandomState::add(const std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < generators.size(); ++i) saved_.push_back({generators[i], states[i]});
}

bool RandomState::is_now() const {
  for (auto [generator, state] : saved_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    if (!at::equal(generator.get_state(), state)) return false;
  }
  return true;
}

void RandomState::restore() const {
  for (auto [generator, state] : saved_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace graft
