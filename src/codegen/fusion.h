// Which nodes of a graph become one kernel, and in what order kernels and calls run: level "fused".
//
// Nodes are taken in order; each joins a kernel of one of its producers if the two can be one loop nest, else
// it starts its own. Views vanish into indices. Cheap pointwise values are computed again where they are
// needed rather than written and read. What has no lowering is a call to ATen.
#pragma once
#include <string>
#include <vector>

#include "codegen/kernel.h"
#include "codegen/limits.h"
#include "ir/graph.h"

namespace graft::codegen {

struct Step {
  const ir::Node* external = nullptr;  ///< a call; else:
  Kernel kernel = {};
  std::vector<const ir::Value*> buffers =
      {};  ///< of the kernel, in its order; a view's is where the view begins
  std::vector<const ir::Node*> nodes = {};  ///< that the kernel computes
  /// Of a kernel that scatters: whose memory its result lies in, if that is no value of its own. Else an
  /// earlier step has written into the same buffer what the result is before.
  const ir::Value* onto = nullptr;
  /// A kernel that is launched as one with the step before it (side_by_side.h): they run at the same time.
  bool with_last = false;
};

struct Schedule {
  std::vector<Step> steps;
};

/// The value whose memory a value is seen in: itself unless it is a view.
const ir::Value& root_of(const ir::Value& value);

/// Every result of the graph, every argument of a call and every buffer read is written by an earlier step,
/// is an input, or is a view of one.
Schedule schedule(const ir::Graph& graph, const Limits& limits);

std::string to_string(const Schedule& schedule);

}  // namespace graft::codegen
