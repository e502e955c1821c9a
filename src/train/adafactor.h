// Adafactor as transformers' Trainer sets it up: no relative steps, no scaling by the parameter's size.
#pragma once
#include "train/optimizer.h"

namespace graft::train {

std::unique_ptr<Optimizer> make_adafactor(double weight_decay, const std::vector<Trained>& tensors);

}  // namespace graft::train
