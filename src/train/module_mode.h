// A module in training or in evaluation for a while.
#pragma once
#include <torch/nn/module.h>

namespace graft::train {

/// In that mode while it lives, then as it was.
class ModuleMode {
 public:
  ModuleMode(torch::nn::Module& module, bool training) : module_(module), before_(module.is_training()) {
    module_.train(training);
  }
  ~ModuleMode() { module_.train(before_); }
  ModuleMode(const ModuleMode&) = delete;
  ModuleMode& operator=(const ModuleMode&) = delete;

 private:
  torch::nn::Module& module_;
  bool before_;
};

}  // namespace graft::train
