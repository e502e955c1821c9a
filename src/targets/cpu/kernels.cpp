#include "targets/cpu/kernels.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>

#include <map>
#include <mutex>

#include "cache/disk_cache.h"
#include "generator_hash.h"
#include "graft/error.h"
#include "support/env.h"
#include "support/hash.h"
#include "support/in_parallel.h"
#include "support/log.h"
#include "support/stopwatch.h"
#include "targets/cpu/trial.h"

namespace graft::cpu {

const std::string& generator_fingerprint() {
  static const std::string text = std::string(generator_hash) + "\n" + llvm_version() + "\n" + host().triple +
                                  "\n" + host().cpu + "\n" + host().features;
  return text;
}

namespace {

bool tries_kernels() { return env_number("GRAFT_KERNEL_TRIALS").value_or(1) != 0; }

/// What was not tried is not taken for what was.
std::string key_of(const TunedKernel& kernel, bool tried) {
  return hex(hash128({generator_fingerprint(), to_string(*kernel.kernel), to_string(kernel.tuning),
                      tried ? "" : "not tried"}));
}

std::string compile_one(const TunedKernel& kernel, const std::string& symbol) {
  llvm::LLVMContext context;
  llvm::Module module("graft", context);
  set_target(module, host());
  emit(module, *kernel.kernel, plan(*kernel.kernel, host(), kernel.tuning), symbol, host());
  return compile_object(module, host());
}

void expect_right(const TunedKernel& kernel, KernelFunction function) {
  const auto trial = try_kernel(*kernel.kernel, plan(*kernel.kernel, host(), kernel.tuning), function);
  if (trial.fault.empty()) return;
  throw Error("[codegen] machine code is wrong, found by a trial on made-up data: " + trial.fault +
              ". Please report it with this text; until then compile with backend=aot_eager. LLVM " +
              llvm_version() + ", " + host().cpu + ", " + host().features + "\n" + to_string(kernel.tuning) +
              to_string(*kernel.kernel));
}

/// Kernels that this process has already: a model's forward in another program shares most of them.
struct Loaded {
  std::mutex guard;
  std::map<std::string, std::pair<KernelFunction, std::shared_ptr<Library>>> kernels;
};
Loaded& loaded() {
  static Loaded instance;
  return instance;
}

}  // namespace

MachineKernels compile_kernels(const std::vector<TunedKernel>& kernels, bool use_cache) {
  MachineKernels made;
  const bool tried = tries_kernels();
  std::map<std::string, size_t> numbers;  // by key
  std::vector<size_t> number_of;
  std::vector<TunedKernel> different;
  std::vector<std::string> keys, objects;
  for (const auto& kernel : kernels) {
    const auto [place, fresh] = numbers.emplace(key_of(kernel, tried), different.size());
    if (fresh) {
      different.push_back(kernel);
      keys.push_back(place->first);
    }
    number_of.push_back(place->second);
  }
  made.unique = static_cast<int64_t>(different.size());

  std::vector<std::pair<KernelFunction, std::shared_ptr<Library>>> functions(different.size());
  std::vector<size_t> missing;
  {
    const std::lock_guard<std::mutex> lock(loaded().guard);
    for (size_t i = 0; i < different.size(); ++i) {
      const auto found = loaded().kernels.find(keys[i]);
      if (found != loaded().kernels.end())
        functions[i] = found->second;
      else
        missing.push_back(i);
    }
  }
  objects.resize(missing.size());
  std::vector<uint8_t> fresh(missing.size());
  in_parallel(missing.size(), [&](size_t i) {
    const auto& key = keys[missing[i]];
    if (use_cache)
      if (auto object = cache::shared_cache().get(key)) {
        objects[i] = std::move(*object);
        return;
      }
    objects[i] = compile_one(different[missing[i]], "k" + key);
    fresh[i] = 1;
  });
  made.cache_hits = std::count(fresh.begin(), fresh.end(), 0);
  if (!missing.empty()) {
    const auto library = Library::load(objects);
    for (const size_t i : missing)
      functions[i] = {reinterpret_cast<KernelFunction>(library->find("k" + keys[i])), library};
    {
      const Stopwatch watch("kernel trials");
      in_parallel(missing.size(), [&](size_t i) {
        if (!fresh[i]) return;
        if (tried) expect_right(different[missing[i]], functions[missing[i]].first);
        if (use_cache) cache::shared_cache().put(keys[missing[i]], objects[i]);
      });
    }
    const std::lock_guard<std::mutex> lock(loaded().guard);
    for (const size_t i : missing) loaded().kernels.emplace(keys[i], functions[i]);
  }
  if (logs(LogTopic::kernels))
    for (const auto& [kernel, tuning] : different) log(LogTopic::kernels, to_string(*kernel));
  for (size_t i = 0; i < kernels.size(); ++i)
    made.kernels.push_back({functions[number_of[i]].first,
                            plan(*kernels[i].kernel, host(), kernels[i].tuning),
                            functions[number_of[i]].second});
  return made;
}

std::string llvm_of(const codegen::Kernel& kernel) {
  llvm::LLVMContext context;
  llvm::Module module("graft", context);
  set_target(module, host());
  emit(module, kernel, plan(kernel, host()), "kernel", host());
  const auto made = listing(module, host());
  return made.llvm + "\n" + made.assembly;
}

}  // namespace graft::cpu
