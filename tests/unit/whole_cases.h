// Cases of op_cases.h of whole numbers: shifts and divisions; of what walks a dimension in its order; of
// reductions that are made of others.
#pragma once
#include "op_case.h"

namespace graft::op_cases {

inline std::vector<Case> whole_cases() {
  return {
      {"aten::fmod.Scalar", ints, anything, GRAFT_CASE(at::fmod(i.x, 7))},
      {"aten::fmod.Scalar", ints, anything, GRAFT_CASE(at::fmod(i.x, -5))},
      {"aten::remainder.Scalar", ints, anything, GRAFT_CASE(at::remainder(i.x, 7))},
      {"aten::remainder.Scalar", ints, anything, GRAFT_CASE(at::remainder(i.x, -8))},
      {"aten::div.Scalar_mode", ints, anything, GRAFT_CASE(at::div(i.x, 3, "floor"))},
      {"aten::div.Scalar_mode", ints, anything, GRAFT_CASE(at::div(i.x, -7, "floor"))},
      {"aten::div.Scalar_mode", ints, anything, GRAFT_CASE(at::div(i.x, -7, "trunc"))},
      {"aten::div.Scalar_mode", ints, plain, GRAFT_CASE(at::div(i.x, -1, "floor"))},
      {"aten::div.Scalar_mode", ints, plain, GRAFT_CASE(at::div(i.x, 1, "trunc"))},
      {"aten::floor_divide.Scalar", ints, anything, GRAFT_CASE(at::floor_divide(i.x, 4))},
      {"aten::pow.Tensor_Scalar", ints, anything, GRAFT_CASE(i.x.pow(11))},
      {"aten::bitwise_left_shift.Tensor", ints, anything, GRAFT_CASE(at::bitwise_left_shift(i.x, i.y))},
      {"aten::bitwise_left_shift.Tensor_Scalar", ints, anything, GRAFT_CASE(at::bitwise_left_shift(i.x, 3))},
      {"aten::bitwise_left_shift.Scalar_Tensor", ints, anything, GRAFT_CASE(at::bitwise_left_shift(5, i.x))},
      {"aten::bitwise_right_shift.Tensor", ints, anything, GRAFT_CASE(at::bitwise_right_shift(i.x, i.y))},
      {"aten::bitwise_right_shift.Tensor_Scalar", ints, anything,
       GRAFT_CASE(at::bitwise_right_shift(i.x, 2))},
      {"aten::bitwise_right_shift.Scalar_Tensor", ints, anything,
       GRAFT_CASE(at::bitwise_right_shift(-77, i.x))},
      {"aten::__lshift__.Tensor", ints, anything, GRAFT_CASE(at::__lshift__(i.x, i.y))},
      {"aten::__lshift__.Scalar", ints, anything, GRAFT_CASE(at::__lshift__(i.x, 4))},
      {"aten::__rshift__.Tensor", ints, anything, GRAFT_CASE(at::__rshift__(i.x, i.y))},
      {"aten::__rshift__.Scalar", ints, anything, GRAFT_CASE(at::__rshift__(i.x, 1))},
  };
}

inline std::vector<Case> more_reduction_cases() {
  return {
      {"aten::std_mean.correction", floats, rank2 | elements | plain,
       GRAFT_CASE(std::get<0>(at::std_mean(i.x, at::IntArrayRef{-1})))},
      {"aten::std_mean.correction", floats, rank2 | elements | plain,
       GRAFT_CASE(std::get<1>(at::std_mean(i.x, at::IntArrayRef{0, 1}, false, true)))},
      {"aten::nansum", floats, elements, GRAFT_CASE(i.x.nansum(-1))},
      {"aten::nansum", floats, elements, GRAFT_CASE(i.x.nansum())},
      {"aten::count_nonzero.dim_IntList", all, elements | no_gradient,
       GRAFT_CASE(i.x.count_nonzero(at::IntArrayRef{-1}))},
      {"aten::count_nonzero", all, elements | no_gradient, GRAFT_CASE(i.x.count_nonzero())},
      {"aten::aminmax", all, rank1 | elements | no_gradient, GRAFT_CASE(std::get<0>(i.x.aminmax(0, true)))},
      {"aten::aminmax", all, elements | no_gradient, GRAFT_CASE(std::get<1>(i.x.aminmax()))},
      {"aten::aminmax", floats, rank1 | elements | plain, GRAFT_CASE(std::get<1>(i.x.aminmax(-1)))},
  };
}

inline std::vector<Case> scan_cases() {
  return {
      {"aten::cumsum", all, rank1, GRAFT_CASE(i.x.cumsum(0))},
      {"aten::cumsum", all, rank1, GRAFT_CASE(i.x.cumsum(-1))},
      {"aten::cumsum", all, rank1 | no_half | plain, GRAFT_CASE((i.x * i.y).cumsum(-1, at::kDouble))},
      {"aten::cumsum", all, rank1 | no_gradient | plain, GRAFT_CASE(i.x.cumsum(0, at::kInt))},
      {"aten::cumprod", all, rank1 | no_gradient, GRAFT_CASE(i.u.cumprod(0))},
      {"aten::cumprod", all, rank1 | no_gradient, GRAFT_CASE(i.u.cumprod(-1))},
  };
}

}  // namespace graft::op_cases
