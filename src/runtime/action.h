// What a scheduled program consists of: slots for tensors, and actions over them.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ir/type.h"
#include "runtime/work.h"

namespace graft::runtime {

/// A slot of the table: one tensor that a run deals with.
struct Slot {
  enum class Kind : uint8_t { input, arena, own, made, view } kind;
  ir::TensorType type;
  int64_t place = 0;   // arena: bytes; view: elements into the root
  size_t root = none;  // view: slot of the root
  size_t into = none;  // own: the input that a run in place writes instead
};

struct Action {
  std::unique_ptr<Work> work;  // null: there is nothing to do
  bool is_kernel = false;
  std::vector<size_t> uses;       // slots that the work reads or writes, for as long as they must live
  std::vector<size_t> writes;     // of these, those that a kernel writes
  std::vector<size_t> wanted_by;  // columns of the routing table: one must be in use; empty: it always runs
  std::vector<size_t> zeros;      // slots that get zeros when it does not run
  size_t else_from = none, else_to = none;  // or this slot is copied to that
  std::vector<size_t> make;  // slots to be made before: memory of results, views of what is not in the arena
  std::vector<size_t> dead;  // slots that nobody needs after it
  std::string what;          // for errors
  mutable std::atomic<int64_t> nanoseconds{0};  // spent in it, where times are logged
};

}  // namespace graft::runtime
