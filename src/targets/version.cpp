// What this build has: its targets and libraries.
#include "graft/version.h"

#include <torch/version.h>

#include "graft_build_config.h"

namespace graft {

std::string version() { return GRAFT_VERSION; }

std::string build_summary() {
  return "graft " GRAFT_VERSION ", torch " TORCH_VERSION ", LLVM " GRAFT_BUILT_LLVM ", CUDA " GRAFT_BUILT_CUDA
         ", ICU " GRAFT_BUILT_ICU ", " GRAFT_BUILT_ARCH;
}

}  // namespace graft
