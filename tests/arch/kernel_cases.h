// The kernels that a target gets for the operator cases of unit/op_cases.h, and a file with made-up data and
// the results that are allowed on it (codegen/evaluate.h). run_kernels.c reads that file and says how it is
// made up. For arch_kernels.cpp and cuda_text/cuda_kernels.cpp, which make code of the kernels.
#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "codegen/kernel.h"
#include "ir/graph.h"
#include "targets/target.h"

namespace graft::kernel_cases {

struct NamedKernel {
  std::string name;  ///< says what it computes
  codegen::Kernel kernel;
  /// An index is out of range in one more round.
  bool fails = false;
};

/// Each different kernel once.
class Kernels {
 public:
  explicit Kernels(const Target& target) : target_(target) {}
  const std::vector<NamedKernel>& all() const { return all_; }
  int64_t left_out() const { return left_out_; }

  void add(ir::Graph graph, const std::string& where, bool fails = false);

 private:
  const Target& target_;
  std::vector<NamedKernel> all_;
  std::set<std::string> seen_;
  int64_t left_out_ = 0;
};

enum class Amount : uint8_t {
  few,    ///< one layout; types other than float32 for some cases
  usual,  ///< two layouts in all types
  all     ///< all layouts
};

/// Of the operator cases.
void add_operators(Kernels& kernels, Amount amount);

/// Writes the file, and gives the kernels that are in it.
std::vector<const NamedKernel*> write_cases(const std::filesystem::path& path, const Kernels& kernels);

}  // namespace graft::kernel_cases
