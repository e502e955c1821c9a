// Runs a schedule: kernels over planned memory, calls into ATen between them.
//
// Temporaries of one run lie in one arena, at places that were planned once, lent for the run; the tensors
// over it form a frame, and each concurrent run takes one from a pool. What leaves the executable (results,
// and saved values for a backward pass) has memory of its own.
#pragma once
#include <ATen/core/Generator.h>

#include <memory>
#include <vector>

#include "codegen/fusion.h"
#include "runtime/choices.h"
#include "runtime/executable.h"
#include "runtime/launcher.h"

namespace graft {

struct CompiledKernels {
  std::vector<std::shared_ptr<const Launcher>>
      launchers;  ///< one for each kernel of the schedule, in its order
  int64_t unique = 0;
  int64_t cache_hits = 0;
};

/// What the caller promises about inputs and results.
struct Bindings {
  std::vector<InPlace> in_place;
  std::vector<size_t>
      frozen;  ///< inputs that stay the same from run to run, unless their version says otherwise
  /// Memory of results is used again once the caller has let it go. Not where forward and backward take
  /// turns: what the one holds back the other could use.
  bool keep_results = true;
  runtime::Measuring measuring = {};
};

/// The graph may go afterwards.
std::unique_ptr<Executable> make_scheduled(const ir::Graph& graph, const codegen::Schedule& schedule,
                                           CompiledKernels kernels,
                                           const std::vector<at::Generator>& generators,
                                           const Bindings& bindings);

}  // namespace graft
