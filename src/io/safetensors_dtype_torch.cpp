#include "io/safetensors_dtype_torch.h"

#include <utility>

namespace graft::io {
namespace {

using S = SafetensorsDtype;
using T = at::ScalarType;

constexpr std::pair<S, T> kPairs[] = {
    {S::BOOL, T::Bool},
    {S::F4, T::Float4_e2m1fn_x2},
    {S::U8, T::Byte},
    {S::I8, T::Char},
    {S::F8_E5M2, T::Float8_e5m2},
    {S::F8_E4M3, T::Float8_e4m3fn},
    {S::F8_E8M0, T::Float8_e8m0fnu},
    {S::F8_E4M3FNUZ, T::Float8_e4m3fnuz},
    {S::F8_E5M2FNUZ, T::Float8_e5m2fnuz},
    {S::I16, T::Short},
    {S::U16, T::UInt16},
    {S::F16, T::Half},
    {S::BF16, T::BFloat16},
    {S::I32, T::Int},
    {S::U32, T::UInt32},
    {S::F32, T::Float},
    {S::C64, T::ComplexFloat},
    {S::F64, T::Double},
    {S::I64, T::Long},
    {S::U64, T::UInt64},
};

}  // namespace

at::ScalarType scalar_type_of(SafetensorsDtype dtype) {
  for (const auto& [ours, torchs] : kPairs) {
    if (ours == dtype) return torchs;
  }
  return T::Undefined;
}

std::optional<SafetensorsDtype> safetensors_dtype_of(at::ScalarType type) {
  for (const auto& [ours, torchs] : kPairs) {
    if (torchs == type) return ours;
  }
  return std::nullopt;
}

}  // namespace graft::io
