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
#include "runtime/executable.h"
#include "runtime/launcher.h"
#include "runtime/prepared.h"

namespace graft {

/// The graph may go afterwards; the device stays.
std::unique_ptr<Executable> make_scheduled(const ir::Graph& graph, const codegen::Schedule& schedule,
                                           const CompiledKernels& kernels,
                                           const std::vector<at::Generator>& generators,
                                           const Bindings& bindings, const runtime::Device& device);

}  // namespace graft
