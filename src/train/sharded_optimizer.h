// ZeRO's first stage: each process keeps the optimizer's state of some tensors and changes those, then all
// get them.
#pragma once
#include "train/optimizer.h"

namespace graft::train {

/// By the arguments' `optim`, with the tensors distributed by their sizes. state() and step() are for all
/// processes to call; the first is given the whole state.
std::unique_ptr<Optimizer> make_sharded_optimizer(const TrainingArguments& arguments,
                                                  const std::vector<Trained>& tensors,
                                                  const std::shared_ptr<ProcessGroup>& group);

}  // namespace graft::train
