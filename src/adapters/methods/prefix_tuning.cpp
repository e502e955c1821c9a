#include "adapters/methods/prefix_tuning.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

using torch::nn::Embedding;
using torch::nn::Linear;
using torch::nn::Sequential;
using torch::nn::Tanh;

/// A row of the file: keys and values of all layers.
int64_t row_width(const AdapterConfig& config) {
  return 2 * config.integer("num_layers") * config.integer("token_dim");
}

/// `prefix_projection`; torch's own modules, under PEFT's names and drawn in its order.
class PrefixEncoder : public PromptEncoder {
 public:
  explicit PrefixEncoder(const AdapterConfig& config) {
    const int64_t width = config.integer("token_dim"), hidden = config.integer("encoder_hidden_size");
    check_fits_memory("prompt_encoder", {config.integer("num_virtual_tokens"), width});
    check_fits_memory("prompt_encoder", {hidden, row_width(config)});
    embedding_ = register_module("embedding", Embedding(config.integer("num_virtual_tokens"), width));
    Linear in(width, hidden), out(hidden, row_width(config));
    if (config.has("init_weights")) {
      const at::NoGradGuard no_grad;
      out->weight.zero_();
      out->bias.zero_();
    }
    transform_ = register_module("transform", Sequential(in, Tanh(), out));
  }

  at::Tensor encode(bool) override { return transform_->forward(embedding_->weight); }

 private:
  Embedding embedding_{nullptr};
  Sequential transform_{nullptr};
};

class Prefix : public Prompt {
 public:
  template <class... Made>
  explicit Prefix(const PromptBuild& build, const Made&... made)
      : Prompt(build, made...),
        heads_(build.config.integer("num_attention_heads")),
        head_dim_(build.config.integer("token_dim") / heads_),
        decoder_layers_(layers_of_decoder(build)),
        dtype_(build.model.dtype()) {}

  VirtualTokens virtual_tokens() const override {
    const auto rows = embeddings().to(dtype_);
    const auto prefix = rows.view({rows.size(0), -1, heads_, head_dim_}).permute({1, 2, 0, 3});
    return {.prefix = decoder_layers_ ? of_decoder(prefix) : prefix};
  }

 private:
  /// 0 where there is one stack only.
  static int64_t layers_of_decoder(const PromptBuild& build) {
    if (build.config.integer("num_transformer_submodules") == 1) return 0;
    const auto& sizes = build.model.config();
    const int64_t layers = build.config.integer("num_layers"),
                  decoder = sizes.integer("num_decoder_layers", sizes.integer("num_layers"));
    if (decoder > layers)
      throw ConfigError("[adapters] \"num_layers\" is " + std::to_string(layers) + ", and the decoder has " +
                        std::to_string(decoder) + ": PEFT's prefix does not reach the last ones");
    return decoder;
  }

  /// PEFT writes the pairs of keys and values twice, one row of pairs after the other, and distributes two
  /// pairs to a layer, of which it drops the cross attention's again: layer i has pair 2i, counted round.
  at::Tensor of_decoder(const at::Tensor& prefix) const {
    const auto layers = at::cat({prefix, prefix}, 0).unflatten(0, {-1, 4});
    return layers.slice(0, 0, decoder_layers_).slice(1, 0, 2).flatten(0, 1);
  }

  int64_t heads_, head_dim_, decoder_layers_;
  at::ScalarType dtype_;
};

at::Tensor fresh_rows(const AdapterConfig& config) {
  auto rows =
      fresh_tensor("prompt_embeddings", {config.integer("num_virtual_tokens"), row_width(config)}).normal_();
  return config.has("init_weights") ? rows.zero_() : rows;
}

}  // namespace

Method prefix_tuning_method() {
  return {.type = "PREFIX_TUNING",
          .fields = prompt_fields({{"init_weights", nullptr, {"zero"}},
                                   {"encoder_hidden_size", nullptr, {}, Field::Rule::any},
                                   {"prefix_projection", false}}),
          .check = check_prompt,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            const auto& config = build.config;
            if (config.boolean("prefix_projection") && build.has_encoder())
              return std::make_shared<Prefix>(build, std::make_shared<PrefixEncoder>(config));
            return std::make_shared<Prefix>(
                build, std::vector<int64_t>{config.integer("num_virtual_tokens"), row_width(config)},
                build.source.fresh() ? fresh_rows(config) : at::Tensor());
          },
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
