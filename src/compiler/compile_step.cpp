#include "graft/compile_step.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "capture/module_tree.h"
#include "compiler/options.h"
#include "support/counted.h"
#include "support/given.h"

namespace graft::detail {
namespace {

/// One parameter in training with what the optimizer keeps for it.
struct Trained {
  std::string name;
  at::Tensor parameter;
  at::Tensor first, second;  // momentum; or the averages of the gradient and of its square
  at::Tensor steps;          // that it took part in
};

/// Numbers of one step, as tensors: they change without a new program. Doubles without dimensions, which do
/// not widen what they meet.
struct Numbers {
  at::Tensor lr, decay, scale, root;

  static constexpr size_t count = 4;

  explicit Numbers(const at::Tensor* from) : lr(from[0]), decay(from[1]), scale(from[2]), root(from[3]) {}
  explicit Numbers(const at::Device& device) {
    for (auto* t : {&lr, &decay, &scale, &root}) *t = at::zeros({}, at::device(device).dtype(at::kDouble));
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

/// Adam, whatever has become of the weight decay.
template <class How>
void update_by_averages(const How& how, const Trained& t, const at::Tensor& grad, const Numbers& now) {
  auto parameter = t.parameter, average = t.first, squares = t.second;
  average.add_((grad - average) * (1 - how.beta1));
  squares.mul_(how.beta2).add_(grad * grad * (1 - how.beta2));
  parameter.sub_(average / (squares.sqrt() / now.root + how.eps) * now.scale);
}

void update(const AdamW& how, const Trained& t, const at::Tensor& grad, const Numbers& now) {
  auto parameter = t.parameter;
  if (how.weight_decay != 0) parameter.mul_(now.decay);
  update_by_averages(how, t, grad, now);
}

void update(const Adam& how, const Trained& t, const at::Tensor& grad, const Numbers& now) {
  update_by_averages(how, t, how.weight_decay != 0 ? grad + t.parameter * how.weight_decay : grad, now);
}

template <class How>
concept HasBetas = requires(const How& how) { how.beta1; };

/// A parameter that the function has written something with a history into is not one that an optimizer
/// takes.
bool can_be_trained(const at::Tensor& parameter) { return parameter.requires_grad() && parameter.is_leaf(); }

/// What torch's optimizers refuse when they are made.
void check_number(const char* name, double value, double below = std::numeric_limits<double>::infinity()) {
  if (value >= 0 && value < below) return;
  throw UsageError("[compile_step] " + std::string(name) + " must be " +
                   (std::isinf(below) ? "a number from 0" : "at least 0 and below 1") + ", got " +
                   shown(value));
}

void check_numbers(const OptimizerConfig& optimizer, const StepOptions& options) {
  std::visit(
      [](const auto& how) {
        check_number("lr", how.lr);
        check_number("weight_decay", how.weight_decay);
        if constexpr (HasBetas<std::decay_t<decltype(how)>>) {
          check_number("beta1", how.beta1, 1);
          check_number("beta2", how.beta2, 1);
          check_number("eps", how.eps);
        } else {
          check_number("momentum", how.momentum);
          if (!std::isfinite(how.dampening))
            throw UsageError("[compile_step] dampening must be a number, got " + shown(how.dampening));
          if (how.nesterov && (how.momentum <= 0 || how.dampening != 0))
            throw UsageError("[compile_step] SGD with nesterov needs a momentum above 0, and dampening = 0");
        }
      },
      optimizer);
  // Infinity only measures the norm.
  if (!(options.max_grad_norm >= 0))
    throw UsageError("[compile_step] max_grad_norm must be at least 0 (0: no clipping), got " +
                     shown(options.max_grad_norm));
}

std::vector<std::shared_ptr<torch::nn::Module>> all_given(
    std::vector<std::shared_ptr<torch::nn::Module>> modules) {
  for (const auto& module : modules) given(module, "[compile_step] the module");
  return modules;
}

/// Which of the parameters one step trains, and with which of the sets of numbers: a parameter that was
/// frozen for a while has done fewer steps than others, and Adam's corrections are of its own.
struct Selection {
  std::vector<size_t> which;   // into the list of trained parameters
  std::vector<size_t> group;   // of each of those, into `steps`
  std::vector<int64_t> steps;  // that the parameters of a group have done

  /// What the program depends on: not the numbers.
  bool same_program(const Selection& other) const { return which == other.which && group == other.group; }
};

}  // namespace

struct CompiledTrainingStep::Impl {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  OptimizerConfig optimizer;
  StepOptions options;
  std::unique_ptr<ModuleTree> tree;
  /// All that ever were trained and are still in the tree.
  std::vector<Trained> trained;
  /// For each slot of the tree the tensor that stood there, and its place in `trained` if it has one.
  struct Place {
    const c10::TensorImpl* tensor = nullptr;
    std::optional<size_t> trained;
  };
  std::vector<Place> places;
  std::vector<Selection> selections;  // each is another program
  int64_t listing = 0;                // how often parameters have left the list
  std::vector<Numbers> numbers;       // by group
  int64_t steps = 0;
  at::Tensor norm;
  CompiledFunction core;

  Impl(std::vector<std::shared_ptr<torch::nn::Module>> all, const OptimizerConfig& how,
       const StepOptions& step)
      : modules(all_given(all)),
        optimizer(how),
        options(
            step),  // It writes into its parameters, and goes backward: to watch one takes twice its memory.
        core(std::move(all), unreplayed(step.compile)) {
    check_numbers(optimizer, options);
    find_trained();
    if (trained.empty())
      throw UsageError(
          "[compile_step] no parameter of the module requires a gradient. Call requires_grad_() on those "
          "that "
          "are to be trained");
  }

  double& lr() {
    return std::visit([](auto& o) -> double& { return o.lr; }, optimizer);
  }

  bool is_adam() const { return !std::holds_alternative<SGD>(optimizer); }

  Trained fresh(const std::string& name, const at::Tensor& parameter) const {
    const at::NoGradGuard no_grad;
    Trained made{name, parameter, {}, {}, at::zeros({}, at::kFloat)};
    if (is_adam() || std::get<SGD>(optimizer).momentum != 0) made.first = at::zeros_like(parameter);
    if (is_adam()) made.second = at::zeros_like(parameter);
    return made;
  }

  /// Goes through the tree: parameters that require a gradient join, those that are gone from it leave.
  void find_trained() {
    if (!tree || tree->changed()) tree = std::make_unique<ModuleTree>(modules);
    drop_gone();
    std::unordered_map<const c10::TensorImpl*, size_t> known;  // tied parameters are one
    for (size_t i = 0; i < trained.size(); ++i) known.emplace(trained[i].parameter.unsafeGetTensorImpl(), i);
    places.assign(tree->slots().size(), {});
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& slot = tree->slots()[i];
      const auto& tensor = slot.tensor();
      if (slot.buffer || !tensor.defined()) continue;
      places[i].tensor = tensor.unsafeGetTensorImpl();
      auto at = known.find(places[i].tensor);
      if (at == known.end() && can_be_trained(tensor)) {
        at = known.emplace(places[i].tensor, trained.size()).first;
        trained.push_back(fresh(slot.path, tensor));
      }
      if (at != known.end()) places[i].trained = at->second;
    }
  }

  void drop_gone() {
    std::unordered_set<const c10::TensorImpl*> there;
    for (const auto& slot : tree->slots())
      if (!slot.buffer && slot.tensor().defined()) there.insert(slot.tensor().unsafeGetTensorImpl());
    const auto gone = std::erase_if(
        trained, [&](const Trained& each) { return !there.contains(each.parameter.unsafeGetTensorImpl()); });
    if (gone == 0) return;
    selections.clear();  // places in the list have other meanings
    ++listing;
  }

  /// Whether the list of trained parameters holds for what the tree has now.
  bool all_found() const {
    if (tree->changed()) return false;
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& slot = tree->slots()[i];
      if (slot.buffer) continue;
      const auto& tensor = slot.tensor();
      if ((tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr) != places[i].tensor) return false;
      if (tensor.defined() && can_be_trained(tensor) && !places[i].trained) return false;
    }
    return true;
  }

  /// As an optimizer over all parameters does: those that require a gradient now.
  Selection select() {
    if (!all_found()) find_trained();
    Selection now;
    for (size_t i = 0; i < trained.size(); ++i) {
      if (!can_be_trained(trained[i].parameter)) continue;
      const auto done = static_cast<int64_t>(*trained[i].steps.const_data_ptr<float>());
      const auto group = std::find(now.steps.begin(), now.steps.end(), done);
      now.which.push_back(i);
      now.group.push_back(static_cast<size_t>(group - now.steps.begin()));
      if (group == now.steps.end()) now.steps.push_back(done);
    }
    return now;
  }
  /// The same for selections of one program.
  int64_t number_of(const Selection& now) {
    const auto known = std::find_if(selections.begin(), selections.end(),
                                    [&](const Selection& each) { return each.same_program(now); });
    if (known != selections.end()) return known - selections.begin();
    selections.push_back(now);
    return static_cast<int64_t>(selections.size()) - 1;
  }

  void set_numbers(const Selection& now) {
    // Where the parameters are, so that kernels can read them.
    while (numbers.size() < now.steps.size()) numbers.emplace_back(trained[now.which[0]].parameter.device());
    for (size_t i = 0; i < now.steps.size(); ++i) {
      const auto step = static_cast<double>(now.steps[i] + 1);
      numbers[i].lr.fill_(lr());
      std::visit(
          [&](const auto& how) {
            if constexpr (HasBetas<std::decay_t<decltype(how)>>) {
              numbers[i].decay.fill_(1 - how.lr * how.weight_decay);
              numbers[i].scale.fill_(how.lr / (1 - std::pow(how.beta1, step)));
              numbers[i].root.fill_(std::sqrt(1 - std::pow(how.beta2, step)));
            } else {
              numbers[i].scale.fill_(now.steps[i] == 0 ? 1.0 : 1 - how.dampening);
            }
          },
          optimizer);
    }
  }

  /// The step itself, as it is captured and as it runs eagerly. Gives the loss and the gradients' norm, and
  /// which of the selected parameters had a gradient: others are left alone, as torch's optimizers do.
  FlatResult step(const Selection& selection, const std::vector<Numbers>& now,
                  const std::function<at::Tensor()>& loss_of) const {
    at::Tensor shown;
    std::vector<at::Tensor> wanted, grads;
    for (const size_t i : selection.which) wanted.push_back(trained[i].parameter);
    {
      const at::AutoGradMode on(true);
      const auto loss = loss_of();
      if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad() || wanted.empty())
        throw UsageError("[compile_step] the loss must be one number that depends on a trained parameter");
      shown = loss.detach();  // before the backward: where this call stands, the forward ends
      grads = torch::autograd::grad({loss}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
    }
    const at::NoGradGuard no_grad;
    const auto total = clip(grads);
    auto updated = std::make_shared<std::vector<bool>>();
    for (size_t i = 0; i < grads.size(); ++i) {
      updated->push_back(grads[i].defined());
      if (!grads[i].defined()) continue;
      const auto& parameter = trained[selection.which[i]];
      std::visit([&](const auto& how) { update(how, parameter, grads[i], now[selection.group[i]]); },
                 optimizer);
    }
    return {{shown, total}, updated};
  }

  /// Gives the norm before clipping; undefined without clipping.
  at::Tensor clip(std::vector<at::Tensor>& grads) const {
    if (options.max_grad_norm <= 0) return {};
    // Added up at the end: a sum that grows with each would have them wait for each other, and with them
    // what they are computed from.
    std::vector<at::Tensor> squares;
    const bool exact = std::any_of(grads.begin(), grads.end(), [](const at::Tensor& grad) {
      return grad.defined() && grad.scalar_type() == at::kDouble;
    });
    for (const auto& grad : grads)
      if (grad.defined()) squares.push_back(grad.to(exact ? at::kDouble : at::kFloat).square().sum());
    if (squares.empty()) return {};
    auto total = at::stack(squares).sum().sqrt();
    const auto factor = (options.max_grad_norm / (total + 1e-6)).clamp_max(1.0);
    for (auto& grad : grads)
      if (grad.defined()) grad = grad * factor.to(grad.scalar_type());
    return total;
  }

  void count(const Selection& selection, const std::vector<bool>& updated) {
    ++steps;
    for (size_t i = 0; i < selection.which.size(); ++i)
      if (updated[i]) *trained[selection.which[i]].steps.data_ptr<float>() += 1;
  }
};

CompiledTrainingStep::CompiledTrainingStep(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                                           const OptimizerConfig& optimizer, const StepOptions& options)
    : impl_(std::make_unique<Impl>(std::move(modules), optimizer, options)) {}
CompiledTrainingStep::~CompiledTrainingStep() = default;

at::Tensor CompiledTrainingStep::run(const FlatArguments& arguments,
                                     const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss) {
  auto& me = *impl_;
  const auto selection = me.select();
  me.set_numbers(selection);
  me.norm.reset();  // its memory may serve this step
  auto flat = arguments;
  flat.fixed.push_back(me.number_of(selection));
  flat.fixed.push_back(me.listing);
  const size_t own = flat.tensors.size();
  for (size_t i = 0; i < selection.steps.size(); ++i)
    for (const auto& number : me.numbers[i].all()) flat.tensors.push_back(number);
  const at::AutoGradMode on(true);
  const auto made = me.core.call(flat, [&](const std::vector<at::Tensor>& tensors) {
    const std::vector<at::Tensor> mine(tensors.begin(), tensors.begin() + static_cast<int64_t>(own));
    std::vector<Numbers> now;
    for (size_t i = own; i < tensors.size(); i += Numbers::count) now.emplace_back(&tensors[i]);
    return me.step(selection, now, [&] { return loss(mine); });
  });
  me.count(selection, *static_cast<const std::vector<bool>*>(made.structure.get()));
  me.norm = made.tensors[1];
  return made.tensors[0];
}

double CompiledTrainingStep::lr() const { return impl_->lr(); }
void CompiledTrainingStep::set_lr(double lr) {
  check_number("lr", lr);
  impl_->lr() = lr;
}
int64_t CompiledTrainingStep::steps() const { return impl_->steps; }
void CompiledTrainingStep::set_steps(int64_t steps) {
  if (steps < 0)
    throw UsageError("[compile_step] set_steps() takes a number of steps, got " + std::to_string(steps));
  impl_->steps = steps;
  for (auto& t : impl_->trained) t.steps.fill_(steps);
}
at::Tensor CompiledTrainingStep::grad_norm() const { return impl_->norm; }

std::vector<std::pair<std::string, at::Tensor>> CompiledTrainingStep::state() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  const bool adam = impl_->is_adam();
  for (const auto& t : impl_->trained) {
    if (t.first.defined()) all.emplace_back((adam ? "exp_avg." : "momentum_buffer.") + t.name, t.first);
    if (t.second.defined()) all.emplace_back("exp_avg_sq." + t.name, t.second);
    if (t.first.defined()) all.emplace_back("step." + t.name, t.steps);
  }
  return all;
}

}  // namespace graft::detail
