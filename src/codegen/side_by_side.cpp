#include "codegen/side_by_side.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "codegen/predicates.h"

namespace graft::codegen {
namespace {

// The further a kernel is moved, the longer what it reads or makes waits in memory.
constexpr size_t farthest = 64;
constexpr size_t most_kernels = 16, most_buffers = 96;

bool can_fail(const Kernel& kernel) {
  return std::ranges::any_of(kernel.code, [](const auto& i) { return !i.indirect.empty(); });
}

class SideBySide {
 public:
  SideBySide(const ir::Graph& graph, Schedule& schedule, const LaunchKind& kind_of)
      : steps_(std::move(schedule.steps)), moved_(steps_.size()), needs_(steps_.size()) {
    find_needs();
    Schedule all;
    all.steps = std::move(steps_);
    const auto conditions = predicates(graph, all).steps;
    steps_ = std::move(all.steps);
    kinds_.reserve(steps_.size());
    for (size_t i = 0; i < steps_.size(); ++i) {
      const auto& step = steps_[i];
      const bool alone = step.external || step.onto || step.kernel.scatters() || can_fail(step.kernel) ||
                         (i < conditions.size() && conditions[i]);
      kinds_.push_back(alone ? 0 : kind_of(step.kernel));
    }
  }

  std::vector<Step> run() && {
    for (next_ = 0; next_ < steps_.size(); ++next_) {
      if (moved_[next_]) continue;
      for (const size_t needed : needs_[next_]) launch_if_waiting(needed);
      launch_old();
      if (const auto kind = kinds_[next_]; kind == 0) {
        take(next_);
      } else {
        if (!has_room(waiting_[kind], next_)) launch(kind);
        waiting_[kind].push_back(next_);
      }
    }
    for (auto& [kind, kernels] : waiting_) launch(kind);
    return std::move(ordered_);
  }

 private:
  /// What must have run before each step: who writes what it reads or adds to, and who reads the memory that
  /// it writes over.
  void find_needs() {
    std::unordered_map<const ir::Value*, std::vector<size_t>> writers, readers;
    const auto add = [&](size_t step, const std::vector<size_t>& others) {
      for (const size_t other : others)
        if (other != step) needs_[step].push_back(other);
    };
    for (size_t i = 0; i < steps_.size(); ++i) {
      const auto& step = steps_[i];
      const auto read = [&](const ir::Value& value) {
        add(i, writers[&root_of(value)]);
        readers[&root_of(value)].push_back(i);
      };
      if (step.external) {
        for (const auto* value : step.external->inputs()) read(*value);
        for (const auto& output : step.external->outputs()) writers[output.get()].push_back(i);
        continue;
      }
      for (const auto* value : step.buffers) read(*value);
      if (step.onto) {
        read(*step.onto);
        add(i, readers[&root_of(*step.onto)]);
      }
      for (size_t b = 0; b < step.buffers.size(); ++b)
        if (step.kernel.buffers[b].written) writers[&root_of(*step.buffers[b])].push_back(i);
    }
  }

  bool has_room(const std::vector<size_t>& kernels, size_t one_more) const {
    size_t buffers = steps_[one_more].buffers.size();
    for (const size_t i : kernels) buffers += steps_[i].buffers.size();
    return kernels.size() < most_kernels && buffers <= most_buffers;
  }

  void launch_if_waiting(size_t step) {
    if (!moved_[step] && kinds_[step] != 0) launch(kinds_[step]);
  }

  void launch_old() {
    for (auto& [kind, kernels] : waiting_)
      if (!kernels.empty() && next_ - kernels.front() > farthest) launch(kind);
  }

  /// Those that wait, and those further down that could run now.
  void launch(int64_t kind) {
    auto kernels = std::exchange(waiting_[kind], {});
    if (kernels.empty()) return;
    const size_t end = std::min(steps_.size(), next_ + farthest);
    for (size_t i = next_ + 1; i < end; ++i) {
      const bool fits = kinds_[i] == kind && !moved_[i] && has_room(kernels, i) &&
                        std::ranges::all_of(needs_[i], [&](size_t needed) { return bool{moved_[needed]}; });
      if (fits) kernels.push_back(i);
    }
    for (size_t k = 0; k < kernels.size(); ++k) {
      take(kernels[k]);
      ordered_.back().with_last = k > 0;
    }
  }

  void take(size_t step) {
    moved_[step] = true;
    ordered_.push_back(std::move(steps_[step]));
  }

  std::vector<Step> steps_, ordered_;
  std::vector<bool> moved_;
  std::vector<std::vector<size_t>> needs_;
  std::vector<int64_t> kinds_;
  std::map<int64_t, std::vector<size_t>> waiting_;  // of each kind, in their order
  size_t next_ = 0;
};

}  // namespace

void put_side_by_side(const ir::Graph& graph, Schedule& schedule, const LaunchKind& kind_of) {
  const bool any = std::ranges::any_of(
      schedule.steps, [&](const Step& step) { return !step.external && kind_of(step.kernel) != 0; });
  if (any) schedule.steps = SideBySide(graph, schedule, kind_of).run();
}

}  // namespace graft::codegen
