#include "train/optimizer.h"

#include <ATen/ATen.h>

#include <map>
#include <tuple>

#include "graft/error.h"
#include "train/adafactor.h"

namespace graft::train {
namespace {

/// Tensors that one fused call can take: the same decay, learning rate and dtype.
std::vector<std::vector<size_t>> groups_of(const std::vector<Trained>& tensors) {
  std::map<std::tuple<bool, double, at::ScalarType>, std::vector<size_t>> groups;
  for (size_t i = 0; i < tensors.size(); ++i)
    groups[{tensors[i].decays, tensors[i].lr_scale, tensors[i].tensor.scalar_type()}].push_back(i);
  std::vector<std::vector<size_t>> list;
  list.reserve(groups.size());
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

/// torch's fused kernel goes through memory, not through elements: a gradient of other strides (that of a
/// transposed weight, say) would be taken for another.
at::Tensor laid_out_as(const at::Tensor& parameter, const at::Tensor& gradient) {
  return gradient.strides() == parameter.strides() ? gradient : at::empty_like(parameter).copy_(gradient);
}

class AdamWOptimizer : public Optimizer {
 public:
  AdamWOptimizer(const TrainingArguments& how, const std::vector<Trained>& tensors)
      : how_(how), tensors_(tensors), groups_(groups_of(tensors)) {
    for (const auto& each : tensors_) {
      averages_.push_back(at::zeros_like(each.tensor));
      squares_.push_back(at::zeros_like(each.tensor));
      steps_.push_back(at::zeros({}, each.tensor.options().dtype(at::kFloat)));
    }
  }

  void step(const std::vector<at::Tensor>& gradients, double learning_rate) override {
    for (const auto& group : groups_) {
      std::vector<at::Tensor> parameters, grads, averages, squares, steps;
      for (const size_t i : group) {
        if (!gradients[i].defined()) continue;
        parameters.push_back(tensors_[i].tensor);
        grads.push_back(laid_out_as(tensors_[i].tensor, gradients[i]));
        averages.push_back(averages_[i]);
        squares.push_back(squares_[i]);
        steps.push_back(steps_[i]);
      }
      if (parameters.empty()) continue;
      at::_foreach_add_(steps, 1);
      at::_fused_adamw_(parameters, grads, averages, squares, {}, steps,
                        learning_rate * tensors_[group[0]].lr_scale, how_.adam_beta1, how_.adam_beta2,
                        tensors_[group[0]].decays ? how_.weight_decay : 0, how_.adam_epsilon,
                        /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  NamedTensors state() const override {
    NamedTensors all;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      all.emplace_back("exp_avg." + tensors_[i].name, averages_[i]);
      all.emplace_back("exp_avg_sq." + tensors_[i].name, squares_[i]);
      all.emplace_back("step." + tensors_[i].name, steps_[i]);
    }
    return all;
  }

 private:
  TrainingArguments how_;
  std::vector<Trained> tensors_;
  std::vector<std::vector<size_t>> groups_;
  std::vector<at::Tensor> averages_, squares_, steps_;
};

/// torch.optim.SGD as transformers sets it up: without momentum, so that there is nothing to keep.
class SgdOptimizer : public Optimizer {
 public:
  SgdOptimizer(const TrainingArguments& how, const std::vector<Trained>& tensors)
      : decay_(how.weight_decay), tensors_(tensors), groups_(groups_of(tensors)) {}

  void step(const std::vector<at::Tensor>& gradients, double learning_rate) override {
    for (const auto& group : groups_) {
      std::vector<at::Tensor> parameters, grads;
      for (const size_t i : group) {
        if (!gradients[i].defined()) continue;
        parameters.push_back(tensors_[i].tensor);
        grads.push_back(gradients[i]);
      }
      if (parameters.empty()) continue;
      if (decay_ != 0 && tensors_[group[0]].decays) grads = at::_foreach_add(grads, parameters, decay_);
      at::_foreach_add_(parameters, grads, -learning_rate * tensors_[group[0]].lr_scale);
    }
  }

  NamedTensors state() const override { return {}; }

 private:
  double decay_;
  std::vector<Trained> tensors_;
  std::vector<std::vector<size_t>> groups_;
};

}  // namespace

std::vector<Trained> with_rates(std::vector<Trained> tensors, const TrainingArguments& arguments) {
  if (!arguments.loraplus_lr_ratio) return tensors;
  const auto refuse = [](const std::string& what) { throw UsageError("[train] loraplus_lr_ratio " + what); };
  if (!(*arguments.loraplus_lr_ratio > 0)) refuse("must be above 0");
  if (arguments.optim == "adafactor") refuse("does not go with adafactor: use adamw_torch or sgd");
  bool any = false;
  for (auto& each : tensors) {
    const auto has = [&](const char* word) { return each.name.find(word) != std::string::npos; };
    any |= has("lora_");
    if (has("lora_embedding_"))
      each.lr_scale = arguments.loraplus_lr_embedding / arguments.learning_rate;
    else if (has("lora_B") || each.tensor.dim() == 1)
      each.lr_scale = *arguments.loraplus_lr_ratio;
  }
  if (!any) refuse("is for LoRA, and no tensor in training is one of LoRA's");
  return tensors;
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingArguments& arguments,
                                          const std::vector<Trained>& tensors) {
  const auto& name = arguments.optim;
  if (name == "adamw_torch" || name == "adamw_torch_fused")
    return std::make_unique<AdamWOptimizer>(arguments, tensors);
  if (name == "sgd") return std::make_unique<SgdOptimizer>(arguments, tensors);
  if (name == "adafactor") return make_adafactor(arguments.weight_decay, tensors);
  throw UsageError("[train] optim \"" + name +
                   "\" is unknown; known: adamw_torch, adamw_torch_fused, sgd, adafactor");
}

void Optimizer::restore(const SafetensorsFile& from, bool part) { train::restore(state(), from, part); }

std::shared_ptr<ProcessGroup> processes_of(const TrainingArguments& arguments) {
  return arguments.processes ? arguments.processes : ProcessGroup::connect({.size = 1});
}

void restore(const NamedTensors& state, const SafetensorsFile& from, bool part) {
  const auto refuse = [&](const std::string& what) {
    throw FormatError("[train] " + from.path().string() + " is not of this optimizer and these tensors: " +
                      what + ". Resume with the arguments of the run that wrote it");
  };
  if (!part && state.size() != from.names().size())
    refuse("it has " + std::to_string(from.names().size()) + " tensors instead of " +
           std::to_string(state.size()));
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) {
    if (!from.contains(name)) refuse("\"" + name + "\" is missing");
    const auto saved = from.tensor(name);
    if (saved.sizes() != tensor.sizes()) refuse("\"" + name + "\" has another shape");
    tensor.copy_(saved);
  }
}

at::Tensor clip_grad_norm(const std::vector<at::Tensor>& gradients, double max_norm) {
  std::vector<at::Tensor> there;
  for (const auto& gradient : gradients)
    if (gradient.defined()) there.push_back(gradient);
  if (there.empty()) return {};
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(there)));
  at::_foreach_mul_(there, at::clamp_max(max_norm / (norm + 1e-6), 1.0));
  return norm;
}

}  // namespace graft::train
