#include "verify/rounding_noise.h"

#include <ATen/ATen.h>

#include "verify/tolerance.h"

namespace graft::verify {
namespace {

/// Whole numbers and flags: each is one that rounding may lead to.
bool is_one_of(const at::Tensor& got, const at::Tensor& want, const at::Tensor& precise,
               const std::vector<at::Tensor>& perturbed) {
  auto explained = got.eq(want).logical_or(got.eq(precise));
  for (const auto& other : perturbed) explained = explained.logical_or(got.eq(other));
  return explained.all().item<bool>();
}

}  // namespace

bool is_rounding_noise(const at::Tensor& got, const at::Tensor& want, const at::Tensor& plain,
                       const at::Tensor& precise, const std::vector<at::Tensor>& perturbed,
                       at::ScalarType computed_in, bool may_overflow) {
  const at::NoGradGuard no_grad;
  if (!precise.defined() || !plain.defined() || got.sizes() != precise.sizes() ||
      want.sizes() != precise.sizes())
    return false;
  if (!want.is_floating_point())
    return fraction_differing(want, plain, computed_in) <= max_fraction_at_kinks &&
           is_one_of(got, want, precise, perturbed);
  // Another order of operations may round worse by a small factor; a wrong value is off by thousands. Not so
  // in half precision, where a rounding is near a hundredth of a value: but there kernels round less often
  // than eager code, not more.
  const bool half = at::isReducedFloatingType(computed_in);
  const double same_order = 4, other_order = half ? 2 : 32, unit = half ? 0x1p-8 : 0x1p-23;
  // Where one of them is infinite or not a number, `got` is as the exact result would be in its dtype, or as
  // eager's; such places are compared no further.
  const auto exact = nonfinite_codes(precise.to(want.scalar_type()).to(at::kDouble));
  const auto mine = nonfinite_codes(got.detach().to(at::kDouble)),
             theirs = nonfinite_codes(want.detach().to(at::kDouble));
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

}  // namespace graft::verify
