#include "train/stepper.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/options.h"
#include "distributed/connected.h"
#include "graft/compile_step.h"
#include "train/precision.h"
#include "train/sharded_optimizer.h"

namespace graft::train {
namespace {

/// The loss alone: a compiled program whose only result it is stores no logits.
std::function<at::Tensor(const ModelInputs&)> loss_of(const Subject& subject,
                                                      const TrainingArguments& arguments) {
  return [forward = forward_under_autocast(subject, arguments)](const ModelInputs& inputs) {
    return forward(inputs).loss;
  };
}

class InParts : public Stepper {
 public:
  InParts(Subject& subject, const TrainingArguments& arguments)
      : subject_(subject),
        group_(processes_of(arguments)),
        max_norm_(arguments.max_grad_norm),
        loss_(compile(loss_of(subject, arguments), unreplayed(arguments.compile), {subject.module()})) {
    if (arguments.fp16) scaler_.emplace();
    const auto trained = with_rates(subject.tensors(), arguments);
    NamedTensors named;
    for (const auto& each : trained) {
      wanted_.push_back(each.tensor);
      named.emplace_back(each.name, each.tensor);
    }
    sum_ = dist::sum_gradients(group_, named);
    optimizer_ = arguments.zero_stage >= 1 && group_->size() > 1
                     ? make_sharded_optimizer(arguments, trained, group_)
                     : make_optimizer(arguments, trained);
  }

  Stepped step(const std::vector<ModelInputs>& batches, const std::vector<int64_t>& counts, int64_t labels,
               double learning_rate, int64_t number) override {
    auto total = at::zeros({1}, at::kDouble);
    for (auto& tensor : wanted_) tensor.mutable_grad() = at::Tensor();
    for (size_t i = 0; i < batches.size(); ++i) {
      const bool last = i + 1 == batches.size();
      // The mean over nothing is NaN. But all processes have to take part in the sum of the gradients.
      if (counts[i] == 0 && !(sum_ && last)) continue;
      // Each batch's own mean counts by its share of the labels.
      const double share = static_cast<double>(counts[i]) / static_cast<double>(labels);
      const auto loss = counts[i] == 0 ? nothing() : loss_(batches[i]);
      backward(loss, scaler_ ? share * scaler_->scale() : share, last);
      if (counts[i] > 0) total += loss.detach().to(at::kCPU, at::kDouble) * share;
    }
    group_->all_reduce(total);
    Stepped done{.loss = total.item<double>()};
    std::vector<at::Tensor> gradients;
    gradients.reserve(wanted_.size());
    for (const auto& tensor : wanted_) gradients.push_back(tensor.grad());
    const at::NoGradGuard no_grad;
    done.skipped = scaler_ && !scaler_->unscale(gradients);
    if (!done.skipped) {
      if (max_norm_ > 0)
        if (const auto norm = clip_grad_norm(gradients, max_norm_); norm.defined())
          done.grad_norm = norm.item<double>();
      optimizer_->step(gradients, learning_rate);
      subject_.after_step(number);
    }
    for (auto& tensor : wanted_) tensor.mutable_grad() = at::Tensor();
    return done;
  }

  NamedTensors state() const override {
    auto all = optimizer_->state();
    if (scaler_)
      for (auto& each : scaler_->state()) all.push_back(std::move(each));
    return all;
  }
  void restore(const SafetensorsFile& from) override {
    if (scaler_) train::restore(scaler_->state(), from, /*part=*/true);
    optimizer_->restore(from, /*part=*/scaler_.has_value());
  }

 private:
  /// Adds to the tensors' grad.
  void backward(const at::Tensor& loss, double share, bool last) {
    const auto weight = at::full_like(loss, share);
    if (sum_) return last ? sum_->backward(loss, weight) : torch::autograd::backward({loss}, {weight});
    std::vector<at::Tensor> asked;
    asked.reserve(wanted_.size());
    for (const auto& tensor : wanted_)
      if (tensor.requires_grad()) asked.push_back(tensor);  // not what a callback has frozen
    // Not through the tensors' own accumulation, which would copy each gradient.
    const auto found = torch::autograd::grad({loss}, asked, {weight}, std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t k = 0; k < found.size(); ++k)
      if (found[k].defined())
        asked[k].mutable_grad() = asked[k].grad().defined() ? asked[k].grad() + found[k] : found[k];
  }

  /// A loss of 0 whose gradients are 0: that of a process without rows.
  at::Tensor nothing() const {
    auto zero = at::zeros({}, wanted_[0].options().requires_grad(false));
    for (const auto& tensor : wanted_) zero = zero + tensor.sum() * 0;
    return zero;
  }

  Subject& subject_;
  std::shared_ptr<ProcessGroup> group_;
  double max_norm_;
  Compiled<at::Tensor(const ModelInputs&)> loss_;
  std::vector<at::Tensor> wanted_;
  std::unique_ptr<dist::GradientSum> sum_;
  std::optional<LossScaler> scaler_;
  std::unique_ptr<Optimizer> optimizer_;
};

class Whole : public Stepper {
 public:
  Whole(const Subject& subject, const TrainingArguments& arguments)
      : trained_(subject.tensors()),
        step_(compile_step(subject.module(), loss_of(subject, arguments), optimizer_of(arguments, trained_),
                           {.max_grad_norm = arguments.max_grad_norm, .compile = arguments.compile})) {
    std::map<const c10::TensorImpl*, std::string> names;
    for (const auto& each : trained_) names[each.tensor.unsafeGetTensorImpl()] = each.name;
    for (const auto& item : subject.module()->named_parameters())
      if (const auto found = names.find(item.value().unsafeGetTensorImpl()); found != names.end())
        name_of_path_[item.key()] = found->second;
  }

  static bool can(const Subject& subject, const TrainingArguments& arguments) {
    const auto trained = subject.tensors();
    const bool one_decay =
        arguments.weight_decay == 0 ||
        std::all_of(trained.begin(), trained.end(), [](const Trained& each) { return each.decays; });
    return arguments.compile.backend != Backend::eager && arguments.gradient_accumulation_steps == 1 &&
           arguments.optim != "adafactor" && one_decay && !arguments.loraplus_lr_ratio && !arguments.fp16 &&
           !subject.wants_gradients() && processes_of(arguments)->size() == 1;
  }

  Stepped step(const std::vector<ModelInputs>& batches, const std::vector<int64_t>& /*counts*/,
               int64_t /*labels*/, double learning_rate, int64_t /*number*/) override {
    step_.set_lr(learning_rate);
    Stepped done{.loss = step_(batches.at(0)).item<double>()};
    if (const auto norm = step_.grad_norm(); norm.defined()) done.grad_norm = norm.item<double>();
    return done;
  }

  NamedTensors state() const override {
    NamedTensors all;
    for (const auto& [key, tensor] : step_.state()) {
      const auto dot = key.find('.') + 1;
      const auto name = name_of_path_.find(key.substr(dot));
      all.emplace_back(name == name_of_path_.end() ? key : key.substr(0, dot) + name->second, tensor);
    }
    return all;
  }

  void restore(const SafetensorsFile& from) override {
    const auto mine = state();
    train::restore(mine, from);
    double most = 0;
    for (const auto& [key, tensor] : mine)
      if (key.starts_with("step.")) most = std::max(most, tensor.item<double>());
    step_.set_steps(static_cast<int64_t>(most));
    train::restore(mine, from);  // the steps of each parameter, which are all the same now
  }

 private:
  static OptimizerConfig optimizer_of(const TrainingArguments& a, const std::vector<Trained>& trained) {
    make_optimizer(a, {});  // for its message where there is no such optimizer
    const double decay = !trained.empty() && trained[0].decays ? a.weight_decay : 0;
    if (a.optim == "sgd") return SGD{.lr = a.learning_rate, .weight_decay = decay};
    return AdamW{.lr = a.learning_rate,
                 .beta1 = a.adam_beta1,
                 .beta2 = a.adam_beta2,
                 .eps = a.adam_epsilon,
                 .weight_decay = decay};
  }

  std::vector<Trained> trained_;
  CompiledStep<at::Tensor(const ModelInputs&)> step_;
  std::map<std::string, std::string> name_of_path_;
};

}  // namespace

std::unique_ptr<Stepper> make_stepper(Subject& subject, const TrainingArguments& arguments) {
  if (Whole::can(subject, arguments)) return std::make_unique<Whole>(subject, arguments);
  return std::make_unique<InParts>(subject, arguments);
}

}  // namespace graft::train
