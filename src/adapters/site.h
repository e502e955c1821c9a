// All adapters on one layer.
#pragma once
#include <mutex>

#include "adapters/part.h"
#include "adapters/routing.h"
#include "support/guarded_state.h"

namespace graft::adapters {

/// The routing of calls that bring none: what set_adapter() and disable_adapter() chose. A program that is
/// captured over it serves only calls of the same choice.
class DefaultRouting {
 public:
  std::shared_ptr<const Routing> get() const;
  /// `working` are the slots that have a gate.
  void set(std::shared_ptr<const Routing> routing, const std::vector<size_t>& working);

 private:
  std::shared_ptr<StateVersion> choice_ = std::make_shared<StateVersion>();
  mutable std::mutex guard_;
  std::shared_ptr<const Routing> routing_;
};

class Site : public nn::Wrapper {
 public:
  explicit Site(std::shared_ptr<const DefaultRouting> routing) : default_(std::move(routing)) {}

  at::Tensor forward(const nn::WeightedLayer& layer, const at::Tensor& x) override;
  /// Its slots are of this model's history: PeftModel::save() goes by the adapters' names.
  bool is_serializable() const override { return false; }

  /// Parts of one adapter may be several on a layer. `type` is the method: as in PEFT, a method that came
  /// later works around those that came before.
  void add(size_t slot, const std::string& type, const std::shared_ptr<Part>& part);
  void remove(size_t slot);
  /// The adapters of these slots work together, in this order: where that matters, their parts stand so.
  void arrange(const std::vector<size_t>& slots);
  bool empty() const { return parts_.empty(); }

  /// Puts the parts of these slots into the layer's weights, each method's in that order; the weights as they
  /// were are kept.
  void merge(nn::WeightedLayer& layer, const std::vector<size_t>& slots, bool check_finite);
  /// The very weights of before, where the model was not moved or cast meanwhile.
  void unmerge(nn::WeightedLayer& layer);

 private:
  struct Placed {
    size_t slot;
    size_t type;  // its place by type_of(): the lower, the nearer to the layer
    std::string name;
    std::shared_ptr<Part> part;
  };
  at::Tensor call(const nn::WeightedLayer& layer, const Routing& routing, size_t i,
                  const at::Tensor& x) const;
  size_t type_of(const std::string& type);

  std::shared_ptr<const DefaultRouting> default_;
  std::vector<std::string> types_;
  std::vector<Placed> parts_;  // outermost first
  size_t next_name_ = 0;
  std::optional<Weights> unmerged_;
  std::shared_ptr<StateVersion> structure_ = std::make_shared<StateVersion>();  // of parts_
};

}  // namespace graft::adapters
