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
#include "targets/cuda_code/attend.h"
#include "targets/cuda_code/code.h"
#include "targets/cuda_code/expressions.h"
#include "targets/cuda_code/layout.h"
#include "targets/cuda_code/low_rank.h"
#include "targets/cuda_code/matrix_parts.h"
#include "targets/cuda_code/narrow_products.h"
#include "targets/cuda_code/row_write.h"
#include "targets/targets.h"

namespace graft {
namespace {

using codegen::Kernel;
using kernel_cases::NamedKernel;

constexpr size_t kernels_in_a_part = 100;

struct Coded {
  const NamedKernel* named;
  cuda::Shape shape;
  std::string text;
  /// In the launch that the text is for: blocks and buffers that belong to others.
  int64_t blocks_before = 0;
  size_t buffers_before = 0;
};

/// In a launch with the kernel before it and with itself: what is run are the blocks of the last of the
/// three, so that only these have buffers.
void put_beside(Coded& coded, const NamedKernel& other) {
  const auto& kernel = coded.named->kernel;
  if (cuda::shape_of({&other.kernel}).threads != coded.shape.threads) return;
  const cuda::Kernels kernels = {&other.kernel, &kernel, &kernel};
  coded.text = cuda::function_of(kernels);
  coded.blocks_before = cuda::shape_of(kernels).blocks - coded.shape.blocks;
  coded.buffers_before = other.kernel.buffers.size() + kernel.buffers.size();
}

std::vector<Coded> coded(const std::vector<const NamedKernel*>& kernels, bool fewer_blocks) {
  constexpr size_t one_of = 4;
  std::vector<Coded> all;
  for (const auto* each : kernels) {
    all.push_back({each, cuda::shape_of({&each->kernel}), cuda::function_of({&each->kernel})});
    auto& blocks = all.back().shape.blocks;
    if (fewer_blocks)
      blocks = (blocks + 2) / 3;
    else if (all.size() % one_of == 0)
      put_beside(all.back(), *all[all.size() - 2].named);
  }
  return all;
}

void add_fused(kernel_cases::Kernels& kernels, const std::vector<fused_cases::Fused>& cases) {
  const ModuleTree none;
  for (const auto& each : cases) {
    const Traceable function = each.function;
    auto inputs = each.inputs;
    for (auto& input : inputs)
      if (each.gradients && input.is_floating_point()) input.requires_grad_();
    kernels.add(capture({&function, inputs, &none, each.gradients}).graph, each.name + ":", each.fails);
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

/// The kernel under a name of its own; and for buffers that begin anywhere, if it asks for more.
std::string named(const std::string& text, size_t number) {
  const auto n = std::to_string(number);
  const auto called = [&](const std::string& name, const std::string& code) {
    return "namespace n" + name + " {\n#define kernel kernel" + name + "\n" + code + "#undef kernel\n}\n";
  };
  if (!cuda::asks_for_alignment(text)) return called(n, text);
  return called(n, text) + called(n + "u", cuda::any_alignment + text + "#undef copy_aligned\n");
}

/// A kernel_function (arch/kernel_table.h) whose tasks are blocks.
std::string caller(const Coded& coded, size_t number) {
  const auto& buffers = coded.named->kernel.buffers;
  std::ostringstream out;
  out << "extern \"C\" void k" << number
      << "(void* const* b, int64_t begin, int64_t end, int32_t* error, void*, int64_t) {\n"
      << "  shim::run_blocks({" << coded.blocks_before + coded.shape.blocks << ", " << coded.shape.threads
      << ", " << (waits(coded.text) ? "true" : "false") << "}, " << coded.blocks_before << " + begin, "
      << coded.blocks_before << " + end, [=] {\n";
  const auto call = [&](const std::string& name) {
    out << "    n" << name << "::kernel" << name << "(";
    for (size_t i = 0; i < coded.buffers_before; ++i) out << "nullptr, ";
    for (size_t i = 0; i < buffers.size(); ++i)
      out << "static_cast<" << cuda::memory_type(buffers[i].dtype) << "*>(b[" << i << "]), ";
    out << "error, 1, 0);\n";
  };
  if (cuda::asks_for_alignment(coded.text)) {
    out << "    if ((0";
    for (size_t i = 0; i < buffers.size(); ++i) out << " | (size_t)b[" << i << "]";
    out << ") % 16 != 0)\n";
    call(std::to_string(number) + "u");
    out << "    else\n";
  }
  call(std::to_string(number));
  out << "  });\n}\n";
  return out.str();
}

void write_part(const std::filesystem::path& path, const std::vector<Coded>& kernels, size_t begin,
                size_t end) {
  auto file = opened(path);
  file << "#ifdef __CUDACC_RTC__\n"
       << cuda::conversions() << "#else\n#include \"shim.h\"\n#endif\n"
       << cuda::helpers();
  std::string callers;
  for (size_t i = begin; i < end; ++i) {
    file << named(kernels[i].text, i);
    callers += caller(kernels[i], i);
  }
  file << "#ifndef __CUDACC_RTC__\n" << callers << "#endif\n";
}

void write_table(const std::filesystem::path& path, const std::vector<Coded>& kernels) {
  auto file = opened(path);
  file << "#include \"kernel_table.h\"\n";
  for (size_t i = 0; i < kernels.size(); ++i) file << "kernel_function k" << i << ";\n";
  file << "const struct kernel kernels[] = {\n";
  for (size_t i = 0; i < kernels.size(); ++i)
    file << "  {k" << i << ", " << kernels[i].shape.blocks << ", 1, 1, 0, 0},\n";
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
    text << (l.lanes == 32  ? "rows by warp"
             : l.points > 1 ? "rows by warps"
                            : "row by block")
         << (l.width > 1 ? ", wide" : "") << (l.held_steps > 0 ? ", held" : "")
         << (kernel.reduced_points() % at_once != 0 ? ", part left" : "");
  }
  return text.str();
}

/// Those that are not generated: `attend0.cu` and so on for NVRTC, `attend0.inc` for written_kernels.cpp.
void write_written(const std::filesystem::path& folder) {
  using ir::DType;
  const cuda::AttendKind kinds[] = {{DType::bf16, DType::bf16, 64, 4},
                                    {DType::f16, DType::f32, 128, 1},
                                    {DType::bf16, DType::f32, 32, 3},
                                    {DType::f16, DType::f16, 256, 2}};
  for (size_t i = 0; i < std::size(kinds); ++i) {
    opened(folder / ("attend" + std::to_string(i) + ".cu")) << cuda::attend_code(kinds[i]);
    opened(folder / ("attend" + std::to_string(i) + ".inc")) << cuda::attend_functions(kinds[i]);
  }
  for (const int bytes : {1, 2, 4, 8, 16}) {
    opened(folder / ("rows" + std::to_string(bytes) + ".cu")) << cuda::row_write_code(bytes);
    opened(folder / ("rows" + std::to_string(bytes) + ".inc")) << cuda::row_write_function(bytes);
  }
  using cuda::Along;
  const auto write_narrow = [&](const std::string& name, const std::string& function) {
    opened(folder / (name + ".cu")) << cuda::matrix_code(function);
    opened(folder / (name + ".inc")) << function;
  };
  write_narrow("narrow_dots0", cuda::dots_function({DType::bf16, Along::large, 16, 4, 32}));
  write_narrow("narrow_dots1", cuda::dots_function({DType::f16, Along::narrow, 48}));
  write_narrow("narrow_dots2", cuda::dots_function({DType::f32, Along::neither, 32, 2}));
  write_narrow("narrow_sums0", cuda::sums_function({DType::bf16, Along::neither, 64}));
  write_narrow("narrow_sums1", cuda::sums_function({DType::f32, Along::neither, 32}));
  write_narrow("narrow_spread0", cuda::spread_function({DType::bf16, Along::narrow}));
  write_narrow("narrow_spread1", cuda::spread_function({DType::f32, Along::neither}));
  write_narrow("low_rank_lower0", cuda::lower_function({DType::bf16, Along::large, 16, 2}));
  write_narrow("low_rank_lower1", cuda::lower_function({DType::f32, Along::large, 32}));
  write_narrow("low_rank_lift0", cuda::lift_function({DType::bf16, Along::narrow}));
  write_narrow("low_rank_lift1", cuda::lift_function({DType::f32, Along::neither}));
}

kernel_cases::Kernels make_kernels(const std::string& which) {
  kernel_cases::Kernels kernels(target_for({ir::Device::Kind::cuda}));
  add_fused(kernels, which == "samples" ? fused_cases::samples() : fused_cases::table());
  if (which != "samples")
    add_operators(kernels, which == "all" ? kernel_cases::Amount::all : kernel_cases::Amount::few);
  return kernels;
}

void run(const std::string& which, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto kernels = make_kernels(which);
  const auto kept = coded(write_cases(folder / "cases", kernels), /*fewer_blocks=*/which == "samples");
  for (size_t begin = 0, part = 0; begin < kept.size(); begin += kernels_in_a_part, ++part)
    write_part(folder / ("part" + std::to_string(part) + ".cpp"), kept, begin,
               std::min(begin + kernels_in_a_part, kept.size()));
  write_table(folder / "table.c", kept);
  if (which == "samples") write_written(folder);
  opened(folder / "single.cu") << cuda::code_of({&kept[0].named->kernel});
  auto layouts = opened(folder / "layouts");
  for (const auto& each : kept)
    layouts << layout_text(each.named->kernel) << ": " << each.named->name << "\n";
  std::cout << kept.size() << " kernels, "
            << kernels.left_out() + static_cast<int64_t>(kernels.all().size() - kept.size()) << " left out\n";
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() != 2 || (words[0] != "samples" && words[0] != "usual" && words[0] != "all"))
      throw std::invalid_argument("cuda_kernels samples|usual|all FOLDER");
    graft::run(words[0], words[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
