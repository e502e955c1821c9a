// The kernels of all operator cases as objects for machines of any kind: `arch_kernels [--all] FOLDER
// LEVEL...`. With --all over all layouts, else over two.
//
// The compiler makes kernels of the cases in unit/op_cases.h, and its CPU target machine code of them for
// each level asked for, of this architecture or another. Data and results that are allowed on it
// (kernel_cases.h) go into FOLDER/cases; FOLDER/LEVEL has the objects, their list `objects` and
// `table.c`. run_kernels.c, linked with those, runs them on that data. test_arch.py does all of it.
//
// How kernels come about is tested elsewhere (LoweringOps); what differs here is the machine code alone.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/TargetSelect.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "arch/kernel_cases.h"
#include "support/in_parallel.h"
#include "targets/cpu/emit.h"
#include "targets/targets.h"

namespace graft {
namespace {

using codegen::Kernel;
using kernel_cases::NamedKernel;

// --- levels

struct Level {
  std::string name;
  cpu::Host host;
};

const std::vector<Level>& levels() {
  const std::string x86 = "x86_64-unknown-linux-gnu", arm = "aarch64-unknown-linux-gnu";
  const std::string avx2 =
      "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave";
  const std::string avx512 = avx2 + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl";
  static const std::vector<Level> all = {
      {"x86_64-sse2", {x86, "x86-64", "+sse,+sse2", 16}},
      {"x86_64-avx2", {x86, "x86-64-v3", avx2, 32}},
      {"x86_64-avx512", {x86, "x86-64-v4", avx512, 64}},
      {"aarch64-neon", {arm, "generic", "+fp-armv8,+neon", 16}},
      {"aarch64-fp16", {arm, "neoverse-n1", "+dotprod,+fp-armv8,+fullfp16,+lse,+neon", 16}},
  };
  return all;
}

const Level& level_named(const std::string& name) {
  for (const auto& level : levels())
    if (level.name == name) return level;
  std::string known;
  for (const auto& level : levels()) known += " " + level.name;
  throw std::invalid_argument("no level " + name + ", only" + known);
}

// --- code

std::string object_of(const Kernel& kernel, const cpu::Plan& plan, const std::string& symbol,
                      const cpu::Host& host) {
  llvm::LLVMContext context;
  llvm::Module module("graft", context);
  cpu::set_target(module, host);
  cpu::emit(module, kernel, plan, symbol, host);
  return cpu::compile_object(module, host);
}

void write_level(const std::filesystem::path& folder, const Level& level,
                 const std::vector<const NamedKernel*>& kernels) {
  std::filesystem::create_directories(folder);
  std::vector<cpu::Plan> plans(kernels.size());
  const auto symbol = [](size_t i) { return "k" + std::to_string(i); };
  in_parallel(kernels.size(), [&](size_t i) {
    plans[i] = cpu::plan(kernels[i]->kernel, level.host);
    std::ofstream file(folder / (symbol(i) + ".o"), std::ios::binary);
    file.exceptions(std::ios::badbit | std::ios::failbit);
    file << object_of(kernels[i]->kernel, plans[i], symbol(i), level.host);
  });
  std::ofstream table(folder / "table.c"), objects(folder / "objects");
  table.exceptions(std::ios::badbit | std::ios::failbit);
  table << "#include \"kernel_table.h\"\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    table << "kernel_function " << symbol(i) << ";\n";
    objects << (folder / (symbol(i) + ".o")).string() << "\n";
  }
  table << "const struct kernel kernels[] = {\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& p = plans[i];
    table << "  {" << symbol(i) << ", " << p.tasks << ", " << p.parts << ", " << p.stages << ", "
          << p.parted_stages << ", " << p.partial_words << "},\n";
  }
  table << "};\nconst int64_t kernel_count = " << kernels.size() << ";\n";
}

void run(bool all, const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<Level> wanted;
  for (const auto& name : names) wanted.push_back(level_named(name));
  std::filesystem::create_directories(folder);
  // The library itself knows this machine's architecture only.
  llvm::InitializeAllTargetInfos();
  llvm::InitializeAllTargets();
  llvm::InitializeAllTargetMCs();
  llvm::InitializeAllAsmPrinters();
  kernel_cases::Kernels kernels(target_for({}));
  add_operators(kernels, all ? kernel_cases::Amount::all : kernel_cases::Amount::usual);
  const auto kept = write_cases(folder / "cases", kernels);
  for (const auto& level : wanted) write_level(folder / level.name, level, kept);
  std::cout << kept.size() << " kernels, "
            << kernels.left_out() + static_cast<int64_t>(kernels.all().size() - kept.size()) << " left out\n";
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool all = !words.empty() && words[0] == "--all";
    if (all) words.erase(words.begin());
    if (words.size() < 2) throw std::invalid_argument("arch_kernels [--all] FOLDER LEVEL...");
    graft::run(all, words[0], {words.begin() + 1, words.end()});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
