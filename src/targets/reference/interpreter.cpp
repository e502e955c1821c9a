#include "targets/reference/interpreter.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <unordered_map>

#include "runtime/aten_call.h"

namespace graft::ref {
namespace {

/// Below autograd: the graph has the backward pass in it already.
struct Plain {
  at::AutoDispatchBelowADInplaceOrView below;
};

/// By node, in their order: what nobody needs after it.
std::vector<std::vector<const ir::Value*>> dead_after(const ir::Graph& graph) {
  std::unordered_map<const ir::Value*, size_t> last_use;
  size_t step = 0;
  for (const auto& node : graph.nodes()) {
    for (const auto& output : node->outputs()) last_use[output.get()] = step;
    for (const auto* value : node->inputs()) last_use[value] = step;
    ++step;
  }
  std::vector<std::vector<const ir::Value*>> dead(step);
  for (const auto& [value, when] : last_use)
    if (!graph.is_result(*value)) dead[when].push_back(value);
  return dead;
}

class Interpreter : public Executable {
 public:
  Interpreter(const ir::Graph& graph, const std::vector<at::Generator>& generators) {
    std::unordered_map<const ir::Value*, size_t> places;
    const auto place_of = [&](const ir::Value& value) { return places.at(&value); };
    for (const auto& input : graph.inputs()) places.emplace(input.get(), places.size());
    inputs_ = places.size();
    for (const auto& node : graph.nodes()) {
      for (const auto& output : node->outputs()) places.emplace(output.get(), places.size());
      calls_.emplace_back(*node, place_of, generators);
    }
    for (const auto& values : dead_after(graph)) {
      auto& dead = dead_.emplace_back();
      for (const auto* value : values) dead.push_back(places.at(value));
    }
    for (const auto* result : graph.results()) results_.push_back(result ? places.at(result) : none);
    size_ = places.size();
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool /*in_place*/) override {
    TORCH_CHECK(inputs.size() == inputs_, "the graph takes ", inputs_, " inputs, got ", inputs.size());
    const Plain plain;
    std::vector<at::Tensor> table(size_);
    std::move(inputs.begin(), inputs.end(), table.begin());
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].run(table);
      for (const size_t place : dead_[i]) table[place].reset();
    }
    std::vector<at::Tensor> results;
    results.reserve(results_.size());
    for (const size_t place : results_) results.push_back(place == none ? at::Tensor() : table[place]);
    return results;
  }

  int64_t extern_calls() const override { return static_cast<int64_t>(calls_.size()); }
  std::string describe() const override { return std::to_string(calls_.size()) + " ATen calls"; }

 private:
  static constexpr size_t none = ~size_t{0};
  size_t inputs_ = 0, size_ = 0;
  std::vector<AtenCall> calls_;
  std::vector<std::vector<size_t>> dead_;  // by call: what nobody needs after it
  std::vector<size_t> results_;
};

}  // namespace

std::unique_ptr<Executable> compile(const ir::Graph& graph, const std::vector<at::Generator>& generators) {
  return std::make_unique<Interpreter>(graph, generators);
}

std::vector<at::Tensor> interpret(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Generator>& generators, const See& see) {
  const Plain plain;
  std::unordered_map<const ir::Value*, size_t> places;
  std::vector<at::Tensor> table(inputs);
  for (const auto& input : graph.inputs()) places.emplace(input.get(), places.size());
  const auto place_of = [&](const ir::Value& value) { return places.at(&value); };
  const auto dead = dead_after(graph);
  size_t step = 0;
  for (const auto& node : graph.nodes()) {
    for (const auto& output : node->outputs()) places.emplace(output.get(), places.size());
    table.resize(places.size());
    AtenCall(*node, place_of, generators).run(table);
    if (see) {
      std::vector<at::Tensor> made;
      for (const auto& output : node->outputs()) made.push_back(table[places.at(output.get())]);
      see(*node, made);
    }
    for (const auto* value : dead[step++]) table[places.at(value)].reset();
  }
  std::vector<at::Tensor> results;
  for (const auto* result : graph.results())
    results.push_back(result ? table[places.at(result)] : at::Tensor());
  return results;
}

}  // namespace graft::ref
