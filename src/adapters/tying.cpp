#include "adapters/tying.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/methods/lora.h"
#include "adapters/methods/lora_init.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"
#include "support/log.h"
#include "support/regex.h"

namespace graft::adapters {
namespace {

/// An input embedding, and the linear layers with its very weight.
struct TiedLayers {
  Target embedding;
  std::vector<Target> others;
};

std::optional<TiedLayers> tied_layers(const PreTrainedModel& model) {
  const auto all = weighted_layers(model);
  for (const auto& first : all) {
    if (first.layer->kind() != nn::LayerKind::embedding) continue;
    TiedLayers found{first};
    for (const auto& other : all)
      if (other.path != first.path && other.layer->weight.defined() &&
          other.layer->weight.is_same(first.layer->weight)) {
        // Several embeddings of one weight: PEFT ties none of them.
        if (other.layer->kind() != nn::LayerKind::linear) return std::nullopt;
        found.others.push_back(other);
      }
    if (!found.others.empty()) return found;
  }
  return std::nullopt;
}

bool means(const std::string& name, const std::string& path) {
  return Regex("(^|.*\\.)" + name + "($|\\..*)", "[adapters] a name of a module").matches_start(path);
}

/// The names by which PEFT knows that an embedding or who shares its weight is meant; by others nothing is
/// tied.
constexpr const char* kKnown[] = {"embed_tokens", "lm_head"};

bool is_known(const std::string& name) {
  const auto last = name.substr(name.rfind('.') + 1);
  return std::find(std::begin(kKnown), std::end(kKnown), last) != std::end(kKnown);
}

/// `names` with the embedding in place of who shares its weight; none where no name is known.
std::optional<std::vector<std::string>> tied_names(std::vector<std::string> names, const TiedLayers& tied) {
  if (std::none_of(names.begin(), names.end(), is_known)) return std::nullopt;
  if (std::find(names.begin(), names.end(), tied.embedding.path) == names.end())
    names.push_back(tied.embedding.path);
  for (const auto& other : tied.others)
    std::erase_if(names, [&](const auto& name) { return means(name, other.path); });
  return names;
}

/// y += B A x with the embedding's matrices the other way round: its A [r, tokens] and B [width, r].
class TiedLora : public Part {
 public:
  TiedLora(const PartBuild& build, const LoraPart& embedding)
      : Part(build),
        A(embedding.A),
        B(embedding.B),
        dropout_(build.config.number("lora_dropout")),
        key_a_(build.key("lora_A.weight")),
        key_b_(build.key("lora_B.weight")) {
    if (embedding.magnitude.defined())
      throw ConfigError("[lora] \"ensure_weight_tying\" does not go with \"use_dora\" on an embedding");
    scaling_ = constant("scaling", embedding.scale_factor().clone());
    if (build.fresh())
      initialise(build);
    else
      check_same(build);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    const auto part = nn::dropout(cast_to(gate.part(x), A), dropout_, is_training());
    return gate.add(y, at::matmul(at::matmul(part, B) * scaling_, A));
  }

  /// As LoRA on the layer itself.
  bool first_inside() const override { return true; }

  void merge(Weights& weights) const override {
    const auto delta = at::matmul(B, A).t() * scaling_;
    weights.weight = weights.weight + delta.to(weights.weight.scalar_type());
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }
  bool silence() override { return true; }  // with the embedding's

  NamedTensors saved() const override {
    return {{key_a_, B.detach().t().contiguous()}, {key_b_, A.detach().t().contiguous()}};
  }

 private:
  /// As PEFT does: the layer's own start is drawn into the tensors that it shares, over the embedding's.
  void initialise(const PartBuild& build) {
    const at::NoGradGuard no_grad;
    const int64_t r = A.size(0);
    as_torch_layer(at::empty({r, B.size(0)}));
    as_torch_layer(at::empty({A.size(1), r}));
    if (build.config.is_string("init_lora_weights"))
      B.t().normal_(0, 1.0 / static_cast<double>(r));
    else if (build.config.boolean("init_lora_weights"))
      as_torch_layer(B.t());
    else
      return;
    A.zero_();
  }

  void check_same(const PartBuild& build) const {
    const std::vector<int64_t> of_a{A.size(0), B.size(0)}, of_b{A.size(1), A.size(0)};
    const auto a = build.source.take_if_there(key_a_, of_a), b = build.source.take_if_there(key_b_, of_b);
    if (!a.defined() || !b.defined()) {  // which finish() tells
      build.source.take(key_a_, of_a);
      build.source.take(key_b_, of_b);
      return;
    }
    if (!at::equal(a.to(B.scalar_type()), B.t().cpu()) || !at::equal(b.to(A.scalar_type()), A.t().cpu()))
      throw FormatError("[lora] \"ensure_weight_tying\": " + key_a_ + " and " + key_b_ +
                        " are not what the embedding has, which shares the layer's weight");
  }

  at::Tensor A, B, scaling_;
  double dropout_;
  std::string key_a_, key_b_;
};

}  // namespace

TiedNames with_tied_names(const AdapterConfig& config, const PreTrainedModel& model) {
  const auto tied = tied_layers(model);
  if (!tied) return {config};
  if (const auto names = tied_names(config.strings("modules_to_save"), *tied))
    return {.config = config.with("modules_to_save", *names), .saved = true};
  const auto targets = config.modules("target_modules");
  if (!targets.pattern()) {
    const auto names = tied_names(targets.names(), *tied);
    return names ? TiedNames{.config = config.with("target_modules", *names), .targets = true}
                 : TiedNames{config};
  }
  const Regex pattern(*targets.pattern(), "[adapters] \"target_modules\"");
  if (std::none_of(std::begin(kKnown), std::end(kKnown),
                   [&](const char* name) { return pattern.matches_all(name); }))
    return {config};
  const auto text = "(?:" + *targets.pattern() + "|^" + tied->embedding.path + "$)";
  return {.config = config.with("target_modules", nlohmann::json(text).dump()), .targets = true};
}

std::shared_ptr<Part> tied_lora_part(const PartBuild& build, const Part& embedding) {
  return std::make_shared<TiedLora>(build, dynamic_cast<const LoraPart&>(embedding));
}

void check_tying(const Adapter& adapter, const PreTrainedModel& model) {
  const auto layers = weighted_layers(model);
  const auto part_at = [&](const std::string& path, const std::string& type) -> const Part* {
    for (const auto& each : adapter.parts)
      if (each.target.path == path && each.type == type) return each.part.get();
    return nullptr;
  };
  for (const auto& placed : adapter.parts)
    for (const auto& other : layers) {
      if (other.path == placed.target.path || !other.layer->weight.defined() || placed.type == kBias ||
          !other.layer->weight.is_same(placed.target.layer->weight))
        continue;
      const auto* there = part_at(other.path, placed.type);
      // Who follows the other has no tokens of its own.
      if (there && placed.type == kTrainableTokens && !there->entries().empty() &&
          !placed.part->entries().empty())
        throw ConfigError(
            "[adapters] \"ensure_weight_tying\" asks for one adapter on \"" + placed.target.path +
            "\" and \"" + other.path +
            "\", which share their weight, and \"trainable_token_indices\" names other tokens for each");
      if (!there)
        log_warning("[adapters] \"ensure_weight_tying\": \"" + placed.target.path +
                    "\" shares its weight with \"" + other.path +
                    "\", which has no adapter all the same: as in PEFT, those named \"embed_tokens\" and "
                    "\"lm_head\" are tied");
    }
}

}  // namespace graft::adapters
