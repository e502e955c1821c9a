#include "support/host.h"

#include <unistd.h>

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

int64_t memory_of_machine() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace graft
