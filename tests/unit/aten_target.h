// A second target: its kernels are the nodes of their steps, run over ATen on the buffers that they are
// given. It shares nothing with the CPU target but the interface: other limits, another alignment, memory
// that is never zero by itself, failures that are read at the end of a run.
#pragma once
#include <ATen/ATen.h>

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/ivalue.h"
#include "codegen/scatter.h"
#include "codegen/views.h"
#include "ir/clone.h"
#include "targets/reference/interpreter.h"
#include "targets/target.h"

namespace graft::aten_target {

class StepLauncher : public Launcher {
 public:
  explicit StepLauncher(const codegen::Step& step) {
    ir::ValueMap map;
    for (size_t i = 0; i < step.buffers.size(); ++i) {
      types_.push_back(step.buffers[i]->type());
      if (!step.kernel.buffers[i].written) {
        read_.push_back(i);
        map[step.buffers[i]] = &graph_.add_input("b" + std::to_string(i), types_[i]);
      }
    }
    for (const auto* node : step.nodes) copy(*node, map);
    for (size_t i = 0; i < step.buffers.size(); ++i)
      if (step.kernel.buffers[i].written) {
        written_.push_back(i);
        graph_.add_result(map.at(step.buffers[i]));
      }
  }

  void launch(const Launch& launch) const override {
    const auto tensor = [&](size_t i) {
      return at::from_blob(launch.buffers[i], types_[i].sizes, types_[i].strides, to_torch(types_[i].dtype));
    };
    std::vector<at::Tensor> inputs;
    for (const size_t i : read_) inputs.push_back(tensor(i));
    try {
      const auto results = ref::interpret(graph_, inputs, {});
      for (size_t k = 0; k < written_.size(); ++k) tensor(written_[k]).copy_(results[k]);
    } catch (const c10::Error&) {  // an index out of range
      *launch.failed = launch.mark;
    }
  }

 private:
  /// With the views that it reads through, and cheap values that the kernel computes again.
  void copy(const ir::Node& node, ir::ValueMap& map) {
    if (map.contains(&node.output(0))) return;
    for (const auto* input : node.inputs())
      if (!map.contains(input)) copy(*input->producer(), map);
    ir::copy_node(node, graph_, map);
  }

  ir::Graph graph_;
  std::vector<ir::TensorType> types_;
  std::vector<size_t> read_, written_;
};

class LateContext : public runtime::RunContext {
 public:
  int32_t* failed() override { return &failed_; }
  int32_t take_failure() override { return std::exchange(failed_, 0); }
  bool is_immediate() const override { return false; }

 private:
  int32_t failed_ = 0;
};

class AtenDevice : public runtime::Device {
 public:
  at::Device place() const override { return at::kCPU; }
  std::unique_ptr<runtime::RunContext> make_context() const override {
    return std::make_unique<LateContext>();
  }
  int64_t alignment() const override { return 256; }
  at::Tensor allocate(int64_t bytes) const override { return at::full({bytes}, 0xff, at::kByte); }
  void zero(const at::Tensor& tensor) const override { tensor.zero_(); }
  void columns_in_use(const at::Tensor& table, std::vector<char>& in_use) const override {
    in_use.assign(static_cast<size_t>(table.size(1)), 1);
  }
  void check_indices(const at::Tensor&, int64_t, const std::string&) const override {}
  double time_of(const std::function<void()>& body) const override {
    body();
    return 0;
  }
};

class AtenTarget : public Target {
 public:
  std::string_view name() const override { return "aten"; }
  std::string fingerprint() const override { return "aten"; }
  const codegen::Limits& limits() const override {
    static constexpr codegen::Limits limits{
        .nodes = 5, .buffers = 4, .long_row = 8, .few_rows = 2, .far_row = 64, .scatter_points = 1};
    return limits;
  }
  const passes::TargetFacts& facts() const override {
    static const passes::TargetFacts facts;
    return facts;
  }
  CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring&) const override {
    CompiledKernels made;
    for (const auto& step : schedule.steps)
      if (!step.external) made.launchers.push_back(std::make_shared<StepLauncher>(step));
    made.unique = static_cast<int64_t>(made.launchers.size());
    return made;
  }
  const std::vector<std::string>& code_levels() const override {
    static const std::vector<std::string> none;
    return none;
  }
  std::string code(const codegen::Schedule&, const std::string&) const override { return {}; }
  const runtime::Device& device(const ir::Device&) const override {
    static const AtenDevice device;
    return device;
  }
};

}  // namespace graft::aten_target
