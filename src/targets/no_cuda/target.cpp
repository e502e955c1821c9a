// In the place of targets/cuda where torch has no CUDA.
#include "targets/cuda_code/code.h"
#include "targets/cuda_facts.h"
#include "targets/cuda_target.h"
#include "targets/missing_target.h"

namespace graft::cuda {
namespace {

class NoTarget : public MissingTarget {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string missing() const override {
    return "this build of graft has no CUDA, so backend=graft cannot compile for a GPU: build it "
           "with a torch that has CUDA";
  }
  const codegen::Limits& limits() const override { return cuda::limits(); }
  const passes::TargetFacts& facts() const override { return cuda::facts(); }
  int64_t launch_kind(const codegen::Kernel& kernel) const override { return cuda::launch_kind(kernel); }
  const std::vector<std::string>& code_levels() const override { return cuda::code_levels(); }
  std::string_view library_for(ir::OpKind kind) const override { return cuda::library_for(kind); }
  /// The text needs no GPU.
  std::string code(const codegen::Schedule& schedule, const std::string&) const override {
    return code_of(schedule);
  }
};

}  // namespace

const Target& target() {
  static const NoTarget instance;
  return instance;
}

}  // namespace graft::cuda
