#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cache/disk_cache.h"
#include "support/in_parallel.h"
#include "targets/cuda/device.h"
#include "targets/cuda/module.h"
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
  int64_t launch_kind(const codegen::Kernel& kernel) const override { return cuda::launch_kind(kernel); }

  CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring& how) const override {
    const auto launches = launches_of(schedule);
    std::map<std::string, const Kernels*> different;
    std::vector<std::string> texts;
    for (const auto& kernels : launches) different.emplace(texts.emplace_back(code_of(kernels)), &kernels);
    CompiledKernels made;
    const auto objects = objects_of(different, how.use_cache, made.cache_hits);
    std::map<std::string, std::shared_ptr<const Launcher>> launchers;
    for (const auto& [text, kernels] : different) launchers[text] = make_launcher(*kernels, objects.at(text));
    for (size_t i = 0; i < launches.size(); ++i) {
      made.launchers.push_back(launchers.at(texts[i]));
      made.launchers.resize(made.launchers.size() + launches[i].size() - 1);
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
  using Objects = std::map<std::string, std::string>;

  /// From the disk, or made on all cores: NVRTC takes a tenth of a second for each.
  static Objects objects_of(const std::map<std::string, const Kernels*>& launches, bool use_cache,
                            int64_t& hits) {
    Objects objects;
    std::vector<std::pair<const std::string*, std::string*>> missing;
    for (const auto& [text, kernels] : launches) {
      auto& object = objects[text];
      if (auto kept = use_cache ? cache::shared_cache().get(key_of(text)) : std::nullopt) {
        object = std::move(*kept);
        ++hits;
      } else {
        missing.emplace_back(&text, &object);
      }
    }
    in_parallel(missing.size(), [&](size_t i) { *missing[i].second = compile_text(*missing[i].first); });
    if (use_cache)
      for (const auto& [text, object] : missing) cache::shared_cache().put(key_of(*text), *object);
    return objects;
  }
};

}  // namespace

const Target& target() {
  static const CudaTarget instance;
  return instance;
}

}  // namespace graft::cuda
