// A stateful program as a step of training: its loss, the step written out by hand, and compile_step().
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "graft/compile_step.h"
#include "stateful_world.h"

namespace graft::stateful {
namespace {

// Adam divides by the size of a gradient. With torch's own epsilon it would make a step of one that is
// nothing but rounding.
constexpr double kLr = 0.05, kEpsilon = 1e-2, kMomentum = 0.9, kDecay = 0.01;

Tensor loss_of(const Tensors& results) {
  Tensor loss;
  for (const auto& result : results) {
    if (!result.is_floating_point() || result.numel() == 0) continue;
    const auto term = result.tanh().mean();
    loss = loss.defined() ? loss + term : term;
  }
  TORCH_CHECK(loss.defined(), "no result that a loss could be made of");
  return loss;
}

std::shared_ptr<torch::optim::Optimizer> torch_optimizer(const Program& program, const Tensors& trained) {
  if (program.optimizer == Program::Optimizer::adamw)
    return std::make_shared<torch::optim::AdamW>(
        trained, torch::optim::AdamWOptions(kLr).eps(kEpsilon).weight_decay(kDecay));
  const bool momentum = program.optimizer != Program::Optimizer::sgd;
  return std::make_shared<torch::optim::SGD>(
      trained, torch::optim::SGDOptions(kLr)
                   .momentum(momentum ? kMomentum : 0)
                   .weight_decay(kDecay)
                   .nesterov(program.optimizer == Program::Optimizer::nesterov));
}

OptimizerConfig graft_optimizer(const Program& program) {
  if (program.optimizer == Program::Optimizer::adamw)
    return AdamW{.lr = kLr, .eps = kEpsilon, .weight_decay = kDecay};
  const bool momentum = program.optimizer != Program::Optimizer::sgd;
  return SGD{.lr = kLr,
             .momentum = momentum ? kMomentum : 0,
             .weight_decay = kDecay,
             .nesterov = program.optimizer == Program::Optimizer::nesterov};
}

}  // namespace

Callee eager_step(const Program& program, const World& world) {
  const auto cell = world.cells[0];
  // All of them: those that require a gradient get one.
  const Tensors trained = cell->parameters();
  const auto optimizer = torch_optimizer(program, trained);
  return [cell, trained, optimizer, clip = program.clip](const Tensors& given) -> Tensors {
    optimizer->zero_grad();
    const auto loss = loss_of(cell->forward(given));
    loss.backward();
    if (clip > 0) torch::nn::utils::clip_grad_norm_(trained, clip);
    optimizer->step();
    optimizer->zero_grad();
    return {loss.detach()};
  };
}

Callee compiled_step(const Program& program, const World& world) {
  const auto cell = world.cells[0];
  const StepOptions options{.max_grad_norm = program.clip,
                            .compile = {.verify = program.verify, .cache = false}};
  auto step = compile_step(
      cell, [cell](Tensors given) { return loss_of(cell->forward(std::move(given))); },
      graft_optimizer(program), options);
  return [step](const Tensors& given) mutable -> Tensors { return {step(given).detach()}; };
}

}  // namespace graft::stateful
