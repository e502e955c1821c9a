// What the graph knows of memory: which value a tensor shows, after all that was written through other
// tensors.
//
// A run changes memory; a graph has values, each defined once. `Memory` stands between: a Region is memory
// that one tensor covers (an input of the graph, or the fresh result of a call) with the value that is in it
// now. A tensor is the region's own, or a view of it by a chain of recorded calls: read after a write, the
// chain is recorded again over the new value; written through, the write goes up the chain as scatters.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace graft {

class Memory {
 public:
  struct View;
  /// How a tensor reads its memory.
  struct Bits {
    bool conj = false, neg = false;
    bool operator==(const Bits&) const = default;
  };
  struct Region {
    ir::TensorType type;  ///< of the tensor that covers it, as it lies in memory
    int64_t offset = 0;   ///< of that tensor in its storage
    ir::Value* value = nullptr;
    uint64_t version = 0;              ///< counts writes
    std::optional<size_t> input = {};  ///< of the graph; none: made by the function
    bool empty = false;                ///< nothing was written yet
    Bits bits = {};
    std::vector<std::weak_ptr<View>> views;
  };
  struct View {
    std::shared_ptr<Region> region;
    std::shared_ptr<View> parent;  ///< null: of the region's own tensor
    const ir::Node* call;          ///< that makes it from its parent
    size_t output;                 ///< of that call
    ir::TensorType type;
    int64_t offset;
    ir::Value* value;
    uint64_t version;  ///< of the region, when `value` was what it shows
    Bits bits;
  };
  /// A tensor: the region's own, or a view of it.
  struct Place {
    std::shared_ptr<Region> region;
    std::shared_ptr<View> view;
  };

  explicit Memory(ir::Graph& graph) : graph_(graph) {}

  /// Where a tensor lies; nothing for one that no recorded call made.
  std::optional<Place> find(const at::Tensor& tensor) const;
  /// For a tensor object made without the dispatcher (autograd makes such of what it saved) over memory that
  /// is known: the place of another tensor of the same sizes there.
  std::optional<Place> find_twin(const at::Tensor& tensor) const;
  /// Regions in the same storage.
  std::vector<std::shared_ptr<Region>> regions_of(const at::Tensor& tensor) const;

  std::shared_ptr<Region> enter(const at::Tensor& tensor, ir::Value& value);
  void enter_view(const at::Tensor& tensor, const Place& of, ir::Value& value);
  void enter_twin(const at::Tensor& tensor, const Place& place);

  ir::Value& read(const Place& place);
  /// False where a write through this view cannot be said in a graph.
  bool write(const Place& place, ir::Value& value);

  /// Tensors that are still alive, with the call that made each.
  void each_alive(const std::function<void(const c10::TensorImpl*, const Place&)>& see) const;
  /// Storages that are still alive, with a region of each that the function made; those that inputs lie in
  /// are left out.
  void each_alive_storage(const std::function<void(const c10::StorageImpl*, const Region&)>& see) const;

 private:
  struct KnownTensor {
    c10::weak_intrusive_ptr<c10::TensorImpl> alive;
    Place place;
    const c10::StorageImpl* storage;
  };
  struct StorageRegions {
    c10::weak_intrusive_ptr<c10::StorageImpl> alive;
    std::vector<std::shared_ptr<Region>> regions;
  };
  ir::Value& read_view(View& view);
  ir::Value* inverse(const View& view, ir::Value& onto, ir::Value& value);
  ir::Value* other_parts(ir::Value& value, const std::string& op, ir::Value& onto);
  ir::Value& add(const std::string& op, std::vector<ir::NamedArgument> arguments, ir::TensorType type);
  ir::Value& laid_out_as(ir::Value& value, ir::Value& old, const ir::TensorType& type);

  ir::Graph& graph_;
  // By address; an address may be used again after a tensor's death, so a weak pointer guards each.
  std::unordered_map<const c10::TensorImpl*, KnownTensor> known_;
  std::unordered_map<const c10::StorageImpl*, StorageRegions> storages_;
};

}  // namespace graft
