// How many kernels and calls a graph in text becomes.
#pragma once
#include <ostream>
#include <string>

#include "codegen/fusion.h"
#include "compiler/lower.h"
#include "ir/parser.h"
#include "passes/pipeline.h"
#include "targets/targets.h"

namespace graft::testing_tools {

struct Counts {
  int kernels = 0, calls = 0;
  bool operator==(const Counts&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Counts& c) {
    return out << c.kernels << " kernels, " << c.calls << " calls";
  }
};

inline Counts counts_of(const std::string& text) {
  auto graph = ir::parse(text);
  passes::run_passes(passes_for(target_for({})), graph);
  Counts counts;
  for (const auto& step : codegen::schedule(graph, target_for({}).limits()).steps)
    ++(step.external ? counts.calls : counts.kernels);
  return counts;
}

}  // namespace graft::testing_tools
