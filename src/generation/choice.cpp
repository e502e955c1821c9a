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

at::Tensor Choice::operator()(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length) {
  const auto scores = scores_of(logits.to(at::kFloat), ids, prompt_length, config_);
  if (!config_.do_sample) return scores.argmax(-1);
  const auto probabilities = scores.softmax(-1).cpu();
  return at::multinomial(probabilities, 1, /*replacement=*/false, generator_).squeeze(1).to(ids.device());
}

}  // namespace graft::generation
