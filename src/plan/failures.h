// Which steps can fail by what is in their data: an index outside of its table, a whole number divided by
// zero. Results are written into inputs only where nothing can fail from then on: a call that throws has
// changed nothing.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "codegen/fusion.h"
#include "ir/graph.h"

namespace graft::plan {

/// Goes through nodes or steps in the order in which they run. What one has checked the next ones need not
/// fear: all layers of a model write their caches at the same places.
class Failures {
 public:
  /// Whether it can fail, after all that was passed before. `always`: it runs in every call.
  bool next(const ir::Node& node, bool always = true);
  bool next(const codegen::Step& step, bool always = true);

 private:
  bool is_below(const ir::Value& index, int64_t size) const;
  bool next_kernel(const codegen::Step& step, bool always);

  /// By the value whose memory it is: all its elements are at least 0 and below this.
  std::unordered_map<const ir::Value*, int64_t> below_;
};

/// By step. `always` says which of them run in every call.
std::vector<bool> steps_that_can_fail(const codegen::Schedule& schedule, const std::vector<bool>& always);

}  // namespace graft::plan
