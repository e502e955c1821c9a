// Which adapters work on which rows of a call.
#pragma once
#include <optional>
#include <vector>

#include "adapters/gate.h"
#include "adapters/row_data.h"
#include "nn/call_context.h"

namespace graft::adapters {

/// For one call: a gate per slot. A slot is an adapter's place in the model.
class Routing : public nn::CallContext {
 public:
  /// `owner` tells one model's routing from another's, where models are nested.
  explicit Routing(const void* owner) : owner_(owner) {}

  const void* owner() const { return owner_; }
  /// Null: the adapter does not take part.
  const Gate* gate(size_t slot) const {
    return slot < gates_.size() && gates_[slot] ? &*gates_[slot] : nullptr;
  }
  /// The same routing for a call that says something of its rows.
  std::shared_ptr<Routing> told(const RowData& data) const {
    auto routing = std::make_shared<Routing>(*this);
    for (size_t slot = 0; slot < gates_.size(); ++slot)
      if (auto& gate = routing->gates_[slot])
        gate->tell(data.last.defined() ? data.last.select(1, static_cast<int64_t>(slot)) : at::Tensor(),
                   data.task_ids);
    return routing;
  }
  /// The same routing for a call whose rows are calls of their own.
  std::shared_ptr<Routing> apart() const {
    auto routing = std::make_shared<Routing>(*this);
    for (auto& gate : routing->gates_)
      if (gate) gate->keep_apart();
    return routing;
  }
  void tell_shares(size_t slot, at::Tensor shares) { gates_.at(slot)->tell_shares(std::move(shares)); }
  void set(size_t slot, Gate gate) {
    if (slot >= gates_.size()) gates_.resize(slot + 1);
    gates_[slot] = std::move(gate);
  }

 private:
  const void* owner_;
  std::vector<std::optional<Gate>> gates_;
};

}  // namespace graft::adapters
