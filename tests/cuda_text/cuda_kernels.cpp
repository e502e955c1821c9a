// Kernels as CUDA C++ to be compiled and run without a GPU: `cuda_kernels [--all] FOLDER`. Of the operator
// cases (arch/kernel_cases.h), with --all over all layouts and types, and of fused_cases.h.
//
// FOLDER gets `cases` (data, and the results that are allowed on it), parts `part0.cpp` and so on with many
// kernels each, `table.c`, a `single.cu` as the program compiles it, and `layouts` (a line for each kernel).
// NVRTC compiles the parts as they are; a C++ compiler takes shim.h for the GPU, and arch/run_kernels.c,
// linked with them, runs them on that data. test_cuda_text.py does all of it.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "arch/kernel_cases.h"
#include "capture/capture.h"
#include "cuda_text/fused_cases.h"
#include "targets/cuda_code/code.h"
#include "targets/cuda_code/expressions.h"
#include "targets/cuda_code/layout.h"
#include "targets/targets.h"

namespace graft {
namespace {

using codegen::Kernel;
using kernel_cases::NamedKernel;

constexpr size_t kernels_in_a_part = 100;

void add_fused(kernel_cases::Kernels& kernels) {
  const ModuleTree none;
  for (const auto& each : fused_cases::table()) {
    const Traceable function = each.function;
    kernels.add(capture({&function, each.inputs, &none, /*gradients=*/false}).graph, each.name + ":",
                each.fails);
  }
}

std::ofstream opened(const std::filesystem::path& path) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::badbit | std::ios::failbit);
  return file;
}

/// Only these let other threads run in between.
bool waits(const std::string& text) {
  return text.find("__sync") != std::string::npos || text.find("from_lane(") != std::string::npos;
}

/// The kernel under a name of its own.
std::string named(const std::string& text, size_t number) {
  const auto n = std::to_string(number);
  return "namespace n" + n + " {\n#define kernel kernel" + n + "\n" + text + "#undef kernel\n}\n";
}

/// A kernel_function (arch/kernel_table.h) whose tasks are blocks.
std::string caller(const Kernel& kernel, const std::string& text, size_t number) {
  const auto shape = cuda::shape_of(kernel);
  std::ostringstream out;
  out << "extern \"C\" void k" << number
      << "(void* const* b, int64_t begin, int64_t end, int32_t* error, void*, int64_t) {\n  "
         "shim::run_blocks({"
      << shape.blocks << ", " << shape.threads << ", " << (waits(text) ? "true" : "false")
      << "}, begin, end, [=] { n" << number << "::kernel" << number << "(";
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    out << "static_cast<" << cuda::memory_type(kernel.buffers[i].dtype) << "*>(b[" << i << "]), ";
  out << "error, 1); });\n}\n";
  return out.str();
}

void write_part(const std::filesystem::path& path, const std::vector<const NamedKernel*>& kernels,
                size_t begin, size_t end) {
  auto file = opened(path);
  file << "#ifdef __CUDACC_RTC__\n"
       << cuda::conversions() << "#else\n#include \"shim.h\"\n#endif\n"
       << cuda::helpers();
  std::string callers;
  for (size_t i = begin; i < end; ++i) {
    const auto text = cuda::function_of(kernels[i]->kernel);
    file << named(text, i);
    callers += caller(kernels[i]->kernel, text, i);
  }
  file << "#ifndef __CUDACC_RTC__\n" << callers << "#endif\n";
}

void write_table(const std::filesystem::path& path, const std::vector<const NamedKernel*>& kernels) {
  auto file = opened(path);
  file << "#include \"kernel_table.h\"\n";
  for (size_t i = 0; i < kernels.size(); ++i) file << "kernel_function k" << i << ";\n";
  file << "const struct kernel kernels[] = {\n";
  for (size_t i = 0; i < kernels.size(); ++i)
    file << "  {k" << i << ", " << cuda::shape_of(kernels[i]->kernel).blocks << ", 1, 1, 0, 0},\n";
  file << "};\nconst int64_t kernel_count = " << kernels.size() << ";\n";
}

/// In words; test_cuda_text.py lists those that have to be there.
std::string layout_text(const Kernel& kernel) {
  const auto l = cuda::layout_of(kernel);
  std::ostringstream text;
  if (kernel.scatters())
    text << "scatter";
  else if (kernel.phases == 0)
    text << "flat by " << l.width;
  else if (l.lanes == 1)
    text << "row by thread";
  else if (!l.rows)
    text << "columns";
  else {
    const int64_t at_once = int64_t{l.lanes} * l.width;
    text << (l.points > 1 ? "rows by warp" : "row by block") << (l.width > 1 ? ", wide" : "")
         << (l.held_steps > 0 ? ", held" : "")
         << (kernel.reduced_points() % at_once != 0 ? ", part left" : "");
  }
  return text.str();
}

void run(bool all, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  kernel_cases::Kernels kernels(target_for({ir::Device::Kind::cuda}));
  add_fused(kernels);
  add_operators(kernels, all ? kernel_cases::Amount::all : kernel_cases::Amount::few);
  const auto kept = write_cases(folder / "cases", kernels);
  for (size_t begin = 0, part = 0; begin < kept.size(); begin += kernels_in_a_part, ++part)
    write_part(folder / ("part" + std::to_string(part) + ".cpp"), kept, begin,
               std::min(begin + kernels_in_a_part, kept.size()));
  write_table(folder / "table.c", kept);
  opened(folder / "single.cu") << cuda::code_of(kept[0]->kernel);
  auto layouts = opened(folder / "layouts");
  for (const auto* each : kept) layouts << layout_text(each->kernel) << ": " << each->name << "\n";
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
    if (words.size() != 1) throw std::invalid_argument("cuda_kernels [--all] FOLDER");
    graft::run(all, words[0]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
