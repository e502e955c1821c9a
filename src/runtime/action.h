// What a scheduled program consists of: slots for tensors, actions over them, and the frame of one run.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/fusion.h"
#include "ir/graph.h"
#include "runtime/aten_call.h"
#include "runtime/kept_memory.h"
#include "runtime/launcher.h"
#include "runtime/packed_product.h"
#include "runtime/step_values.h"

namespace graft::runtime {

constexpr size_t none = ~size_t{0};

/// A slot of the table: one tensor that a run deals with.
struct Slot {
  enum class Kind : uint8_t { input, arena, own, made, view } kind;
  ir::TensorType type;
  int64_t place = 0;   // arena: bytes; view: elements into the root
  size_t root = none;  // view: slot of the root
  size_t into = none;  // own: the input that a run in place writes instead
};

struct Pointer {
  size_t slot;
  int64_t bytes;
  bool written;
};

/// Products that can write where they are told.
enum class Product : uint8_t { mm, bmm, addmm, low_rank };

inline std::optional<Product> product_of(const ir::Node& node) {
  if (node.outputs().size() != 1 || !node.output().type().is_contiguous()) return std::nullopt;
  if (node.op() == "aten::mm") return Product::mm;
  if (node.op() == "aten::bmm") return Product::bmm;
  if (node.op() == "aten::addmm") return Product::addmm;
  if (node.op() == "graft::low_rank_add") return Product::low_rank;
  return std::nullopt;
}

struct Action {
  // A kernel:
  std::shared_ptr<const Launcher> launcher;
  std::vector<Pointer> buffers;
  // or a product into a planned buffer:
  std::optional<Product> product;
  size_t bias = none, a = none, b = none, out = none;
  double alpha = 1, beta = 1;
  // or one whose weight is packed:
  std::unique_ptr<PackedProduct> packed;
  size_t packed_number = none;
  std::string weight;  // its name
  // or any other call:
  std::unique_ptr<AtenCall> call;
  // which, if it is an index_copy, a run in place does upon the input itself:
  struct Update {
    size_t input, index, source, out;
    int64_t dim;
  };
  std::optional<Update> update;
  // Of a call, slots from which and to which what it made is moved: what waits for long lies in the arena.
  std::vector<std::pair<size_t, size_t>> moves;

  std::vector<size_t> wanted_by;  // columns of the routing table: one must be in use; empty: it always runs
  std::vector<size_t> zeros;      // slots that get zeros when it does not run
  bool else_self = false;         // or its result is what it would have been added to
  std::vector<size_t> make;  // slots to be made before: memory of results, views of what is not in the arena
  std::vector<size_t> dead;  // slots that nobody needs after it
  std::string what;          // for errors
  mutable std::atomic<int64_t> nanoseconds{0};  // spent in it, where times are logged
};

struct Frame {
  c10::Storage arena;  // over the memory of this run
  std::vector<at::Tensor> table;
  std::vector<KeptMemory> kept;                                      // by slot
  std::vector<std::shared_ptr<const PackedProduct::Packed>> packed;  // by place among the packed products
  std::vector<SeenPair> watched;  // of these, those whose weights others may write into
  std::vector<void*> pointers;
  std::vector<char> in_use;  // columns of the routing table that have a row
};

}  // namespace graft::runtime
