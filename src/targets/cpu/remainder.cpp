// fmod: x - q y with q = trunc(x / y), which fma gives exactly.
#include <limits>

#include "targets/cpu/slow_lanes.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {

llvm::Value* emit_fmod(llvm::IRBuilderBase& builder, llvm::Value* dividend, llvm::Value* divisor) {
  Lanes lanes(builder, dividend->getType());
  if (!lanes.fused) return call_libm(builder, "fmod", dividend, divisor);
  const Float x = lanes.of(dividend), size = abs(x), y = abs(lanes.of(divisor));
  const Float quotient = lanes.of(builder.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, (size / y).value));
  // The quotient's rounding may have reached the next whole number; one less it cannot be.
  const Float rest = fma(-quotient, y, size);
  const Float result = copysign(select(rest < 0.0, rest + y, rest), x);
  // From here on whole numbers have gaps. Of an infinite divisor nothing is subtracted, rather than NaN.
  const Mask slow = (quotient >= lanes.pick(0x1p24, 0x1p53)) | (y == std::numeric_limits<double>::infinity());
  return with_slow_lanes(result, slow, [&] { return call_libm(builder, "fmod", dividend, divisor); }).value;
}

}  // namespace graft::cpu
