#include "adapters/methods/prefix_tuning.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "adapters/prefix.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

using torch::nn::Embedding;
using torch::nn::Linear;
using torch::nn::Sequential;
using torch::nn::Tanh;

/// `prefix_projection`; torch's own modules, under PEFT's names and drawn in its order.
class PrefixEncoder : public PromptEncoder {
 public:
  explicit PrefixEncoder(const AdapterConfig& config) {
    const int64_t width = config.integer("token_dim"), hidden = config.integer("encoder_hidden_size");
    check_fits_memory("prompt_encoder", {config.integer("num_virtual_tokens"), width});
    check_fits_memory("prompt_encoder", {hidden, prefix_width(config)});
    embedding_ = register_module("embedding", Embedding(config.integer("num_virtual_tokens"), width));
    Linear in(width, hidden), out(hidden, prefix_width(config));
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

at::Tensor fresh_rows(const AdapterConfig& config) {
  auto rows = fresh_tensor("prompt_embeddings", {config.integer("num_virtual_tokens"), prefix_width(config)})
                  .normal_();
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
                build, std::vector<int64_t>{config.integer("num_virtual_tokens"), prefix_width(config)},
                build.source.fresh() ? fresh_rows(config) : at::Tensor());
          },
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
