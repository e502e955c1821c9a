#include "adapters/methods/vera_projections.h"

#include <ATen/ATen.h>

#include "adapters/torch_init.h"

namespace graft::adapters {

VeraProjections::VeraProjections(std::string prefix, int64_t times, const AdapterConfig& config,
                                 const std::vector<nn::WeightedLayer*>& layers, TensorSource& source)
    : prefix_("base_model." + std::move(prefix)), saved_(config.boolean("save_projection")) {
  const int64_t r = positive(config, "r");
  check_fits_memory(prefix_ + "A", {r, times});
  const int64_t rows = times * r;
  const auto size = largest(layers);
  if (saved_ && !source.fresh()) {
    A = source.take(prefix_ + "A", {rows, size.in});
    B = source.take(prefix_ + "B", {size.out, r});
  } else {
    const auto generator = seeded(config.integer("projection_prng_key"));
    A = fresh_tensor(prefix_ + "A", {rows, size.in});
    B = fresh_tensor(prefix_ + "B", {size.out, r});
    kaiming_uniform(A, 0, generator);
    kaiming_uniform(B, 0, generator);
  }
  for (auto* projection : {&A, &B}) *projection = projection->to(layers.front()->weight.device());
}

std::vector<Shared::Entry> VeraProjections::entries() const {
  return {{prefix_ + "A", A, false, saved_}, {prefix_ + "B", B, false, saved_}};
}

}  // namespace graft::adapters
