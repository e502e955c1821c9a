#include "runtime/folded_executable.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>

#include "graft/compile.h"
#include "ir/clone.h"
#include "runtime/tensor_stamp.h"

namespace graft {
namespace {

class FoldedExecutable : public Executable {
 public:
  FoldedExecutable(std::unique_ptr<Executable> main,
                   std::map<std::string, std::shared_ptr<Executable>> different)
      : main_(std::move(main)), different_(std::move(different)) {}

  void add(const passes::Folding::Group& group, const ir::Graph& main) {
    auto& added = groups_.emplace_back();
    added.run = different_.at(ir::to_string(group.graph));
    added.inputs = group.inputs;
    added.results = group.results;
    for (const size_t i : group.inputs) {
      added.names.push_back(main.input_name(i));
      const auto& type = main.inputs()[i]->type();
      bytes_ += type.numel() * ir::size_of(type.dtype);
    }
    values_ += group.results.size();
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    auto made = current_values(inputs);
    inputs.resize(inputs.size() + values_);
    for (size_t g = 0; g < groups_.size(); ++g)
      for (size_t i = 0; i < groups_[g].results.size(); ++i)
        inputs[groups_[g].results[i]] = made[g]->values[i];
    made.clear();
    return main_->run(std::move(inputs), in_place);
  }

  int64_t kernels() const override {
    return sum([](const Executable& each) { return each.kernels(); });
  }
  int64_t extern_calls() const override {
    return sum([](const Executable& each) { return each.extern_calls(); });
  }
  int64_t cache_hits() const override {
    return sum([](const Executable& each) { return each.cache_hits(); });
  }
  std::string describe() const override {
    std::string text = main_->describe() + "\n" + std::to_string(values_) +
                       " values made from weights alone, kept until a weight changes, in " +
                       std::to_string(groups_.size()) + " groups, " + std::to_string(different_.size()) +
                       " different";
    for (const auto& [graph, each] : different_) text += "\n  " + each->describe();
    return text;
  }

 private:
  struct Group;
  /// What a group has made, and of what.
  struct GroupValues {
    std::vector<at::Tensor> values;
    std::vector<runtime::TensorStamp> stamps;
    bool is_of(const Group& group, const std::vector<at::Tensor>& inputs) const;
  };
  struct Group {
    std::shared_ptr<Executable> run;
    std::vector<size_t> inputs, results;
    std::vector<std::string> names;           // of the inputs
    std::mutex making;                        // one at a time
    std::mutex guard;                         // of `made`
    std::shared_ptr<const GroupValues> made;  // null before the first call

    std::shared_ptr<const GroupValues> latest() {
      const std::lock_guard<std::mutex> lock(guard);
      return made;
    }
    void set(std::shared_ptr<const GroupValues> newer) {
      const std::lock_guard<std::mutex> lock(guard);
      made = std::move(newer);
    }
  };

  /// Calls at work continue with the values they have: new ones have memory of their own.
  std::shared_ptr<const GroupValues> refreshed(Group& group, const std::vector<at::Tensor>& inputs) const {
    // Weights are looked at without the lock: other threads do so at the same time.
    if (auto known = group.latest(); known && known->is_of(group, inputs)) return known;
    const std::lock_guard<std::mutex> lock(group.making);
    if (auto known = group.latest(); known && known->is_of(group, inputs)) return known;
    group.set(nullptr);
    auto made = std::make_shared<GroupValues>();
    std::vector<at::Tensor> taken;
    for (const size_t i : group.inputs) {
      made->stamps.emplace_back(inputs[i],
                                runtime::Fingerprint::Effort{.part_bytes = runtime::part_of_all(bytes_)});
      taken.push_back(inputs[i]);
    }
    made->values = group.run->run(std::move(taken), false);
    // Somebody may have written into a weight meanwhile: then this is for one call.
    if (made->is_of(group, inputs)) group.set(made);
    return made;
  }

  std::vector<std::shared_ptr<const GroupValues>> current_values(const std::vector<at::Tensor>& inputs) {
    std::vector<std::shared_ptr<const GroupValues>> made;
    std::vector<runtime::StampedTensor> watched;
    made.reserve(groups_.size());
    for (auto& group : groups_) {
      made.push_back(refreshed(group, inputs));
      if (made.back() != group.latest()) continue;
      for (size_t i = 0; i < group.inputs.size(); ++i)
        watched.push_back({&made.back()->stamps[i], &inputs[group.inputs[i]], &group.names[i]});
    }
    try {
      if (!runtime::check_next_part(watched, turn_++)) return current_values(inputs);
    } catch (const Mismatch&) {
      for (auto& group : groups_) group.set(nullptr);
      throw;
    }
    return made;
  }

  int64_t sum(int64_t (*of)(const Executable&)) const {
    int64_t total = of(*main_);
    for (const auto& [graph, each] : different_) total += of(*each);
    return total;
  }

  std::unique_ptr<Executable> main_;
  std::map<std::string, std::shared_ptr<Executable>> different_;
  std::deque<Group> groups_;
  size_t values_ = 0;
  int64_t bytes_ = 0;  // of all weights of all groups
  std::atomic<uint64_t> turn_{0};
};

bool FoldedExecutable::GroupValues::is_of(const Group& group, const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < stamps.size(); ++i)
    if (!stamps[i].matches(inputs[group.inputs[i]])) return false;
  return true;
}

}  // namespace

void weights_changed(const torch::nn::Module& /*module*/) { runtime::invalidate_tensor_stamps(); }

std::unique_ptr<Executable> make_folded(passes::Folding folding, std::unique_ptr<Executable> main,
                                        const std::function<std::unique_ptr<Executable>(ir::Graph)>& build) {
  std::map<std::string, std::shared_ptr<Executable>> different;
  for (const auto& group : folding.groups) {
    auto& made = different[ir::to_string(group.graph)];
    if (!made) made = build(ir::clone(group.graph));
  }
  auto folded = std::make_unique<FoldedExecutable>(std::move(main), std::move(different));
  for (const auto& group : folding.groups) folded->add(group, folding.main);
  return folded;
}

}  // namespace graft
