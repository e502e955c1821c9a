#include "adapters/methods/trainable_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "adapters/replacement.h"
#include "graft/error.h"
#include "nn/embedding.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

constexpr const char* kDelta = "trainable_tokens_delta";
constexpr const char* kBesideAnother = "token_adapter.trainable_tokens_delta";

/// Where a file has the whole table of a base whose vocabulary has grown, and the trained rows beside it.
std::string table_suffix(std::string_view delta_suffix) {
  return std::string(delta_suffix.substr(0, delta_suffix.size() - std::string_view(kDelta).size())) +
         "base_layer.weight";
}

/// Replaces rows of the weight by its own. The weight is never copied: an embedding's result is replaced
/// where the ids are the adapter's, an output layer's in their columns. Such an output layer loses its bias,
/// as in PEFT, whatever the adapter trains of it.
///
/// The adapter may know more tokens than the model (resize_token_embeddings()): its file then has the whole
/// table, or has trained all that are new.
class TokensPart : public Part {
 public:
  TokensPart(const PartBuild& build, const std::vector<int64_t>& indices, const char* suffix)
      : Part(build), indices_(indices) {
    const auto& weight = build.layer.weight;
    if (build.layer.kind() != nn::LayerKind::embedding && build.layer.kind() != nn::LayerKind::linear)
      build.refuse("tokens are rows of an embedding or of an output layer");
    const auto own = table_suffix(suffix);
    const auto of_table = adapters::resized_rows(build, build.key(own));
    rows_ = of_table ? *of_table : rows_by_tokens(build);
    check(build);
    if (of_table) table = parameter(build, own, {rows_, weight.size(1)}, /*trainable=*/false);
    delta = parameter(build, suffix, {static_cast<int64_t>(indices.size()), weight.size(1)});
    make_tables(build);
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    const bool random = suffix == kDelta && !build.config.boolean("init_weights");
    delta.copy_(random ? at::randn(delta.sizes(), weight.options()) : weight.index_select(0, index_));
  }

  /// With the embedding's tensor, which is in the adapter's file already; TRAINABLE_TOKENS writes it again.
  TokensPart(const PartBuild& build, const TokensPart& embedding, std::string again)
      : Part(build),
        again_(std::move(again)),
        indices_(embedding.indices_),
        rows_(embedding.rows_),
        delta(embedding.delta),
        table(embedding.table) {
    make_tables(build);
    if (again_.empty()) return;
    for (const auto& key : {again_, build.key(std::string("base_layer.") + kDelta)})
      build.source.take_if_there(key, delta.sizes());
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    return layer().kind() == nn::LayerKind::embedding ? embedded(x, next, gate) : logits(x, next, gate);
  }

  void merge(Weights& weights) const override {
    weights.weight = weights.weight.index_copy(0, index_, delta.to(weights.weight.scalar_type()));
    if (weights.bias.defined()) weights.bias = at::zeros_like(weights.bias);
  }

  /// Two adapters may have tokens of one embedding, but not the same ones, nor tables of other sizes.
  bool excludes(const Part& other) const override {
    const auto* tokens = dynamic_cast<const TokensPart*>(&other);
    if (resized_rows() && (tokens || other.exclusive())) return true;
    return tokens &&
           (tokens->resized_rows() || std::any_of(indices_.begin(), indices_.end(), [&](int64_t index) {
              return std::find(tokens->indices_.begin(), tokens->indices_.end(), index) !=
                     tokens->indices_.end();
            }));
  }

  std::optional<int64_t> resized_rows() const override {
    return rows_ != layer().weight.size(0) ? std::optional(rows_) : std::nullopt;
  }

  bool can_take(const Part& other) const override {
    const auto* tokens = dynamic_cast<const TokensPart*>(&other);
    return tokens && tokens->rows_ == rows_ && tokens->padding_place_ == padding_place_ &&
           Part::can_take(other);
  }
  void take(const Part& other) override {
    Part::take(other);
    indices_ = dynamic_cast<const TokensPart&>(other).indices_;
  }

  NamedTensors saved() const override {
    if (again_.empty()) return Part::saved();
    return {{again_, delta.detach().clone()}};  // a file takes no tensor twice
  }

 private:
  /// Those of the model, and what is new if all of it is trained.
  int64_t rows_by_tokens(const PartBuild& build) const {
    const int64_t base = build.layer.weight.size(0);
    if (build.fresh() || !is_token_table(build) || indices_.empty()) return base;
    const int64_t highest = *std::max_element(indices_.begin(), indices_.end());
    for (int64_t token = base; token <= highest; ++token)  // ends at the first that is not trained
      if (std::find(indices_.begin(), indices_.end(), token) == indices_.end()) return base;
    return std::max(base, highest + 1);
  }

  void check(const PartBuild& build) const {
    std::set<int64_t> seen;
    for (const auto index : indices_) {
      if (index < 0 || index >= rows_)
        throw ConfigError("[trainable tokens] token " + std::to_string(index) + " is none of the " +
                          std::to_string(rows_) + " of \"" + build.path +
                          "\". For an adapter of a base whose vocabulary has grown, save it with "
                          "save_embedding_layers=True, or save that base as transformers has resized it and "
                          "load the adapter on it");
      if (!seen.insert(index).second)
        throw ConfigError("[trainable tokens] token " + std::to_string(index) + " is named twice");
    }
    if (indices_.empty())
      throw ConfigError("[trainable tokens] no token is named: set the list of token ids to train");
  }

  void make_tables(const PartBuild& build) {
    if (build.layer.bias.defined()) {
      static std::once_flag said;
      std::call_once(said, [&] {
        log_warning("[trainable tokens] PEFT computes \"" + build.path +
                    "\" without its bias where an adapter has tokens of its own, and so does graft");
      });
    }
    const auto device = build.layer.weight.device();
    const auto index = at::tensor(indices_, at::kLong);
    index_ = constant("index", index.to(device));
    const auto* embedding = dynamic_cast<const nn::Embedding*>(&build.layer);
    if (!embedding) return;
    auto place = at::full({rows_}, -1, at::kLong);
    place.index_put_({index}, at::arange(index.size(0)));
    place_ = constant("place", place.to(device));
    // The gradient of the padding token stays zero.
    const auto padding = std::find(indices_.begin(), indices_.end(), embedding->padding_idx());
    if (padding != indices_.end()) padding_place_ = padding - indices_.begin();
  }

  at::Tensor embedded(const at::Tensor& x, const Next& next, const Gate& gate) const {
    const auto own = gate.part(x);
    const auto place = place_.index_select(0, own.flatten()).view(own.sizes());
    const auto y = next(resized_rows() ? known_to_model(x, own, gate) : x);
    const auto old = table.defined() ? layer().apply(own, table, {}).to(y.scalar_type()) : gate.part(y);
    const auto made = at::embedding(delta, place.clamp_min(0), padding_place_).to(old.scalar_type());
    return gate.put(y, at::where((place >= 0).unsqueeze(-1), made, old));
  }

  /// What the model's own table is asked for: of the rows here not what is new.
  at::Tensor known_to_model(const at::Tensor& x, const at::Tensor& own, const Gate& gate) const {
    if (table.defined()) return gate.others(x);
    return gate.put(x, own.masked_fill(own >= layer().weight.size(0), 0));
  }

  at::Tensor logits(const at::Tensor& x, const Next& next, const Gate& gate) const {
    const bool asks_model = !table.defined() || !gate.is_all();
    const auto y = asks_model ? next(x) : at::Tensor();
    const auto part = gate.part(x);
    auto old = table.defined()
                   ? at::linear(part, table.to(part.scalar_type())).to(layer().weight.scalar_type())
                   : gate.part(y);
    if (!table.defined() && layer().bias.defined()) old = old - layer().bias;
    if (rows_ > old.size(-1)) old = at::constant_pad_nd(old, {0, rows_ - old.size(-1)});
    const auto made = at::linear(part, delta.to(part.scalar_type()));
    const auto own = old.index_copy(-1, index_, made.to(old.scalar_type()));
    return resized_rows() ? put_logits(gate, y, own) : gate.put(y, own);
  }

  std::string again_;
  std::vector<int64_t> indices_;
  int64_t rows_ = 0;
  at::Tensor delta;
  at::Tensor table;           ///< defined: in the place of the model's
  at::Tensor index_, place_;  // token's id by row of delta, row of delta (or -1) by token's id
  int64_t padding_place_ = -1;
};

std::shared_ptr<Part> method_part(const PartBuild& build) {
  return std::make_shared<TokensPart>(build, build.config.integers("token_indices"), kDelta);
}

std::shared_ptr<Part> method_tied_part(const PartBuild& build, const Part& embedding) {
  return std::make_shared<TokensPart>(build, dynamic_cast<const TokensPart&>(embedding), build.key(kDelta));
}

const std::vector<std::pair<std::string_view, std::vector<std::string>>>& input_embeddings() {
  static const std::vector<std::pair<std::string_view, std::vector<std::string>>> names{
      {"llama", {"embed_tokens"}},         {"mistral", {"embed_tokens"}},
      {"qwen2", {"embed_tokens"}},         {"qwen3", {"embed_tokens"}},
      {"gemma", {"embed_tokens"}},         {"gemma2", {"embed_tokens"}},
      {"phi3", {"embed_tokens"}},          {"gpt_neox", {"embed_in"}},
      {"bloom", {"word_embeddings"}},      {"falcon", {"word_embeddings"}},
      {"opt", {"embed_tokens"}},           {"gpt2", {"wte"}},
      {"bert", {"word_embeddings"}},       {"roberta", {"word_embeddings"}},
      {"distilbert", {"word_embeddings"}}, {"t5", {"shared"}}};
  return names;
}

/// By name of a layer.
std::vector<std::pair<std::string, std::vector<int64_t>>> named_tokens(const AdapterConfig& config,
                                                                       const PreTrainedModel& model) {
  if (config.is_object("trainable_token_indices")) return config.lists("trainable_token_indices");
  for (const auto& [type, names] : input_embeddings())
    if (type == model.config().model_type()) return {{names[0], config.integers("trainable_token_indices")}};
  throw ConfigError(
      "[trainable tokens] a model of type \"" + model.config().model_type() +
      "\" has no known input embedding: write \"trainable_token_indices\" as {\"layer\": [ids]}");
}

}  // namespace

std::vector<TokenTarget> token_targets(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto saved = config.strings("modules_to_save");
  std::vector<TokenTarget> found;
  for (const auto& [name, indices] : named_tokens(config, model)) {
    if (std::find(saved.begin(), saved.end(), name) != saved.end())
      throw ConfigError("[trainable tokens] \"" + name +
                        "\" is trained whole by \"modules_to_save\" already: name it there or in "
                        "\"trainable_token_indices\"");
    const auto before = found.size();
    for (auto& target : weighted_layers(model))
      if (target.path.ends_with(name)) found.push_back({std::move(target), indices});
    if (found.size() == before)
      throw ConfigError("[trainable tokens] \"trainable_token_indices\": \"" + name +
                        "\" matched no layer of " + model.architecture());
  }
  // An output layer with the embedding's own tokens follows it; with others it goes its own way.
  const auto all = found;
  std::erase_if(found, [&](const TokenTarget& each) {
    return std::any_of(all.begin(), all.end(), [&](const TokenTarget& other) {
      return other.indices == each.indices && shares_embedding(*each.target.layer, {other.target});
    });
  });
  return found;
}

std::shared_ptr<Part> tokens_part(const PartBuild& build, const std::vector<int64_t>& indices) {
  return std::make_shared<TokensPart>(build, indices, kBesideAnother);
}

std::shared_ptr<Part> tied_tokens_part(const PartBuild& build, const Part& embedding) {
  return std::make_shared<TokensPart>(build, dynamic_cast<const TokensPart&>(embedding), "");
}

bool shares_embedding(const nn::WeightedLayer& layer, const std::vector<Target>& among) {
  return std::any_of(among.begin(), among.end(), [&](const Target& other) {
    return other.layer.get() != &layer && other.layer->kind() == nn::LayerKind::embedding &&
           other.layer->weight.is_same(layer.weight);
  });
}

Method trainable_tokens_method() {
  return {.type = "TRAINABLE_TOKENS",
          .fields = {{"token_indices", nlohmann::json::array()}, {"init_weights", true}},
          .lacks = {"exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern"},
          .part = method_part,
          .default_targets = input_embeddings(),
          .tied = method_tied_part};
}

}  // namespace graft::adapters
