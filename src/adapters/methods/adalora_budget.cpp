#include "adapters/methods/adalora_budget.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::adapters {

AdaLoraSchedule::AdaLoraSchedule(const AdapterConfig& config)
    : tinit(config.integer("tinit")),
      tfinal(config.integer("tfinal")),
      total_step(config.integer("total_step")),
      every(config.integer("deltaT")) {}

AdaLoraSchedule::Budget AdaLoraSchedule::at(int64_t step, int64_t initial, int64_t target) const {
  if (step <= tinit) return {initial, false};
  if (step > last()) return {target, true};
  const double left = 1 - static_cast<double>(step - tinit) / static_cast<double>(last() - tinit);
  const double ranks =
      static_cast<double>(initial - target) * (left * left * left) + static_cast<double>(target);
  return {static_cast<int64_t>(ranks), step % every == 0};
}

AdaLoraBudget::AdaLoraBudget(const AdapterConfig& config)
    : schedule_(config),
      beta1_(config.number("beta1")),
      beta2_(config.number("beta2")),
      penalty_weight_(config.has("task_type") ? config.number("orth_reg_weight") : 0),
      target_r_(config.integer("target_r")),
      updates_(at::zeros({}, at::kLong)),
      choices_(at::zeros({}, at::kLong)) {}

void AdaLoraBudget::add(const std::string& path, const at::Tensor& a, const at::Tensor& e,
                        const at::Tensor& b) {
  layers_.push_back({path, Importance(a), Importance(e), Importance(b), at::ones({a.size(0)}, at::kBool)});
  initial_ += a.size(0);
}

at::Tensor AdaLoraBudget::penalty() const {
  if (penalty_weight_ == 0) return {};
  const auto distance = [](const at::Tensor& rows) {
    const auto product = at::matmul(rows, rows.t());
    return at::linalg_vector_norm(product - at::eye(rows.size(0), rows.options()));
  };
  at::Tensor sum;
  for (const auto& layer : layers_) {
    if (layer.a.weight.size(0) == 0) continue;  // adds nothing, and counts
    const auto both = distance(layer.a.weight) + distance(layer.b.weight.t());
    sum = sum.defined() ? sum + both : both;
  }
  return sum.defined() ? sum * (penalty_weight_ / static_cast<double>(2 * layers_.size())) : sum;
}

std::optional<std::vector<bool>> AdaLoraBudget::chosen(const std::string& path) const {
  if (choices_.item<int64_t>() == 0) return {};
  for (const auto& layer : layers_) {
    if (layer.path != path) continue;
    const auto* first = layer.kept.const_data_ptr<bool>();
    return std::vector<bool>(first, first + layer.kept.numel());
  }
  return {};
}

std::map<std::string, std::vector<bool>> AdaLoraBudget::chosen() const {
  std::map<std::string, std::vector<bool>> all;
  for (const auto& layer : layers_)
    if (auto ranks = chosen(layer.path)) all.emplace(layer.path, std::move(*ranks));
  return all;
}

NamedTensors AdaLoraBudget::state() const {
  NamedTensors all{{"budget.updates", updates_}, {"budget.choices", choices_}};
  for (const auto& layer : layers_) {
    const auto name = "budget." + layer.path;
    all.emplace_back(name + ".kept", layer.kept);
    for (const auto& [part, each] :
         {std::pair{".lora_A", &layer.a}, {".lora_E", &layer.e}, {".lora_B", &layer.b}}) {
      all.emplace_back(name + part + ".mean", each->mean);
      all.emplace_back(name + part + ".spread", each->spread);
    }
  }
  return all;
}

AdaLoraBudget::Importance::Importance(const at::Tensor& of)
    : weight(of), mean(at::zeros_like(of.detach())), spread(at::zeros_like(of.detach())) {}

void AdaLoraBudget::Importance::update(double beta1, double beta2) {
  if (!weight.grad().defined())
    throw UsageError(
        "[adalora] update_and_allocate needs gradients: call it after backward(), before they are cleared");
  const auto now = (weight * weight.grad()).abs();
  mean.copy_(beta1 * mean + (1 - beta1) * now);
  spread.copy_(beta2 * spread + (1 - beta2) * (now - mean).abs());
}

at::Tensor AdaLoraBudget::Layer::score() const {
  return e.score().view(-1) + (a.score().mean(1) + b.score().mean(0));
}

bool AdaLoraBudget::update_and_allocate(int64_t step) {
  const at::NoGradGuard no_grad;
  if (step > schedule_.last()) {
    // The optimiser may have moved what was taken away.
    if (choices_.item<int64_t>() > 0)
      for (auto& layer : layers_)
        layer.e.weight.masked_fill_(layer.kept.logical_not().unsqueeze(1).to(layer.e.weight.device()), 0);
    return false;
  }
  const bool final = step == schedule_.last();
  if (!final) {
    for (auto& layer : layers_)
      for (auto* each : {&layer.a, &layer.e, &layer.b}) each->update(beta1_, beta2_);
    updates_ += 1;
  }
  const auto budget = schedule_.at(step, initial_, target());
  if (!budget.allocate && !final) return false;
  choose(budget.ranks);
  choices_ += 1;
  return true;
}

void AdaLoraBudget::choose(int64_t ranks) {
  if (updates_.item<int64_t>() == 0)
    throw UsageError(
        "[adalora] update_and_allocate must be called in every step: it has seen none before its last");
  std::vector<at::Tensor> scores;
  scores.reserve(layers_.size());
  for (const auto& layer : layers_) scores.push_back(layer.score());
  const int64_t taken = initial_ - ranks;
  // PEFT asks for the 0th smallest where nothing is to be taken, and fails.
  const auto threshold = taken > 0 ? std::get<0>(at::kthvalue(at::cat(scores), taken)) : at::Tensor();
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto gone = taken > 0 ? scores[i] <= threshold : at::zeros_like(scores[i], at::kBool);
    layers_[i].e.weight.masked_fill_(gone.unsqueeze(1), 0);
    layers_[i].kept.copy_(gone.logical_not());
  }
}

}  // namespace graft::adapters
