// compile_step(): a whole training step as one program: forward, loss, backward, gradient clipping,
// optimizer.
//
//   auto step = graft::compile_step(model, [model](const graft::ModelInputs& in) { return
//   model->forward(in).loss; },
//                                   graft::AdamW{.lr = 1e-4}, {.max_grad_norm = 1.0});
//   for (const auto& batch : data) std::cout << step(batch).item<float>() << "\n";
//
// A step trains, in place, the parameters of the module that require a gradient when it is called, as torch's
// optimizers do with all parameters of a module: one that is frozen later is left alone and keeps its state,
// one that is unfrozen joins with a state of its own. Each such set is compiled once. The learning rate is
// data: changing it compiles nothing.
//
// Numbers that torch's optimizers refuse (a negative learning rate, a beta of 1) are a UsageError here, too.
#pragma once
#include <variant>

#include "graft/compile.h"
#include "graft/error.h"

namespace graft {

/// torch.optim.SGD
struct SGD {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
};

/// torch.optim.AdamW
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
};

/// torch.optim.Adam: the weight decay is a part of the gradient.
struct Adam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};

using OptimizerConfig = std::variant<SGD, AdamW, Adam>;

struct StepOptions {
  double max_grad_norm = 0;  ///< 0: no clipping
  CompileOptions compile = {};
};

namespace detail {

class CompiledTrainingStep {
 public:
  CompiledTrainingStep(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                       const OptimizerConfig& optimizer, const StepOptions& options);
  ~CompiledTrainingStep();
  CompiledTrainingStep(const CompiledTrainingStep&) = delete;
  CompiledTrainingStep& operator=(const CompiledTrainingStep&) = delete;

  /// `loss` works on the tensors of the arguments.
  at::Tensor run(const FlatArguments& arguments,
                 const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss);

  double lr() const;
  void set_lr(double lr);
  int64_t steps() const;
  void set_steps(int64_t steps);
  at::Tensor grad_norm() const;
  std::vector<std::pair<std::string, at::Tensor>> state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detail

template <class Signature>
class CompiledStep;

namespace detail {
template <class Signature>
struct GivesATensor;
template <class R, class... Args>
struct GivesATensor<R(Args...)> : std::is_same<R, at::Tensor> {};
}  // namespace detail

template <class... Args>
class CompiledStep<at::Tensor(Args...)> {
 public:
  CompiledStep(std::vector<std::shared_ptr<torch::nn::Module>> modules,
               std::function<at::Tensor(Args...)> loss, const OptimizerConfig& optimizer,
               const StepOptions& options)
      : loss_(std::move(loss)),
        core_(std::make_shared<detail::CompiledTrainingStep>(std::move(modules), optimizer, options)) {
    if (!loss_) throw UsageError("[compile_step] the loss function is empty: give one that can be called");
  }
  // A copy is the same step once more, and a move is a copy: nothing is left empty.
  CompiledStep(const CompiledStep&) = default;
  CompiledStep& operator=(const CompiledStep&) = default;

  /// One step; gives the loss before it. Not from several threads at once: it changes the parameters.
  at::Tensor operator()(Args... args) {
    Values values(args...);
    detail::FlatArguments flat;
    detail::CollectLeaves collect(flat);
    Leaves<Values>::visit(values, collect);
    return core_->run(flat, [&](const std::vector<at::Tensor>& tensors) {
      auto mine = values;
      detail::ReplaceTensors replace(tensors);
      Leaves<Values>::visit(mine, replace);
      return std::apply(loss_, mine);
    });
  }

  double lr() const { return core_->lr(); }
  void set_lr(double lr) { core_->set_lr(lr); }
  /// Steps done. To set them is to say that every parameter has done so many: Adam's correction of its
  /// averages depends on it.
  int64_t steps() const { return core_->steps(); }
  void set_steps(int64_t steps) { core_->set_steps(steps); }
  /// Of the last step, before clipping; undefined without clipping.
  at::Tensor grad_norm() const { return core_->grad_norm(); }
  /// The optimizer's tensors by name ("exp_avg.model.layers.0...", "step.model.layers.0...", the steps that a
  /// parameter took part in), to be saved and to be written into.
  std::vector<std::pair<std::string, at::Tensor>> state() const { return core_->state(); }

 private:
  using Values = std::tuple<std::decay_t<Args>...>;
  std::function<at::Tensor(Args...)> loss_;
  std::shared_ptr<detail::CompiledTrainingStep> core_;
};

/// `loss` gives the scalar to be minimised, from a module's forward for example.
template <detail::IsModule M, class F>
auto compile_step(const std::shared_ptr<M>& module, F loss, const OptimizerConfig& optimizer,
                  const StepOptions& options = {}) {
  static_assert(detail::HasOneSignature<F>,
                "graft::compile_step: the parameters of the loss function need types, not auto, and one "
                "signature: write a lambda that names them");
  if constexpr (detail::HasOneSignature<F>) {
    using Signature = detail::SignatureOfCallable<F>;
    static_assert(detail::GivesATensor<Signature>::value,
                  "graft::compile_step: the loss function has to give the loss, an at::Tensor");
    return CompiledStep<Signature>({module}, std::function<Signature>(std::move(loss)), optimizer, options);
  }
}

template <class M, class F>
auto compile_step(const torch::nn::ModuleHolder<M>& module, F loss, const OptimizerConfig& optimizer,
                  const StepOptions& options = {}) {
  return compile_step(module.is_empty() ? nullptr : module.ptr(), std::move(loss), optimizer, options);
}

/// A module that is a variable: it has to live as long as what comes back.
template <detail::IsModule M, class F>
auto compile_step(M& module, F loss, const OptimizerConfig& optimizer, const StepOptions& options = {}) {
  return compile_step(std::shared_ptr<M>(std::shared_ptr<void>(), &module), std::move(loss), optimizer,
                      options);
}

}  // namespace graft
