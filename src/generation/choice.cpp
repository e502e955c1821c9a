#include "generation/choice.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <random>

#include "generation/scores.h"

namespace graft::generation {

Choice::Choice(GenerationConfig config) : config_(std::move(config)) {
  if (config_.do_sample)
    generator_ = at::detail::createCPUGenerator(config_.seed ? *config_.seed : std::random_device{}());
}

at::Tensor Choice::probabilities(const at::Tensor& logits, const at::Tensor& ids,
                                 int64_t prompt_length) const {
  return scores_of(logits.to(at::kFloat), ids, prompt_length, config_).softmax(-1).cpu();
}

at::Tensor Choice::draw(const at::Tensor& probabilities) const {
  return at::multinomial(probabilities, 1, /*replacement=*/false, generator_).squeeze(1);
}

double Choice::number() const { return at::rand({}, generator_, at::kDouble).item<double>(); }

at::Tensor Choice::operator()(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length) {
  if (!config_.do_sample) return scores_of(logits.to(at::kFloat), ids, prompt_length, config_).argmax(-1);
  return draw(probabilities(logits, ids, prompt_length)).to(ids.device());
}

}  // namespace graft::generation
