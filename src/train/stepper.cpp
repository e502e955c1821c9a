#include "train/stepper.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "graft/compile_step.h"

namespace graft::train {
namespace {

class InParts : public Stepper {
 public:
  InParts(const Subject& subject, const TrainingArguments& arguments)
      : max_norm_(arguments.max_grad_norm),
        loss_(compile(subject.loss(), arguments.compile, {subject.module()})) {
    const auto trained = with_rates(subject.tensors(), arguments);
    for (const auto& each : trained) wanted_.push_back(each.tensor);
    optimizer_ = make_optimizer(arguments, trained);
  }

  Stepped step(const std::vector<ModelInputs>& batches, const std::vector<int64_t>& counts,
               double learning_rate) override {
    Stepped done{.loss = 0};
    std::vector<at::Tensor> gradients(wanted_.size());
    const auto all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    for (size_t i = 0; i < batches.size(); ++i) {
      if (counts[i] == 0) continue;  // the mean over nothing is NaN
      // Each batch's own mean counts by its share of the labels.
      const double share = static_cast<double>(counts[i]) / static_cast<double>(all);
      const auto loss = loss_(batches[i]);
      const auto found = torch::autograd::grad({loss}, wanted_, {at::full_like(loss, share)}, std::nullopt,
                                               /*create_graph=*/false, /*allow_unused=*/true);
      done.loss += loss.item<double>() * share;
      for (size_t k = 0; k < found.size(); ++k)
        if (found[k].defined()) gradients[k] = gradients[k].defined() ? gradients[k] + found[k] : found[k];
    }
    const at::NoGradGuard no_grad;
    if (max_norm_ > 0)
      if (const auto norm = clip_grad_norm(gradients, max_norm_); norm.defined())
        done.grad_norm = norm.item<double>();
    optimizer_->step(gradients, learning_rate);
    return done;
  }

  NamedTensors state() const override { return optimizer_->state(); }
  void restore(const SafetensorsFile& from) override { train::restore(optimizer_->state(), from); }

 private:
  double max_norm_;
  Compiled<at::Tensor(const ModelInputs&)> loss_;
  std::vector<at::Tensor> wanted_;
  std::unique_ptr<Optimizer> optimizer_;
};

class Whole : public Stepper {
 public:
  Whole(const Subject& subject, const TrainingArguments& arguments)
      : trained_(subject.tensors()),
        step_(compile_step(subject.module(), subject.loss(), optimizer_of(arguments, trained_),
                           {.max_grad_norm = arguments.max_grad_norm, .compile = arguments.compile})) {
    std::map<const c10::TensorImpl*, std::string> names;
    for (const auto& each : trained_) names[each.tensor.unsafeGetTensorImpl()] = each.name;
    for (const auto& item : subject.module()->named_parameters())
      if (const auto found = names.find(item.value().unsafeGetTensorImpl()); found != names.end())
        name_of_path_[item.key()] = found->second;
  }

  static bool can(const TrainingArguments& arguments, const std::vector<Trained>& trained) {
    const bool one_decay =
        arguments.weight_decay == 0 ||
        std::all_of(trained.begin(), trained.end(), [](const Trained& each) { return each.decays; });
    return arguments.compile.backend != Backend::eager && arguments.gradient_accumulation_steps == 1 &&
           arguments.optim != "adafactor" && one_decay && !arguments.loraplus_lr_ratio;
  }

  Stepped step(const std::vector<ModelInputs>& batches, const std::vector<int64_t>& /*counts*/,
               double learning_rate) override {
    step_.set_lr(learning_rate);
    Stepped done{.loss = step_(batches.at(0)).item<double>()};
    if (const auto norm = step_.grad_norm(); norm.defined()) done.grad_norm = norm.item<double>();
    return done;
  }

  NamedTensors state() const override {
    NamedTensors all;
    const auto kept = step_.state();
    for (const auto& [key, tensor] : kept) {
      const auto dot = key.find('.') + 1;
      all.emplace_back(key.substr(0, dot) + name_of_path_.at(key.substr(dot)), tensor);
    }
    if (!kept.empty())
      for (const auto& each : trained_)
        all.emplace_back("step." + each.name, at::scalar_tensor(step_.steps(), at::kFloat));
    return all;
  }

  void restore(const SafetensorsFile& from) override {
    const auto mine = state();
    train::restore(mine, from);
    if (!mine.empty()) step_.set_steps(mine.back().second.item<int64_t>());
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

std::unique_ptr<Stepper> make_stepper(const Subject& subject, const TrainingArguments& arguments) {
  if (Whole::can(arguments, subject.tensors())) return std::make_unique<Whole>(subject, arguments);
  return std::make_unique<InParts>(subject, arguments);
}

}  // namespace graft::train
