#include "adapters/methods/cpt.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>

#include <cmath>

#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// Of each kind of token, counted within an example: what comes around the input, the input, what comes
/// around the label, the label itself, which never moves.
enum Kind : uint8_t { label, input_template, input, output_template };

Kind kind_of(int64_t number) { return static_cast<Kind>(((number % 4) + 4) % 4); }

/// How far each token may move from where it started.
at::Tensor reach_of(const AdapterConfig& config) {
  constexpr float hardly = 1e-10F, reference_width = 2048;
  const auto width = std::sqrt(static_cast<float>(config.integer("token_dim")) / reference_width);
  const auto scaled = [&](const char* field) { return static_cast<float>(config.number(field)) * width; };
  std::vector<float> reach;
  for (const auto number : config.integers("cpt_tokens_type_mask")) {
    const auto kind = kind_of(number);
    const bool fixed = number <= 0 || kind == label;
    reach.push_back(
        fixed ? hardly : scaled(kind == input ? "opt_projection_epsilon" : "opt_projection_format_epsilon"));
  }
  return at::tensor(reach);
}

class MovedTokens : public PromptEncoder {
 public:
  MovedTokens(const at::Tensor& start, const AdapterConfig& config) {
    start_ = register_buffer("embedding", start.clone());
    moved_ = register_module("delta_embedding", torch::nn::Embedding(start.size(0), start.size(1)));
    moved_->to(start.scalar_type());
    const at::NoGradGuard no_grad;
    moved_->weight.zero_();
    std::vector<uint8_t> moves;
    for (const auto number : config.integers("cpt_tokens_type_mask"))
      moves.push_back(kind_of(number) != label);
    moves_ = register_buffer("moves", at::tensor(moves).to(at::kBool).unsqueeze(1));
    reach_ = register_buffer("reach", reach_of(config).unsqueeze(1));
  }

  at::Tensor encode(bool /*training*/) override {
    project();
    const auto& delta = moved_->weight;
    return start_ + at::where(moves_, delta, delta.detach());
  }

 private:
  /// Brings back what an optimizer's step took too far. What is near enough stays as it is, bit for bit.
  void project() {
    const at::NoGradGuard no_grad;
    const auto length = at::linalg_vector_norm(moved_->weight, 2, at::IntArrayRef{1}, /*keepdim=*/true);
    moved_->weight.mul_(at::where(length > reach_, reach_ / length, at::ones_like(length)));
  }

  at::Tensor start_, moves_, reach_;
  torch::nn::Embedding moved_{nullptr};
};

class ContextPrompt : public Prompt {
 public:
  ContextPrompt(const PromptBuild& build, const at::Tensor& start)
      : Prompt(build, std::make_shared<MovedTokens>(start, build.config)) {
    const auto& config = build.config;
    const bool decays = config.string("opt_weighted_loss_type") == "decay";
    const auto keep = [&](const char* name, const at::Tensor& value) {
      return register_buffer(name, value.to(build.model.device()));
    };
    ids_ = keep("ids", at::tensor(config.integers("cpt_token_ids")));
    kinds_ = keep("kinds", at::tensor(config.integers("cpt_tokens_type_mask")));
    decay_ = keep("decay", at::scalar_tensor(decays ? config.number("opt_loss_decay_factor") : 1.0));
  }

  VirtualTokens virtual_tokens(const at::Tensor& /*task_ids*/) const override {
    return {.embeddings = embeddings(), .ids = ids_, .kinds = kinds_, .decay = decay_};
  }

 private:
  at::Tensor ids_, kinds_, decay_;
};

/// The embeddings of the tokens that the prompt is made of.
at::Tensor fresh_start(const PromptBuild& build) {
  const at::NoGradGuard no_grad;
  const auto ids = build.config.integers("cpt_token_ids");
  const int64_t vocab = build.model.config().integer("vocab_size");
  for (const auto id : ids)
    if (id < 0 || id >= vocab)
      throw ConfigError("[cpt] \"cpt_token_ids\" has the token " + std::to_string(id) +
                        ", and the model knows " + std::to_string(vocab));
  // PEFT draws an embedding before it takes the tokens' own, and one for what they are moved by.
  at::empty({static_cast<int64_t>(ids.size()), build.config.integer("token_dim")}).normal_();
  return build.model.input_embeddings(at::tensor(ids).unsqueeze(0).to(build.model.device()))
      .squeeze(0)
      .to(at::kFloat);
}

void check(const AdapterConfig& config) {
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw ConfigError("[cpt] " + what);
  };
  demand(config.string("task_type") == "CAUSAL_LM", "\"task_type\" must be \"CAUSAL_LM\"");
  const auto count = config.integers("cpt_token_ids").size();
  demand(count > 0, "\"cpt_token_ids\" must name at least one token");
  demand(!config.has("num_virtual_tokens") ||
             config.integer("num_virtual_tokens") == static_cast<int64_t>(count),
         "\"num_virtual_tokens\" is the number of \"cpt_token_ids\", which has " + std::to_string(count) +
             ": leave it out");
  demand(!config.has("num_transformer_submodules") || config.integer("num_transformer_submodules") == 1,
         "\"num_transformer_submodules\" must be 1");
  for (const char* field : {"cpt_mask", "cpt_tokens_type_mask"})
    demand(!config.has(field) || config.integers(field).size() == count,
           "\"" + std::string(field) + "\" must be as long as \"cpt_token_ids\", which has " +
               std::to_string(count) + " tokens");
  for (const char* field :
       {"opt_loss_decay_factor", "opt_projection_epsilon", "opt_projection_format_epsilon"})
    demand(config.number(field) >= 0, "\"" + std::string(field) + "\" must not be negative");
}

}  // namespace

Method cpt_method() {
  using Rule = Field::Rule;
  return {.type = "CPT",
          .fields = prompt_fields({{"cpt_token_ids", nlohmann::json::array({0}), {}, Rule::any},
                                   {"cpt_mask", nullptr, {}, Rule::any},
                                   {"cpt_tokens_type_mask", nullptr, {}, Rule::any},
                                   {"opt_weighted_loss_type", "none", {"none", "decay"}},
                                   {"opt_loss_decay_factor", 1.0},
                                   {"opt_projection_epsilon", 0.1},
                                   {"opt_projection_format_epsilon", 0.1},
                                   {"tokenizer_name_or_path"}}),
          .check = check,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            const auto& config = build.config;
            const auto given = build.source.take(
                "prompt_embeddings", {config.integer("num_virtual_tokens"), config.integer("token_dim")});
            return std::make_shared<ContextPrompt>(build, given.defined() ? given : fresh_start(build));
          },
          .data_fields = {"cpt_token_ids", "cpt_mask", "cpt_tokens_type_mask", "opt_weighted_loss_type",
                          "opt_loss_decay_factor", "opt_projection_epsilon", "opt_projection_format_epsilon",
                          "tokenizer_name_or_path", "num_attention_heads", "num_layers"}};
}

}  // namespace graft::adapters
