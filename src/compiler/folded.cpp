#include "compiler/folded.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "ir/clone.h"
#include "runtime/seen_tensor.h"

namespace graft {
namespace {

class Folded : public Executable {
 public:
  Folded(std::unique_ptr<Executable> main, std::map<std::string, std::shared_ptr<Executable>> different)
      : main_(std::move(main)), different_(std::move(different)) {}

  void add(const passes::Folding::Group& group) {
    groups_.push_back({.run = different_.at(ir::to_string(group.graph)),
                       .inputs = group.inputs,
                       .results = group.results,
                       .seen = std::vector<runtime::SeenTensor>(group.inputs.size())});
    values_ += group.results.size();
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    const size_t given = inputs.size();
    inputs.resize(given + values_);
    {
      const std::lock_guard<std::mutex> lock(guard_);
      kept_.resize(values_);
      for (auto& group : groups_) refresh(group, inputs, given);
      std::copy(kept_.begin(), kept_.end(), inputs.begin() + static_cast<int64_t>(given));
    }
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
  struct Group {
    std::shared_ptr<Executable> run;
    std::vector<size_t> inputs, results;
    std::vector<runtime::SeenTensor> seen;
  };

  /// Calls at work go on with the values they have: new ones have memory of their own.
  void refresh(Group& group, const std::vector<at::Tensor>& inputs, size_t given) {
    bool same = kept_[group.results[0] - given].defined();
    for (size_t i = 0; same && i < group.inputs.size(); ++i) same = group.seen[i].is(inputs[group.inputs[i]]);
    if (same) return;
    std::vector<at::Tensor> taken;
    taken.reserve(group.inputs.size());
    for (const size_t i : group.inputs) taken.push_back(inputs[i]);
    for (const size_t place : group.results) kept_[place - given].reset();
    auto made = group.run->run(std::move(taken), false);
    for (size_t i = 0; i < made.size(); ++i) kept_[group.results[i] - given] = std::move(made[i]);
    for (size_t i = 0; i < group.inputs.size(); ++i) group.seen[i].see(inputs[group.inputs[i]]);
  }

  int64_t sum(int64_t (*of)(const Executable&)) const {
    int64_t total = of(*main_);
    for (const auto& [graph, each] : different_) total += of(*each);
    return total;
  }

  std::unique_ptr<Executable> main_;
  std::map<std::string, std::shared_ptr<Executable>> different_;
  std::vector<Group> groups_;
  size_t values_ = 0;
  std::mutex guard_;
  std::vector<at::Tensor> kept_;
};

}  // namespace

std::unique_ptr<Executable> make_folded(passes::Folding folding, std::unique_ptr<Executable> main,
                                        const std::function<std::unique_ptr<Executable>(ir::Graph)>& build) {
  std::map<std::string, std::shared_ptr<Executable>> different;
  for (const auto& group : folding.groups) {
    auto& made = different[ir::to_string(group.graph)];
    if (!made) made = build(ir::clone(group.graph));
  }
  auto folded = std::make_unique<Folded>(std::move(main), std::move(different));
  for (const auto& group : folding.groups) folded->add(group);
  return folded;
}

}  // namespace graft
