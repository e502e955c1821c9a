#include "capture/training_flag.h"

#include <torch/nn/modules/dropout.h>

#include "capture/reveal.h"
#include "support/guarded_state.h"

namespace graft {

struct TrainingTag {
  using type = bool torch::nn::Module::*;
  friend type reveal(TrainingTag);
};
template struct Reveal<TrainingTag, &torch::nn::Module::is_training_>;

namespace {

class TrainingFlag : public GuardedState {
 public:
  explicit TrainingFlag(const torch::nn::Module& module)
      : module_(&module), alive_(module.weak_from_this()), shared_(!alive_.expired()) {}
  /// A module that is gone has a third state. One that no shared_ptr owns lives as long as the function that
  /// refers to it.
  uint64_t value() const override {
    const auto held = alive_.lock();
    return shared_ && !held ? 2 : training_of(*module_) ? 1 : 0;
  }

 private:
  const torch::nn::Module* module_;
  std::weak_ptr<const torch::nn::Module> alive_;
  bool shared_;
};

constexpr const char* kTrainingFlag = "the training flag of a module";

}  // namespace

bool training_of(const torch::nn::Module& module) { return module.*reveal(TrainingTag{}); }

/// What Module::is_training() does beside giving the flag.
void note_training_flag(const torch::nn::Module& module) noexcept {
  if (StateReads::active()) read_state(std::make_shared<TrainingFlag>(module), kTrainingFlag, &module);
}

bool training_flags_are_seen() {
  static const bool seen = [] {
    const StateReads reads;
    const auto module = std::make_shared<torch::nn::DropoutImpl>();
    // As libtorch asks: through the table, whatever the compiler knows of the type.
    const torch::nn::Module* volatile any = module.get();
    any->is_training();
    return !reads.reads().empty();
  }();
  return seen;
}

}  // namespace graft

namespace torch::nn {

bool Module::is_training() const noexcept {
  graft::note_training_flag(*this);
  return is_training_;
}

}  // namespace torch::nn
