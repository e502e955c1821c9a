#include "train/sharded_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace graft::train {
namespace {

/// Whose each tensor is: the largest first, each to the process with the least so far. The same on all
/// processes.
std::vector<int> owners_of(const std::vector<Trained>& tensors, int processes) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].tensor.numel() > tensors[b].tensor.numel(); });
  std::vector<int64_t> load(static_cast<size_t>(processes), 0);
  std::vector<int> owners(tensors.size());
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += tensors[i].tensor.numel();
    owners[i] = static_cast<int>(least - load.begin());
  }
  return owners;
}

class ShardedOptimizer : public Optimizer {
 public:
  ShardedOptimizer(const TrainingArguments& arguments, const std::vector<Trained>& tensors,
                   std::shared_ptr<ProcessGroup> group)
      : group_(std::move(group)) {
    const auto owners = owners_of(tensors, group_->size());
    std::vector<Trained> own;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (owners[i] == group_->rank()) {
        own.push_back(tensors[i]);
        mine_.push_back(i);
      }
      packs_[{owners[i], tensors[i].tensor.scalar_type()}].push_back(tensors[i].tensor);
    }
    own_ = make_optimizer(arguments, own);
  }

  void step(const std::vector<at::Tensor>& gradients, double learning_rate) override {
    std::vector<at::Tensor> own;
    own.reserve(mine_.size());
    for (const size_t i : mine_) own.push_back(gradients[i]);
    own_->step(own, learning_rate);
    // One message for all tensors of a process and dtype.
    for (const auto& [key, tensors] : packs_) {
      std::vector<at::Tensor> flat;
      flat.reserve(tensors.size());
      for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
      const auto pack = at::cat(flat);
      group_->broadcast(pack, key.first);
      if (key.first == group_->rank()) continue;
      int64_t at = 0;
      for (const auto& tensor : tensors) {
        tensor.copy_(pack.slice(0, at, at + tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
      }
    }
  }

  NamedTensors state() const override {
    NamedTensors all;
    for (int rank = 0; rank < group_->size(); ++rank) {
      auto part = broadcast_named(*group_, rank == group_->rank() ? own_->state() : NamedTensors{}, rank);
      if (group_->is_main()) std::move(part.begin(), part.end(), std::back_inserter(all));
    }
    return all;
  }

  /// The file has everybody's, perhaps of another number of processes.
  void restore(const SafetensorsFile& from, bool /*part*/) override {
    train::restore(own_->state(), from, /*part=*/true);
  }

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::vector<size_t> mine_;
  std::map<std::pair<int, at::ScalarType>, std::vector<at::Tensor>> packs_;
  std::unique_ptr<Optimizer> own_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sharded_optimizer(const TrainingArguments& arguments,
                                                  const std::vector<Trained>& tensors,
                                                  const std::shared_ptr<ProcessGroup>& group) {
  return std::make_unique<ShardedOptimizer>(arguments, tensors, group);
}

}  // namespace graft::train
