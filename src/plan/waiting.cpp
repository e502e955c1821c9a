#include "plan/waiting.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ir/op_traits.h"
#include "plan/step_values.h"

namespace graft::plan {
namespace {

using Steps = std::vector<codegen::Step>;

/// A value that a step makes, from that step to the last that needs it.
struct Made {
  const ir::Value* value;
  size_t from, to;
  int64_t bytes;
  bool in_arena;       ///< else a call brings it, in memory of its own
  bool moved = false;  ///< a call brings it, and from the next step on it lies in the arena
};

std::vector<Made> all_made(const Steps& steps, const std::unordered_set<const ir::Value*>& leaves) {
  std::unordered_map<const ir::Value*, size_t> last;
  for (size_t i = 0; i < steps.size(); ++i)
    for (const auto* value : touched_by(steps[i])) last[&codegen::root_of(*value)] = i;
  std::vector<Made> all;
  std::unordered_map<const ir::Value*, size_t> known;  // a scatter's buffer is written twice
  const auto make = [&](const ir::Value& value, size_t step, bool in_arena) {
    const auto use = last.find(&value);
    if (use != last.end() && !leaves.contains(&value) && known.emplace(&value, step).second)
      all.push_back({&value, step, use->second, value.type().bytes(), in_arena});
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& step = steps[i];
    if (!step.external) {
      for (size_t k = 0; k < step.buffers.size(); ++k)
        if (step.kernel.buffers[k].written && !step.onto) make(codegen::root_of(*step.buffers[k]), i, true);
    } else if (ir::kind_of(step.external->op()) != ir::OpKind::view) {
      const bool product = ir::kind_of(step.external->op()) == ir::OpKind::matmul;
      for (const auto& output : step.external->outputs()) make(*output, i, product);
    }
  }
  return all;
}

/// What a call takes for itself while it runs: convolutions lay their arguments out again. Nobody says how
/// much that is; about as much as the largest of them.
std::vector<int64_t> scratch_of(const Steps& steps) {
  std::vector<int64_t> bytes;
  for (const auto& step : steps) {
    int64_t most = 0;
    if (step.external && ir::kind_of(step.external->op()) == ir::OpKind::convolution) {
      for (const auto* input : step.external->inputs()) most = std::max(most, input->type().bytes());
      for (const auto& output : step.external->outputs()) most = std::max(most, output->type().bytes());
    }
    bytes.push_back(most);
  }
  return bytes;
}

/// The arena, which has one size from the first step to the last, and the most that lies beside it.
struct Peak {
  int64_t arena = 0, beside = 0;
  size_t at = 0;  ///< the step with the most beside it
  int64_t all() const { return arena + beside; }
};

Peak peak_of(const std::vector<Made>& all, const std::vector<int64_t>& scratch) {
  std::vector<int64_t> arena(scratch.size() + 1), beside(scratch.size() + 1);
  const auto add = [](std::vector<int64_t>& to, const Made& made, size_t last) {
    to[made.from] += made.bytes;
    to[last + 1] -= made.bytes;
  };
  for (const auto& made : all) {
    if (made.in_arena || made.moved) add(arena, made, made.to);
    if (!made.in_arena) add(beside, made, made.moved ? made.from : made.to);
  }
  Peak peak;
  int64_t in_arena = 0, is_beside = 0;
  for (size_t i = 0; i < scratch.size(); ++i) {
    peak.arena = std::max(peak.arena, in_arena += arena[i]);
    is_beside += beside[i];
    if (is_beside + scratch[i] <= peak.beside) continue;
    peak.beside = is_beside + scratch[i];
    peak.at = i;
  }
  return peak;
}

/// Moves results of calls of the backward part where that makes the whole smaller: one by one, the largest of
/// those that are there when the most lies beside the arena. A move takes time, so it has to pay.
void move_where_it_pays(std::vector<Made>& all, size_t boundary, const std::vector<int64_t>& scratch) {
  std::vector<bool> tried(all.size());
  for (auto now = peak_of(all, scratch);;) {
    std::optional<size_t> largest;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& made = all[i];
      const bool there = made.from < now.at && made.to >= now.at && made.from > boundary;
      if (!there || tried[i] || made.in_arena || made.moved || made.bytes * 64 < now.all()) continue;
      if (!largest || made.bytes > all[*largest].bytes) largest = i;
    }
    if (!largest) return;
    tried[*largest] = true;
    all[*largest].moved = true;
    const auto then = peak_of(all, scratch);
    if (then.all() <= now.all() - all[*largest].bytes / 2)
      now = then;
    else
      all[*largest].moved = false;
  }
}

}  // namespace

std::vector<const ir::Value*> results_that_wait(const codegen::Schedule& schedule,
                                                const std::unordered_set<const ir::Value*>& leaves) {
  const auto& steps = schedule.steps;
  const auto found = std::find_if(steps.begin(), steps.end(), [](const codegen::Step& step) {
    return step.external && step.external->op() == "graft::boundary";
  });
  if (found == steps.end()) return {};
  const auto boundary = static_cast<size_t>(found - steps.begin());
  auto all = all_made(steps, leaves);
  for (auto& made : all)
    made.moved = !made.in_arena && made.bytes > 0 && made.from < boundary && made.to >= boundary;
  move_where_it_pays(all, boundary, scratch_of(steps));
  std::vector<const ir::Value*> waiting;
  for (const auto& made : all)
    if (made.moved) waiting.push_back(made.value);
  return waiting;
}

}  // namespace graft::plan
