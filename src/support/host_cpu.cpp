#include "support/host_cpu.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace graft {

bool is_arm_without_sve() {
#if defined(__aarch64__) && defined(__linux__)
  static const bool without = (getauxval(AT_HWCAP) & HWCAP_SVE) == 0;
  return without;
#else
  return false;
#endif
}

}  // namespace graft
