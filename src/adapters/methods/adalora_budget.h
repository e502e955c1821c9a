// How many singular values AdaLoRA may have at each step of training, and which ones keep theirs.
#pragma once
#include <map>

#include "adapters/part.h"

namespace graft::adapters {

/// The number of ranks over all layers: all of them at first, then fewer along a cubic, at last the target.
struct AdaLoraSchedule {
  int64_t tinit, tfinal, total_step, every;

  explicit AdaLoraSchedule(const AdapterConfig& config);
  struct Budget {
    int64_t ranks;
    bool allocate;  ///< whether this step decides again which ones
  };
  Budget at(int64_t step, int64_t initial, int64_t target) const;
  /// The step that decides for good.
  int64_t last() const { return total_step - tfinal; }
};

/// Of one adapter: all its layers compete for the ranks. PEFT's RankAllocator, with what PEFT's model keeps
/// around it.
class AdaLoraBudget : public Shared {
 public:
  explicit AdaLoraBudget(const AdapterConfig& config);

  std::vector<Entry> entries() const override { return {}; }
  /// orth_reg_weight times the mean distance of A Aᵀ and BᵀB from the identity. As in PEFT it is left out
  /// where the configuration names no task.
  at::Tensor penalty() const override;
  bool has_penalty() const override { return true; }

  /// A layer's A [r, in], E [r, 1] and B [out, r], which it changes in place.
  void add(const std::string& path, const at::Tensor& a, const at::Tensor& e, const at::Tensor& b);

  /// To be called in every step after the optimiser's, while the gradients are there.
  /// Returns whether the ranks were chosen again.
  bool update_and_allocate(int64_t step);

  /// Which ranks the layer at `path` has; nothing before the first choice.
  std::optional<std::vector<bool>> chosen(const std::string& path) const;
  /// The same for all layers.
  std::map<std::string, std::vector<bool>> chosen() const;
  /// What is kept from step to step, to be saved and to be written into.
  NamedTensors state() const;
  int64_t initial() const { return initial_; }
  int64_t target() const { return target_r_ * static_cast<int64_t>(layers_.size()); }
  const AdaLoraSchedule& schedule() const { return schedule_; }

 private:
  /// Running means of |weight * gradient| and of how much that moves.
  struct Importance {
    at::Tensor weight, mean, spread;
    explicit Importance(const at::Tensor& of);
    void update(double beta1, double beta2);
    at::Tensor score() const { return mean * spread; }
  };
  struct Layer {
    std::string path;
    Importance a, e, b;
    at::Tensor kept;  ///< whether a rank has its value [r], on the host
    /// One number per rank.
    at::Tensor score() const;
  };
  void choose(int64_t ranks);

  AdaLoraSchedule schedule_;
  double beta1_, beta2_, penalty_weight_;
  int64_t target_r_, initial_ = 0;
  std::vector<Layer> layers_;
  /// Numbers that are saved with the tensors, and so are tensors: updates seen, choices made.
  at::Tensor updates_, choices_;
};

}  // namespace graft::adapters
