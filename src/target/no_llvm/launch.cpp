// In the place of target/cpu where graft is built without LLVM.
#include "graft/error.h"
#include "target/cpu_target.h"

namespace graft::cpu {
namespace {

[[noreturn]] void refuse() {
  throw Error(
      "[compile] this build of graft has no LLVM, so backend=graft cannot compile for the CPU: use "
      "backend=aot_eager, or install llvm-19-dev and build again");
}

}  // namespace

bool available() { return false; }
CompiledKernels compile(const codegen::Schedule&, const runtime::Measuring&) { refuse(); }
std::string llvm_of(const codegen::Schedule&) { refuse(); }

}  // namespace graft::cpu
