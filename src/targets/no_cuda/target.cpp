// In the place of targets/cuda where torch has no CUDA.
#include "graft/error.h"
#include "targets/cuda_code.h"
#include "targets/cuda_facts.h"
#include "targets/cuda_target.h"

namespace graft::cuda {
namespace {

class NoTarget : public Target {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string missing() const override {
    return "this build of graft has no CUDA, so backend=graft cannot compile for a GPU: build it with a "
           "torch that has CUDA";
  }
  std::string fingerprint() const override { return "no cuda"; }
  const codegen::Limits& limits() const override { return cuda::limits(); }
  const passes::TargetFacts& facts() const override { return cuda::facts(); }
  CompiledKernels compile(const codegen::Schedule&, const cache::Measuring&) const override { refuse(); }
  const std::vector<std::string>& code_levels() const override {
    static const std::vector<std::string> levels = {"cuda"};
    return levels;
  }
  std::string code(const codegen::Schedule& schedule, const std::string&) const override {
    std::string text;
    for (const auto& step : schedule.steps)
      if (!step.external) text += to_string(step.kernel) + code_of(step.kernel) + "\n";
    return text;
  }
  const runtime::Device& device(const ir::Device&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw Error("[compile] " + missing()); }
};

}  // namespace

const Target& target() {
  static const NoTarget instance;
  return instance;
}

}  // namespace graft::cuda
