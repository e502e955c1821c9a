#include <string>

#include "targets/cpu/device.h"
#include "targets/cpu/jit.h"
#include "targets/cpu/kernels.h"
#include "targets/cpu/launch.h"
#include "targets/cpu/tuning.h"
#include "targets/cpu_facts.h"
#include "targets/cpu_settings.h"
#include "targets/cpu_target.h"

namespace graft::cpu {
namespace {

std::vector<const codegen::Kernel*> kernels_of(const codegen::Schedule& schedule) {
  std::vector<const codegen::Kernel*> kernels;
  for (const auto& step : schedule.steps)
    if (!step.external) kernels.push_back(&step.kernel);
  return kernels;
}

class CpuTarget : public Target {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string fingerprint() const override { return generator_fingerprint(); }

  const codegen::Limits& limits() const override { return cpu::limits(); }
  const passes::TargetFacts& facts() const override { return cpu::facts(); }

  CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring& how) const override {
    std::vector<TunedKernel> kernels;
    for (const auto* kernel : kernels_of(schedule)) kernels.push_back({kernel});
    if (how.thorough) tune(schedule, kernels, how.use_cache);
    auto made = compile_kernels(kernels, how.use_cache);
    CompiledKernels compiled;
    compiled.unique = made.unique;
    compiled.cache_hits = made.cache_hits;
    for (auto& kernel : made.kernels) compiled.launchers.push_back(make_launcher(std::move(kernel)));
    return compiled;
  }

  const std::vector<std::string>& code_levels() const override { return cpu::code_levels(); }
  std::string code(const codegen::Schedule& schedule, const std::string&) const override {
    std::string text;
    for (const auto* kernel : kernels_of(schedule)) text += to_string(*kernel) + llvm_of(*kernel) + "\n";
    return text;
  }

  const runtime::Device& device(const ir::Device&) const override { return cpu::device(); }
  std::string_view library_for(ir::OpKind kind) const override { return cpu::library_for(kind); }
  std::unique_ptr<KeptSettings> keep_settings() const override { return cpu::keep_settings(); }
};

}  // namespace

const Target& target() {
  static const CpuTarget instance;
  return instance;
}

}  // namespace graft::cpu
