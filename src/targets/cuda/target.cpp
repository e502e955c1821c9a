#include <map>
#include <string>

#include "cache/disk_cache.h"
#include "support/hash.h"
#include "targets/cuda/device.h"
#include "targets/cuda/module.h"
#include "targets/cuda_code.h"
#include "targets/cuda_facts.h"
#include "targets/cuda_target.h"

namespace graft::cuda {
namespace {

class CudaTarget : public Target {
 public:
  std::string_view name() const override { return "cuda"; }
  std::string fingerprint() const override { return code_fingerprint(); }
  const codegen::Limits& limits() const override { return cuda::limits(); }
  const passes::TargetFacts& facts() const override { return cuda::facts(); }

  CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring& how) const override {
    CompiledKernels made;
    std::map<std::string, std::shared_ptr<const Launcher>> different;
    for (const auto& step : schedule.steps) {
      if (step.external) continue;
      const auto text = code_of(step.kernel);
      auto& launcher = different[text];
      if (!launcher) launcher = make_launcher(step.kernel, object_of(text, how.use_cache, made.cache_hits));
      made.launchers.push_back(launcher);
    }
    made.unique = static_cast<int64_t>(different.size());
    return made;
  }

  const std::vector<std::string>& code_levels() const override { return cuda::code_levels(); }
  std::string code(const codegen::Schedule& schedule, const std::string&) const override {
    return code_of(schedule);
  }

  const runtime::Device& device(const ir::Device& which) const override { return cuda::device(which.index); }
  std::string_view library_for(ir::OpKind kind) const override { return cuda::library_for(kind); }

 private:
  static std::string object_of(const std::string& text, bool use_cache, int64_t& hits) {
    const auto key = hex(hash128({code_fingerprint(), text}));
    if (use_cache)
      if (auto object = cache::shared_cache().get(key)) {
        ++hits;
        return *object;
      }
    auto object = compile_text(text);
    if (use_cache) cache::shared_cache().put(key, object);
    return object;
  }
};

}  // namespace

const Target& target() {
  static const CudaTarget instance;
  return instance;
}

}  // namespace graft::cuda
