#include "adapters/methods/tinylora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "adapters/added_weight.h"
#include "adapters/svd.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// The trained vectors: layers that follow each other share one, by `weight_tying`.
class TinyVectors : public Shared {
 public:
  TinyVectors(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
              TensorSource& source)
      : layers_(layers.begin(), layers.end()) {
    const auto count = static_cast<double>(layers.size());
    // Halves to the even number, as Python rounds them.
    groups_ = std::max<int64_t>(
        1, static_cast<int64_t>(std::nearbyint(count * (1 - config.number("weight_tying")))));
    const int64_t u = positive(config, "u");
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto group = group_of(i);
      if (group < vectors_.size()) continue;
      auto v = source.take(key(group), {u});
      if (!v.defined()) {
        v = fresh_tensor(key(group), {u}).zero_();
        const double bound = config.number("init_v_bound");
        if (config.is_string("init_weights")) v.uniform_(-bound, bound);
      }
      vectors_.push_back(v.to(layers[i]->weight.device()));
    }
  }

  std::vector<Entry> entries() const override {
    std::vector<Entry> all;
    all.reserve(vectors_.size());
    for (size_t i = 0; i < vectors_.size(); ++i) all.push_back({key(i), vectors_[i], true});
    return all;
  }

  /// In the model's order among the adapted ones: each layer's projection has a seed of its own.
  size_t number(const nn::WeightedLayer& layer) const {
    return static_cast<size_t>(std::find(layers_.begin(), layers_.end(), &layer) - layers_.begin());
  }
  const at::Tensor& of(size_t number) const { return vectors_[group_of(number)]; }

 private:
  static std::string key(size_t group) { return "base_model.tinylora_v." + std::to_string(group); }

  size_t group_of(size_t number) const {
    const auto groups = static_cast<size_t>(groups_);
    return std::min(number / std::max<size_t>(1, layers_.size() / groups), groups - 1);
  }

  std::vector<const nn::WeightedLayer*> layers_;
  std::vector<at::Tensor> vectors_;
  int64_t groups_;
};

/// B R A with the frozen halves of the weight's largest singular values, and R = v_1 P_1 + ... + v_u P_u.
class TinyloraPart : public Part {
 public:
  explicit TinyloraPart(const PartBuild& build)
      : Part(build), dropout_(build.config.number("tinylora_dropout")) {
    const auto kind = build.layer.kind();
    if (kind != nn::LayerKind::linear && kind != nn::LayerKind::conv1d && kind != nn::LayerKind::embedding)
      build.refuse("TinyLoRA is for linear and embedding layers");
    const auto& config = build.config;
    const auto& shared = dynamic_cast<const TinyVectors&>(*build.shared);
    const auto number = shared.number(build.layer);
    v_ = register_parameter("tinylora_v", shared.of(number), /*requires_grad=*/false);
    const auto shape = out_in(build.layer, build.layer.weight).sizes().vec();
    const int64_t r = std::min({positive(config, "r"), shape[0], shape[1]}), u = v_.size(0);
    A_ = parameter(build, "tinylora_A", {r, shape[1]}, /*trainable=*/false);
    B_ = parameter(build, "tinylora_B", {shape[0], r}, /*trainable=*/false);
    if (build.fresh()) {
      const auto [left, s, right] = singular(out_in(build.layer, build.layer.weight.detach()).to(at::kFloat));
      const auto root = s.narrow(0, 0, r).sqrt();
      A_.copy_(root.unsqueeze(1) * right.narrow(0, 0, r));
      B_.copy_(left.narrow(1, 0, r) * root);
    }
    const bool saved = config.boolean("save_projection");
    if (saved) P_ = parameter(build, "tinylora_P", {u, r, r}, /*trainable=*/false);
    if (saved && !build.fresh()) return;
    check_fits_memory("tinylora_P", {u, r, r});
    const auto generator = seeded(config.integer("projection_seed") + static_cast<int64_t>(number));
    const auto drawn = at::normal(0.0, 1 / std::sqrt(static_cast<double>(r)), {u, r, r}, generator);
    if (saved)
      P_.copy_(drawn);
    else
      P_ = constant("tinylora_P", drawn.to(build.options()));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = gate.part(x);
    const auto r = cast_to(R(), A_);
    if (layer().kind() == nn::LayerKind::embedding) {
      const auto rows = nn::dropout(at::embedding(B_, part), dropout_, is_training());
      return gate.add(next(x), at::matmul(at::matmul(rows, r), A_));
    }
    const auto in = nn::dropout(cast_to(part, A_), dropout_, is_training());
    return gate.add(next(x), at::linear(at::linear(at::linear(in, A_), r), B_));
  }

  void merge(Weights& weights) const override {
    const auto delta = at::matmul(at::matmul(widened(B_), widened(R())), widened(A_));
    weights.weight = (weights.weight + out_in(layer(), delta)).to(weights.weight.scalar_type());
  }

 private:
  at::Tensor R() const {
    const int64_t r = P_.size(1);
    return at::matmul(v_.unsqueeze(0), cast_to(P_, v_).view({v_.size(0), -1})).view({r, r});
  }

  at::Tensor v_, A_, B_, P_;
  double dropout_;
};

void check_tinylora(const AdapterConfig& config) {
  const auto tying = config.number("weight_tying");
  if (!(tying >= 0 && tying <= 1))
    throw ConfigError("[adapters] \"weight_tying\" must be between 0 and 1, got " + std::to_string(tying));
  if (!config.is_string("init_weights")) {
    config.boolean("init_weights");
    return;
  }
  if (config.string("init_weights") != "uniform")
    throw ConfigError("[adapters] \"init_weights\" is \"" + config.string("init_weights") +
                      "\"; known: true, false, \"uniform\"");
}

}  // namespace

Method tinylora_method() {
  return {.type = "TINYLORA",
          .fields = {{"r", 2},
                     {"u", 64},
                     {"weight_tying", 0.0},
                     {"projection_seed", 42},
                     {"save_projection", true},
                     {"init_v_bound", 0.02},
                     {"tinylora_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "tinylora_only"}},
                     {"init_weights", true, {}, Field::Rule::any}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<TinyloraPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_tinylora,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<TinyVectors>(config, layers, source);
          },
          .data_fields = {"projection_seed", "init_v_bound", "init_weights"}};
}

}  // namespace graft::adapters
