// A second target: its kernels are the nodes of their steps, run over ATen on the buffers that they are
// given. It shares nothing with the CPU target but the interface: other limits, another alignment, memory
// that is never zero by itself, failures that are read at the end of a run.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/ivalue.h"
#include "codegen/scatter.h"
#include "codegen/views.h"
#include "ir/clone.h"
#include "runtime/routing_table.h"
#include "targets/reference/interpreter.h"
#include "targets/target.h"

namespace graft::aten_target {

/// What a recording does when it is launched, and the memory that was taken for it.
struct Tape : runtime::Recording {
  std::vector<std::function<void()>> work;
  std::vector<at::Tensor> memory;
  int* launches = nullptr;
  void launch() override {
    ++*launches;
    for (const auto& each : work) each();
  }
};

/// The one that is being recorded.
inline Tape*& tape() {
  static Tape* current = nullptr;
  return current;
}

/// Now, or when the recording is launched.
inline void do_or_record(std::function<void()> work) {
  if (tape())
    tape()->work.push_back(std::move(work));
  else
    work();
}

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
    std::vector<void*> buffers(launch.buffers, launch.buffers + types_.size());
    do_or_record([this, buffers, later = launch]() mutable {
      later.buffers = buffers.data();
      run(later);
    });
  }

 private:
  void run(const Launch& launch) const {
    if (launch.unless_failed && *launch.failed) return;
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

/// Kernels that may run in any order: here the last of them first.
class LaunchOfSeveral : public Launcher {
 public:
  void add(const codegen::Step& step) {
    kernels_.push_back(std::make_unique<StepLauncher>(step));
    first_.push_back(buffers_);
    buffers_ += step.buffers.size();
  }
  void launch(const Launch& launch) const override {
    for (size_t k = kernels_.size(); k-- > 0;) {
      auto one = launch;
      one.buffers = launch.buffers + first_[k];
      kernels_[k]->launch(one);
    }
  }

 private:
  std::vector<std::unique_ptr<StepLauncher>> kernels_;
  std::vector<size_t> first_;
  size_t buffers_ = 0;
};

class LateContext : public runtime::RunContext {
 public:
  explicit LateContext(bool guards_writes = false) : guards_writes_(guards_writes) {}
  int32_t* failed() override { return &failed_; }
  int32_t take_failure() override { return std::exchange(failed_, 0); }
  bool is_immediate() const override { return false; }
  bool guards_writes() const override { return guards_writes_; }

 private:
  bool guards_writes_;
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
    if (const auto known = runtime::host_table_of(table); known.defined())
      runtime::columns_in_use(known, in_use);
    else
      in_use.assign(static_cast<size_t>(table.size(1)), 1);
  }
  void write_rows(std::span<const RowWrite> all, runtime::RunContext&) const override {
    for (const auto& rows : all) rows.into.index_copy_(rows.dim, rows.index, rows.source);
  }
  double time_of(const std::function<void()>& body) const override {
    body();
    return 0;
  }
};

/// One that records.
class RecordingDevice : public AtenDevice {
 public:
  mutable int recorded = 0, launches = 0, parts = 0, products = 0;
  bool guards_writes = false;  ///< whether kernels look for failures before they write into inputs

  std::unique_ptr<runtime::RunContext> make_context() const override {
    return std::make_unique<LateContext>(guards_writes);
  }
  bool has_pool() const override { return true; }
  bool can_record() const override { return true; }
  std::vector<std::unique_ptr<runtime::Recording>> record(
      const std::function<void(const Cut&)>& body) const override {
    std::vector<std::unique_ptr<runtime::Recording>> parts;
    const auto begin = [&] {
      auto made = std::make_unique<Tape>();
      made->launches = &launches;
      tape() = made.get();
      ++this->parts;
      parts.push_back(std::move(made));
    };
    ++recorded;
    begin();
    try {
      body(begin);
    } catch (...) {
      tape() = nullptr;
      throw;
    }
    tape() = nullptr;
    return parts;
  }
  at::Tensor allocate(int64_t bytes) const override {
    auto memory = AtenDevice::allocate(bytes);
    if (!tape()) return memory;
    tape()->memory.push_back(memory);  // the recording's; who asked for it has the use of it
    return at::from_blob(memory.data_ptr(), {bytes}, at::kByte);
  }
  void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const override {
    do_or_record([this, out = view_of(out), a = view_of(a), b = view_of(b)] {
      ++products;
      AtenDevice::multiply_into(out, a, b);
    });
  }
  void zero(const at::Tensor& tensor) const override {
    do_or_record([tensor = view_of(tensor)] { tensor.zero_(); });
  }

 private:
  /// Not an owner of the memory.
  static at::Tensor view_of(const at::Tensor& t) {
    return at::from_blob(t.data_ptr(), t.sizes(), t.strides(), t.scalar_type());
  }
};

class AtenTarget : public Target {
 public:
  explicit AtenTarget(const runtime::Device* device = nullptr) : device_(device) {}
  std::string_view name() const override { return "aten"; }
  std::string fingerprint() const override { return "aten"; }
  const codegen::Limits& limits() const override {
    static constexpr codegen::Limits limits{
        .nodes = 5, .buffers = 4, .long_row = 8, .few_rows = 2, .far_row = 64, .scatter_points = 1};
    return limits;
  }
  const passes::TargetFacts& facts() const override {
    static const passes::TargetFacts facts{.joins_adjacent = true};
    return facts;
  }
  /// All of them are small; of two kinds.
  int64_t launch_kind(const codegen::Kernel& kernel) const override {
    return kernel.reduced_points() > 1 ? 2 : 1;
  }
  CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring&) const override {
    CompiledKernels made;
    std::shared_ptr<LaunchOfSeveral> launch;
    for (const auto& step : schedule.steps) {
      if (step.external) continue;
      if (!step.with_last) launch = std::make_shared<LaunchOfSeveral>();
      made.launchers.push_back(step.with_last ? nullptr : launch);
      launch->add(step);
    }
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
    return device_ ? *device_ : device;
  }

 private:
  const runtime::Device* device_;
};

}  // namespace graft::aten_target
