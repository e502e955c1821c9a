// A schedule made ready to run: which memory each value lies in, what is called with what, what comes and
// goes.
#pragma once
#include <ATen/core/Generator.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cache/choices.h"
#include "codegen/fusion.h"
#include "runtime/action.h"
#include "runtime/executable.h"
#include "runtime/launcher.h"

namespace graft {

/// What the caller promises about inputs and results.
struct Bindings {
  std::vector<InPlace> in_place;
  std::vector<size_t> frozen;  ///< inputs that seldom change from run to run
  /// Inputs, those of a list one after the other in one storage when the program was made.
  std::vector<std::vector<size_t>> neighbours;
  std::vector<size_t> own;  ///< of these, those that nobody but the program itself can write into
  /// Memory of results is used again once the caller has let it go. Not where forward and backward take
  /// turns: what the one holds back the other could use.
  bool keep_results = true;
  cache::Measuring measuring = {};
  bool record = false;  ///< runs are recorded and launched as one, where the device can do that
};

}  // namespace graft

namespace graft::runtime {

/// An input that a run in place writes into, and from which action on.
struct WrittenInput {
  size_t action, input;
  std::string name;
};

struct Prepared {
  const Device* device = nullptr;
  std::vector<Slot> slots;  ///< the graph's inputs come first
  std::deque<Action> actions;
  std::vector<size_t> results, last_views;
  std::vector<WrittenInput> in_place;
  std::vector<const PackedWork*> packed;  ///< the products whose weights are laid out
  size_t inputs = 0, most_buffers = 0, table = none;
  size_t last_check = none;  ///< the last action whose kernel can fail by its data
  int64_t arena_bytes = 0, extern_calls = 0, launches = 0;
  int64_t looks_at_weights = 1;  ///< parts of weights that each run compares with what they were
  bool keep_results = true;
  std::string not_recorded;  ///< why its runs are not; empty if they are

  /// Arena tensors and views of them are made once per frame; the rest comes and goes with a run.
  bool stays(const Slot& slot) const {
    return (slot.kind == Slot::Kind::view ? slots[slot.root].kind : slot.kind) == Slot::Kind::arena;
  }
};

/// One launcher for each kernel of the schedule, in its order. The device outlives it.
Prepared prepare(const ir::Graph& graph, const codegen::Schedule& schedule,
                 const std::vector<std::shared_ptr<const Launcher>>& launchers,
                 const std::vector<at::Generator>& generators, const Bindings& bindings,
                 const Device& device);

}  // namespace graft::runtime
