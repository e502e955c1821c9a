#include "support/host.h"

#include <unistd.h>

#include <fstream>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace graft {

const std::string& cpu_name() {
  static const std::string name = [] {
    // x86 has a model's name and flags, Arm numbers of maker and part and features; the first core's.
    std::ifstream file("/proc/cpuinfo");
    std::string line, found;
    while (std::getline(file, line) && !line.empty())
      for (const char* field :
           {"model name", "flags", "CPU implementer", "CPU part", "CPU variant", "Features"})
        if (line.starts_with(field)) found += line + "\n";
    return found;
  }();
  return name;
}

bool is_arm_without_sve() {
#if defined(__aarch64__) && defined(__linux__)
  static const bool without = (getauxval(AT_HWCAP) & HWCAP_SVE) == 0;
  return without;
#else
  return false;
#endif
}

bool has_bfloat16_products() {
#if defined(__aarch64__) && defined(__linux__)
  static const bool there = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  return there;
#elif defined(__x86_64__)
  // oneDNN converts where there is no more than this.
  static const bool there = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512dq");
  return there;
#else
  return false;
#endif
}

bool has_float16_products() {
#if defined(__aarch64__) && defined(__linux__)
  return !is_arm_without_sve();
#elif defined(__x86_64__)
  static const bool there = __builtin_cpu_supports("avx512fp16");
  return there;
#else
  return false;
#endif
}

int64_t memory_of_machine() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace graft
