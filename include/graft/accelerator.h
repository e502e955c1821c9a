// A training loop of one's own, on one or several processes, compiled, in mixed precision: Accelerate's
// Accelerator.
//
//   graft::Accelerator accelerator{{.gradient_accumulation_steps = 2, .compile = {.backend =
//   graft::Backend::graft}}}; auto [fast, optimizer, data] = accelerator.prepare(model, adam, batches); for
//   (int64_t i = 0; i < data.batches(); ++i)
//     accelerator.accumulate([&] {
//       accelerator.backward(fast(data.batch(0, i)).loss);
//       accelerator.clip_grad_norm_(model->parameters(), 1.0);
//       optimizer.step();
//       optimizer.zero_grad();
//     });
//
// The names are Accelerate's. One thing is otherwise: a batch is that of all processes together (Accelerate's
// split_batches), so that no row is taken twice to make the shares even.
#pragma once
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "graft/compile.h"
#include "graft/peft.h"
#include "graft/process_group.h"
#include "graft/trainer.h"

namespace graft {

struct AcceleratorOptions {
  std::string mixed_precision = "no";  ///< "no", "bf16", "fp16"
  int64_t gradient_accumulation_steps = 1;
  /// Accelerate's plugin for torch.compile: backend, mode, fullgraph, dynamic; `regional` is its
  /// use_regional_compilation.
  CompileOptions compile = {.backend = Backend::eager};
  /// Those that train together; none: as the environment says, see ProcessGroupOptions::from_environment().
  std::shared_ptr<ProcessGroup> processes = {};
};

namespace detail {

struct AcceleratorState;
struct CountedScheduler;

/// Runs `body` under the accelerator's mixed precision.
void under_autocast(const AcceleratorState& state, const torch::nn::Module& module,
                    const std::function<void()>& body);
/// float16 and bfloat16 become float32, as Accelerate gives a model's outputs.
class ToFloat : public LeafVisitor {
 public:
  void tensor(at::Tensor& tensor) override;
  void fixed(int64_t) override {}
  void refuse(const char*) override {}
};

template <class M>
struct ForwardOf {
  using type = typename ForwardSignature<M>::type;
};
template <class M>
  requires std::is_base_of_v<PreTrainedModel, M> || std::is_base_of_v<PeftModel, M>
struct ForwardOf<M> {
  using type = ModelOutput(const ModelInputs&);
};

}  // namespace detail

template <class M, class Signature = typename detail::ForwardOf<M>::type>
class PreparedModel;

/// Called like the model, and compiled as the accelerator was told.
template <class M, class R, class... Args>
class PreparedModel<M, R(Args...)> {
 public:
  PreparedModel(std::shared_ptr<M> module, const std::shared_ptr<detail::AcceleratorState>& state,
                const CompileOptions& options)
      : module_(std::move(module)), call_(compile(function(module_, state), options, {module_})) {}
  // As in all of this header a copy is the same thing once more, and a move is a copy: nothing is left empty.
  PreparedModel(const PreparedModel&) = default;
  PreparedModel& operator=(const PreparedModel&) = default;

  R operator()(Args... args) const { return call_(std::forward<Args>(args)...); }
  const std::shared_ptr<M>& module() const { return module_; }

 private:
  static std::function<R(Args...)> function(const std::shared_ptr<M>& module,
                                            const std::shared_ptr<detail::AcceleratorState>& state) {
    return [module, state](Args... args) {
      std::optional<std::decay_t<R>> result;
      detail::under_autocast(*state, *module, [&] { result = module->forward(std::forward<Args>(args)...); });
      detail::ToFloat to_float;
      Leaves<std::decay_t<R>>::visit(*result, to_float);
      return std::move(*result);
    };
  }

  std::shared_ptr<M> module_;
  Compiled<R(Args...)> call_;
};

/// An optimizer that waits until the gradients of a whole step are there.
class PreparedOptimizer {
 public:
  PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                    std::shared_ptr<detail::AcceleratorState> state);
  PreparedOptimizer(const PreparedOptimizer&) = default;
  PreparedOptimizer& operator=(const PreparedOptimizer&) = default;
  /// Nothing while gradients are accumulated; nothing, too, where one of float16 overflowed.
  void step();
  void zero_grad();
  /// Whether the last step() found an overflow.
  bool step_was_skipped() const;
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::shared_ptr<detail::AcceleratorState> state_;
};

/// A scheduler that counts the optimizer's steps, not the batches.
class PreparedScheduler {
 public:
  PreparedScheduler(std::shared_ptr<detail::CountedScheduler> scheduler,
                    std::shared_ptr<detail::AcceleratorState> state);
  PreparedScheduler(const PreparedScheduler&) = default;
  PreparedScheduler& operator=(const PreparedScheduler&) = default;
  void step();

 private:
  std::shared_ptr<detail::CountedScheduler> scheduler_;
  std::shared_ptr<detail::AcceleratorState> state_;
};

/// This process's rows of each batch.
class PreparedData {
 public:
  PreparedData(std::shared_ptr<const TrainingData> data, std::shared_ptr<detail::AcceleratorState> state);
  PreparedData(const PreparedData&) = default;
  PreparedData& operator=(const PreparedData&) = default;
  int64_t batches() const { return data_->batches(); }
  /// With the last of an epoch the accumulated gradients are used, however few batches they are of.
  ModelInputs batch(int64_t epoch, int64_t index) const;

 private:
  std::shared_ptr<const TrainingData> data_;
  std::shared_ptr<detail::AcceleratorState> state_;
};

class Accelerator {
 public:
  explicit Accelerator(const AcceleratorOptions& options = {});
  Accelerator(const Accelerator&) = default;
  Accelerator& operator=(const Accelerator&) = default;

  int process_index() const;
  int num_processes() const;
  bool is_main_process() const { return process_index() == 0; }

  template <class M>
    requires std::is_base_of_v<torch::nn::Module, M>
  auto prepare(
      const std::shared_ptr<M>& module) {  // not named as the type: it is formed only for what is a model
    add_module(module);
    return PreparedModel<M>(module, state_, options_.compile);
  }
  template <class O>
    requires std::is_base_of_v<torch::optim::Optimizer, O>
  PreparedOptimizer prepare(const std::shared_ptr<O>& optimizer) {
    add_optimizer(optimizer);
    return {optimizer, state_};
  }
  template <class S>
    requires std::is_base_of_v<torch::optim::LRScheduler, S>
  PreparedScheduler prepare(const std::shared_ptr<S>& scheduler) {
    return {add_scheduler(scheduler), state_};
  }
  template <class D>
    requires std::is_base_of_v<TrainingData, D>
  PreparedData prepare(const std::shared_ptr<D>& data) {
    return {data, state_};
  }
  /// Several at once: auto [model, optimizer, data] = accelerator.prepare(m, o, d);
  template <class A, class B, class... More>
  auto prepare(const A& first, const B& second, const More&... more) {
    return std::tuple{prepare(first), prepare(second), prepare(more)...};
  }
  template <class M>
  std::shared_ptr<M> unwrap_model(const PreparedModel<M>& model) const {
    return model.module();
  }

  /// Adds the gradients of `loss`, one number, over the number of accumulated batches; those of all processes
  /// become their mean with the last of these.
  void backward(const at::Tensor& loss);
  /// One batch of a step: whether it is the last decides what the optimizer does.
  template <class Body>
  void accumulate(const Body& body) {
    begin_batch();
    try {
      body();
    } catch (...) {
      end_batch();
      throw;
    }
    end_batch();
  }
  /// Whether the gradients of a whole step are there.
  bool sync_gradients() const;
  /// The norm before; nothing happens while gradients are accumulated.
  std::optional<double> clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm);

  /// Everybody's rows, one after the other; they may have different numbers of them.
  at::Tensor gather(const at::Tensor& tensor) const;
  /// The "mean" or the "sum" over all processes.
  at::Tensor reduce(const at::Tensor& tensor, const std::string& reduction = "sum") const;
  void wait_for_everyone() const;
  /// Of the first process only.
  void print(const std::string& text) const;

  /// Models, optimizers, schedulers, loss scale and random numbers of what was prepared, in a folder that is
  /// there only when all of it is. load_state() is for objects prepared in the same order. A PeftModel's
  /// adapters go by their names: it has to have the same ones, loaded in any order.
  void save_state(const std::filesystem::path& dir) const;
  void load_state(const std::filesystem::path& dir);

 private:
  void add_module(const std::shared_ptr<torch::nn::Module>& module);
  void add_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer);
  std::shared_ptr<detail::CountedScheduler> add_scheduler(
      std::shared_ptr<torch::optim::LRScheduler> scheduler);
  void begin_batch();
  void end_batch();

  AcceleratorOptions options_;
  std::shared_ptr<detail::AcceleratorState> state_;
};

}  // namespace graft
