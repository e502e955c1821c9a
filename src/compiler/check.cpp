#include "compiler/check.h"

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

bool same_memory_order(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cpu() && b.is_cpu() && a.strides() == b.strides() && a.is_non_overlapping_and_dense();
}

/// As within(), of floats in one pass: a training step has three of them for each parameter. The bits of
/// floats without their signs are in the order of their sizes, with infinity and NaN above all others.
bool floats_within(double tolerance, const float* got, const float* want, int64_t count) {
  constexpr uint32_t size_bits = 0x7fffffff, infinity = 0x7f800000;
  uint32_t largest = 0, apart = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(want[i]) & size_bits);
    apart = std::max(apart, std::bit_cast<uint32_t>(got[i] - want[i]) & size_bits);
  }
  return largest < infinity && apart < infinity &&
         std::bit_cast<float>(apart) <= tolerance * std::bit_cast<float>(largest);
}

/// The usual case, in few passes over the memory: all finite, and near enough.
bool within(double tolerance, const at::Tensor& got, const at::Tensor& want) {
  if (want.scalar_type() == at::kFloat && same_memory_order(got, want))
    return floats_within(tolerance, got.const_data_ptr<float>(), want.const_data_ptr<float>(), want.numel());
  const auto [low, high] = at::aminmax(want);
  const auto [below, above] = at::aminmax(got - want);
  const double largest = std::max(std::abs(low.item<double>()), std::abs(high.item<double>()));
  const double apart = std::max(std::abs(below.item<double>()), std::abs(above.item<double>()));
  return std::isfinite(largest) && std::isfinite(apart) && apart <= tolerance * largest;
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
  const auto g = got.detach().to(at::kDouble), w = want.detach().to(at::kDouble);
  const auto finite = w.isfinite();
  if (!at::equal(finite, g.isfinite()) || !at::equal(w.masked_fill(finite, 0).nan_to_num(2, 1, -1),
                                                     g.masked_fill(finite, 0).nan_to_num(2, 1, -1)))
    return "NaN or infinity stands in other places";
  const double largest = w.masked_fill(finite.logical_not(), 0).abs().max().item<double>();
  const double apart = (g - w).masked_fill(finite.logical_not(), 0).abs().max().item<double>();
  if (apart <= tolerance * largest + 1e-30) return "";
  std::ostringstream text;
  text << "differs by " << apart << " where the largest value is " << largest;
  return text.str();
}

double share_apart(const at::Tensor& got, const at::Tensor& want, at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (got.numel() == 0) return 0;
  const auto g = got.detach().to(at::kDouble), w = want.detach().to(at::kDouble);
  const double tolerance = std::max(tolerance_of(want.scalar_type()), tolerance_of(computed_in));
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

bool is_noise(const at::Tensor& got, const at::Tensor& want, const at::Tensor& plain,
              const at::Tensor& precise, const std::vector<at::Tensor>& perturbed,
              at::ScalarType computed_in) {
  const at::NoGradGuard no_grad;
  if (!precise.defined() || !plain.defined() || got.sizes() != precise.sizes() ||
      want.sizes() != precise.sizes())
    return false;
  // Another order of operations may round worse by a small factor; a wrong value is off by thousands. Not so
  // in half precision, where a rounding is near a hundredth of a value: but there kernels round less often
  // than eager code, not more.
  const double same_order = 4, other_order = at::isReducedFloatingType(computed_in) ? 2 : 32;
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
  };
  double rounding = apart(plain, precise);
  for (const auto& other : perturbed) rounding = std::max(rounding, apart(other, precise));
  return apart(want, plain) <= same_order * rounding && apart(got, precise) <= other_order * rounding;
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
