#include "adapters/prefix.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::adapters {
namespace {

int64_t layers_of_decoder(const PromptBuild& build) {
  if (build.config.integer("num_transformer_submodules") == 1) return 0;
  const auto& sizes = build.model.config();
  const int64_t layers = build.config.integer("num_layers"),
                decoder = sizes.integer("num_decoder_layers", sizes.integer("num_layers"));
  if (decoder > layers)
    throw ConfigError("[adapters] \"num_layers\" is " + std::to_string(layers) + ", and the decoder has " +
                      std::to_string(decoder) + ": PEFT's prefix does not reach the last ones");
  return decoder;
}

}  // namespace

int64_t prefix_width(const AdapterConfig& config) {
  return 2 * config.integer("num_layers") * config.integer("token_dim");
}

Prefix::Prefix(const PromptBuild& build, at::IntArrayRef shape, const at::Tensor& fresh)
    : Prompt(build, shape, fresh) {
  measure(build);
}

Prefix::Prefix(const PromptBuild& build, std::shared_ptr<PromptEncoder> encoder)
    : Prompt(build, std::move(encoder)) {
  measure(build);
}

void Prefix::measure(const PromptBuild& build) {
  heads_ = build.config.integer("num_attention_heads");
  head_dim_ = build.config.integer("token_dim") / heads_;
  decoder_layers_ = layers_of_decoder(build);
  dtype_ = build.model.dtype();
}

VirtualTokens Prefix::virtual_tokens(const at::Tensor& /*task_ids*/) const {
  const auto rows = embeddings().to(dtype_);
  const auto prefix = rows.view({rows.size(0), -1, heads_, head_dim_}).permute({1, 2, 0, 3});
  return {.prefix = decoder_layers_ ? of_decoder(prefix) : prefix};
}

/// PEFT writes the pairs of keys and values twice, one row of pairs after the other, and distributes two
/// pairs to a layer, of which it drops the cross attention's again: layer i has pair 2i, counted round.
at::Tensor Prefix::of_decoder(const at::Tensor& prefix) const {
  const auto layers = at::cat({prefix, prefix}, 0).unflatten(0, {-1, 4});
  return layers.slice(0, 0, decoder_layers_).slice(1, 0, 2).flatten(0, 1);
}

}  // namespace graft::adapters
