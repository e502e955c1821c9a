#include "adapters/prefix_tuning.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "adapters/prompt.h"
#include "adapters/prompt_config.h"

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
        dtype_(build.model.dtype()) {}

  VirtualTokens virtual_tokens() const override {
    const auto rows = embeddings().to(dtype_);
    return {.prefix = rows.view({rows.size(0), -1, heads_, head_dim_}).permute({1, 2, 0, 3})};
  }

 private:
  int64_t heads_, head_dim_;
  at::ScalarType dtype_;
};

at::Tensor fresh_rows(const AdapterConfig& config) {
  auto rows = at::empty({config.integer("num_virtual_tokens"), row_width(config)}, at::kFloat).normal_();
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
