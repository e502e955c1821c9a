#include "adapters/methods/p_tuning.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

using torch::nn::Embedding;
using torch::nn::Linear;
using torch::nn::LSTM;
using torch::nn::ReLU;
using torch::nn::Sequential;

/// torch's own modules, under PEFT's names and drawn in its order.
class PTuningEncoder : public PromptEncoder {
 public:
  explicit PTuningEncoder(const AdapterConfig& config) {
    const int64_t width = config.integer("token_dim"), hidden = config.integer("encoder_hidden_size");
    check_fits_memory("prompt_encoder", {total_virtual_tokens(config), width});
    check_fits_memory("prompt_encoder", {hidden, 2 * std::max(hidden, width)});
    embedding_ = register_module("embedding", Embedding(total_virtual_tokens(config), width));
    if (config.string("encoder_reparameterization_type") == "LSTM") {
      lstm_head_ = register_module("lstm_head", LSTM(torch::nn::LSTMOptions(width, hidden)
                                                         .num_layers(config.integer("encoder_num_layers"))
                                                         .dropout(config.number("encoder_dropout"))
                                                         .bidirectional(true)
                                                         .batch_first(true)));
      mlp_head_ = register_module(
          "mlp_head", Sequential(Linear(2 * hidden, 2 * hidden), ReLU(), Linear(2 * hidden, width)));
      return;
    }
    if (config.integer("encoder_num_layers") != 2)
      log_warning(
          "[adapters] \"encoder_num_layers\" is the LSTM's: an MLP encoder has the layers it has, as in "
          "PEFT");
    mlp_head_ = register_module("mlp_head", Sequential(Linear(width, hidden), ReLU(), Linear(hidden, hidden),
                                                       ReLU(), Linear(hidden, width)));
  }

  at::Tensor encode(bool training) override {
    auto x = embedding_->weight.unsqueeze(0);
    if (lstm_head_) {
      // By the function, not by the module: `training` need not be the module's own state.
      const auto& options = lstm_head_->options;
      const auto start = at::zeros({2 * options.num_layers(), 1, options.hidden_size()}, x.options());
      x = std::get<0>(at::lstm(x, {start, start}, lstm_head_->all_weights(), /*has_biases=*/true,
                               options.num_layers(), options.dropout(), training, /*bidirectional=*/true,
                               /*batch_first=*/true));
    }
    return mlp_head_->forward(x).squeeze(0);
  }

 private:
  Embedding embedding_{nullptr};
  LSTM lstm_head_{nullptr};
  Sequential mlp_head_{nullptr};
};

void check(const AdapterConfig& config) {
  check_prompt(config);
  if (config.integer("encoder_num_layers") < 1)
    throw ConfigError("[adapters] \"encoder_num_layers\" must be at least 1");
  if (const double rate = config.number("encoder_dropout"); rate < 0 || rate > 1)
    throw ConfigError("[adapters] \"encoder_dropout\" must be between 0 and 1");
}

}  // namespace

Method p_tuning_method() {
  return {.type = "P_TUNING",
          .fields = prompt_fields({{"encoder_reparameterization_type", "MLP", {"MLP", "LSTM"}},
                                   {"encoder_hidden_size", nullptr, {}, Field::Rule::any},
                                   {"encoder_num_layers", 2},
                                   {"encoder_dropout", 0.0}}),
          .check = check,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            if (build.has_encoder())
              return std::make_shared<Prompt>(build, std::make_shared<PTuningEncoder>(build.config));
            const std::vector<int64_t> shape{total_virtual_tokens(build.config),
                                             build.config.integer("token_dim")};
            return std::make_shared<Prompt>(
                build, shape,
                build.source.fresh() ? fresh_tensor("prompt_embeddings", shape).normal_() : at::Tensor());
          },
          .data_fields = {"num_attention_heads", "num_layers"}};
}

}  // namespace graft::adapters
