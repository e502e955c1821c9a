#include "adapters/methods/hira.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

class HiraPart : public Part {
 public:
  explicit HiraPart(const PartBuild& build)
      : Part(build), r_(positive(build.config, "r")), dropout_(build.config.number("hira_dropout")) {
    if (build.by_pattern("rank_pattern", static_cast<double>(r_)) != static_cast<double>(r_))
      log_warning("[adapters] \"" + build.path + "\" gets the rank " + std::to_string(r_) +
                  " of \"r\": PEFT leaves \"rank_pattern\" out of account for HiRA, and its files have none");
    const auto weight = build.layer.weight.sizes();
    switch (build.layer.kind()) {
      case nn::LayerKind::linear:
      case nn::LayerKind::conv1d:
        A_ = parameter(build, "hira_A", {r_, build.in_features()});
        B_ = parameter(build, "hira_B", {build.out_features(), r_});
        break;
      case nn::LayerKind::conv2d:
        A_ = parameter(build, "hira_A", {r_, weight[1], weight[2], weight[3]});
        B_ = parameter(build, "hira_B", {weight[0], r_, 1, 1});
        break;
      case nn::LayerKind::embedding:
        A_ = parameter(build, "hira_embedding_A", {r_, weight[0]});
        B_ = parameter(build, "hira_embedding_B", {weight[1], r_});
        break;
      default:
        build.refuse("HiRA is for linear, convolution and embedding layers");
    }
    if (build.fresh()) initialise(build.config);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = gate.part(x);
    if (layer().kind() == nn::LayerKind::embedding) {
      // Only the rows that are asked for.
      const auto factor = at::matmul(at::embedding(A_.t(), part), B_.t());
      return gate.add(next(x), at::embedding(layer().weight, part) * factor);
    }
    const auto in = nn::dropout(cast_to(part, A_), dropout_, is_training());
    return gate.add(next(x), layer().apply(in, cast_to(layer().weight, A_) * product(A_, B_), {}));
  }

  void merge(Weights& weights) const override {
    const auto dtype = weights.weight.scalar_type();
    weights.weight = weights.weight + weights.base * product(widened(A_), widened(B_)).to(dtype);
  }

 private:
  /// B A in the shape of the layer's weight.
  at::Tensor product(const at::Tensor& a, const at::Tensor& b) const {
    const auto factor = at::matmul(b.view({-1, r_}), a.flatten(1));
    const auto kind = layer().kind();
    if (kind == nn::LayerKind::conv2d) return factor.view(layer().weight.sizes());
    return kind == nn::LayerKind::linear ? factor : factor.t();
  }

  void initialise(const AdapterConfig& config) {
    const at::NoGradGuard no_grad;
    A_.copy_(at::randn(A_.sizes()));
    B_.copy_(at::randn(B_.sizes()));
    const bool gaussian = config.is_string("init_weights");
    if (!gaussian && !config.boolean("init_weights")) return;
    if (layer().kind() == nn::LayerKind::embedding) {
      A_.zero_();
      B_.copy_(at::randn(B_.sizes()));
      return;
    }
    if (gaussian && layer().kind() != nn::LayerKind::conv2d)
      A_.normal_(0, 1.0 / static_cast<double>(r_));
    else
      as_torch_layer(A_);
    B_.zero_();
  }

  at::Tensor A_, B_;
  int64_t r_;
  double dropout_;
};

void check_hira(const AdapterConfig& config) {
  if (!config.is_string("init_weights")) {
    config.boolean("init_weights");
    return;
  }
  auto init = config.string("init_weights");
  for (auto& c : init) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (init != "gaussian")
    throw ConfigError("[adapters] \"init_weights\" is \"" + init + "\"; known: true, false, \"gaussian\"");
}

}  // namespace

Method hira_method() {
  return {.type = "HIRA",
          .fields = {{"r", 32},
                     {"hira_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"init_weights", true, {}, Field::Rule::any},
                     {"rank_pattern", nlohmann::json::object()}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<HiraPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_hira};
}

}  // namespace graft::adapters
