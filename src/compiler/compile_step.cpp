#include "graft/compile_step.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <cmath>

#include "capture/module_tree.h"
#include "capture/recorder.h"

namespace graft::detail {
namespace {

/// One parameter in training with what the optimizer keeps for it.
struct Trained {
  std::string name;
  at::Tensor parameter;
  at::Tensor first, second;  // momentum; or the averages of the gradient and of its square
};

/// Numbers of one step, as tensors: they change without a new program. Doubles without dimensions, which do
/// not widen what they meet.
struct Numbers {
  at::Tensor lr, decay, scale, root;

  explicit Numbers(const std::vector<at::Tensor>& from)
      : lr(from[0]), decay(from[1]), scale(from[2]), root(from[3]) {}
  Numbers() {
    for (auto* t : {&lr, &decay, &scale, &root}) *t = at::zeros({}, at::kDouble);
  }
  std::vector<at::Tensor> all() const { return {lr, decay, scale, root}; }
};

void update(const SGD& how, const Trained& t, at::Tensor grad, const Numbers& now) {
  auto parameter = t.parameter;
  if (how.weight_decay != 0) grad = grad + parameter * how.weight_decay;
  if (how.momentum != 0) {
    auto momentum = t.first;
    momentum.mul_(how.momentum)
        .add_(grad * now.scale);  // the first gradient counts in full, later ones are dampened
    grad = how.nesterov ? grad + momentum * how.momentum : momentum;
  }
  parameter.sub_(grad * now.lr);
}

void update(const AdamW& how, const Trained& t, const at::Tensor& grad, const Numbers& now) {
  auto parameter = t.parameter, average = t.first, squares = t.second;
  if (how.weight_decay != 0) parameter.mul_(now.decay);
  average.add_((grad - average) * (1 - how.beta1));
  squares.mul_(how.beta2).add_(grad * grad * (1 - how.beta2));
  parameter.sub_(average / (squares.sqrt() / now.root + how.eps) * now.scale);
}

}  // namespace

struct StepCore::Impl {
  OptimizerConfig optimizer;
  StepOptions options;
  std::vector<Trained> trained;
  Numbers numbers;
  int64_t steps = 0;
  at::Tensor norm;
  Core core;

  Impl(std::vector<std::shared_ptr<torch::nn::Module>> modules, const OptimizerConfig& how,
       const StepOptions& step)
      : optimizer(how), options(step), core(modules, step.compile) {
    const ModuleTree tree(std::move(modules));
    std::unordered_map<const c10::TensorImpl*, bool> seen;  // tied parameters are one
    for (const auto& slot : tree.slots()) {
      const auto& tensor = slot.tensor();
      if (slot.buffer || !tensor.defined() || !tensor.requires_grad()) continue;
      if (!seen.emplace(tensor.unsafeGetTensorImpl(), true).second) continue;
      trained.push_back({slot.path, tensor, {}, {}});
    }
    if (trained.empty()) throw UsageError("[compile_step] no parameter of the module requires a gradient");
    const at::NoGradGuard no_grad;
    const bool adam = std::holds_alternative<AdamW>(optimizer);
    const bool momentum = !adam && std::get<SGD>(optimizer).momentum != 0;
    for (auto& t : trained) {
      if (adam || momentum) t.first = at::zeros_like(t.parameter);
      if (adam) t.second = at::zeros_like(t.parameter);
    }
  }

  double& lr() {
    return std::visit([](auto& o) -> double& { return o.lr; }, optimizer);
  }

  void set_numbers() {
    const auto step = static_cast<double>(steps + 1);
    numbers.lr.fill_(lr());
    if (const auto* adam = std::get_if<AdamW>(&optimizer)) {
      numbers.decay.fill_(1 - adam->lr * adam->weight_decay);
      numbers.scale.fill_(adam->lr / (1 - std::pow(adam->beta1, step)));
      numbers.root.fill_(std::sqrt(1 - std::pow(adam->beta2, step)));
    } else {
      numbers.scale.fill_(steps == 0 ? 1.0 : 1 - std::get<SGD>(optimizer).dampening);
    }
  }

  /// The step itself, as it is captured and as it runs eagerly. Gives the loss and the gradients' norm.
  std::vector<at::Tensor> step(const std::vector<at::Tensor>& now,
                               const std::function<at::Tensor()>& loss_of) {
    std::vector<Trained> here;
    here.reserve(trained.size());
    for (const auto& t : trained)
      here.push_back(
          {t.name, Recorder::seen(t.parameter), Recorder::seen(t.first), Recorder::seen(t.second)});
    at::Tensor shown;
    std::vector<at::Tensor> wanted, grads;
    for (const auto& t : here) wanted.push_back(t.parameter);
    {
      const at::AutoGradMode on(true);
      const auto loss = loss_of();
      if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad())
        throw UsageError("[compile_step] the loss must be one number that depends on a trained parameter");
      shown = loss.detach();  // before the backward: where this call stands, the forward ends
      grads = torch::autograd::grad({loss}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
    }
    const at::NoGradGuard no_grad;
    at::Tensor total;
    if (options.max_grad_norm > 0) {
      // Added up at the end: a sum that grows with each would have them wait for each other, and with them
      // what they are computed from.
      std::vector<at::Tensor> squares;
      for (const auto& grad : grads)
        if (grad.defined()) squares.push_back(grad.to(at::kFloat).square().sum());
      total = at::stack(squares).sum().sqrt();
      const auto factor = (options.max_grad_norm / (total + 1e-6)).clamp_max(1.0);
      for (auto& grad : grads)
        if (grad.defined()) grad = grad * factor.to(grad.scalar_type());
    }
    const Numbers numbers_now(now);
    for (size_t i = 0; i < here.size(); ++i)
      if (grads[i].defined())
        std::visit([&](const auto& how) { update(how, here[i], grads[i], numbers_now); }, optimizer);
    return {shown, total};
  }
};

StepCore::StepCore(std::vector<std::shared_ptr<torch::nn::Module>> modules, const OptimizerConfig& optimizer,
                   const StepOptions& options)
    : impl_(std::make_unique<Impl>(std::move(modules), optimizer, options)) {}
StepCore::~StepCore() = default;

at::Tensor StepCore::run(const Flat& arguments,
                         const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss) {
  auto& me = *impl_;
  me.set_numbers();
  me.norm.reset();  // its memory may serve this step
  auto flat = arguments;
  const size_t own = flat.tensors.size();
  for (const auto& number : me.numbers.all()) flat.tensors.push_back(number);
  const at::AutoGradMode on(true);
  const auto made = me.core.call(flat, [&](const std::vector<at::Tensor>& tensors) {
    const std::vector<at::Tensor> mine(tensors.begin(), tensors.begin() + static_cast<int64_t>(own));
    const std::vector<at::Tensor> now(tensors.begin() + static_cast<int64_t>(own), tensors.end());
    return Made{me.step(now, [&] { return loss(mine); }), nullptr};
  });
  ++me.steps;
  me.norm = made.tensors[1];
  return made.tensors[0];
}

double StepCore::lr() const { return impl_->lr(); }
void StepCore::set_lr(double lr) { impl_->lr() = lr; }
int64_t StepCore::steps() const { return impl_->steps; }
void StepCore::set_steps(int64_t steps) { impl_->steps = steps; }
at::Tensor StepCore::grad_norm() const { return impl_->norm; }

std::vector<std::pair<std::string, at::Tensor>> StepCore::state() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  const bool adam = std::holds_alternative<AdamW>(impl_->optimizer);
  for (const auto& t : impl_->trained) {
    if (t.first.defined()) all.emplace_back((adam ? "exp_avg." : "momentum_buffer.") + t.name, t.first);
    if (t.second.defined()) all.emplace_back("exp_avg_sq." + t.name, t.second);
  }
  return all;
}

}  // namespace graft::detail
