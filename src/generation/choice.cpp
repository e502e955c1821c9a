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

namespace {

/// As argmax does, but in two steps, so that many blocks of a GPU can work on a row.
at::Tensor likeliest(const at::Tensor& scores) {
  constexpr int64_t most = 512;
  const int64_t vocabulary = scores.size(-1);
  int64_t parts = scores.is_cuda() ? most : 1;
  while (vocabulary % parts != 0) parts /= 2;
  if (parts == 1) return scores.argmax(-1);
  const auto [best, where] = scores.view({scores.size(0), parts, vocabulary / parts}).max(-1);
  const auto part = best.argmax(-1, /*keepdim=*/true);
  return (part * (vocabulary / parts) + where.gather(1, part)).squeeze(1);
}

}  // namespace

at::Tensor Choice::operator()(const at::Tensor& logits, const at::Tensor& ids, int64_t prompt_length) {
  if (!config_.do_sample) return likeliest(scores_of(logits.to(at::kFloat), ids, prompt_length, config_));
  return draw(probabilities(logits, ids, prompt_length)).to(ids.device());
}

}  // namespace graft::generation
