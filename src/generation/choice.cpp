#include "generation/choice.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <random>

#include "graft/error.h"

namespace graft::generation {
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

Choice::Choice(const GenerationConfig& config, const ScoreContext& context) : scores_(config, context) {
  if (config.do_sample)
    generator_ = at::detail::createCPUGenerator(config.seed ? *config.seed : std::random_device{}());
}

at::Tensor Choice::draw(const at::Tensor& probabilities, int64_t count) const {
  const auto on_host = probabilities.cpu();
  // What a model without any sense leaves: no token with a chance, or NaN.
  if (!on_host.sum(-1).isfinite().all().item<bool>())
    throw Error(
        "[generate] the probabilities to draw by are not numbers: the settings leave no token, or the "
        "model's "
        "results are not finite");
  return at::multinomial(on_host, count, /*replacement=*/false, generator_).to(probabilities.device());
}

double Choice::number() const { return at::rand({}, generator_, at::kDouble).item<double>(); }

at::Tensor Choice::operator()(const at::Tensor& scores) const {
  return generator_.defined() ? draw(scores.softmax(-1)).squeeze(1) : likeliest(scores);
}

}  // namespace graft::generation
