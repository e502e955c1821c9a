#include "adapters/methods/miss.h"

#include <ATen/ATen.h>

#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

std::string variant_of(const AdapterConfig& config) {
  return config.is_string("init_weights") ? config.string("init_weights") : "";
}

class MissPart : public Part {
 public:
  explicit MissPart(const PartBuild& build) : Part(build), r_(build.config.integer("r")) {
    if (r_ > build.in_features())
      build.refuse("\"r\" is " + std::to_string(r_) + " and it has only " +
                   std::to_string(build.in_features()) + " inputs");
  }

 protected:
  int64_t r_;
  at::Tensor block;
};

/// Input i meets row i mod r of the block: the input's shards are summed before the product. "mini" does the
/// same to the outputs: output o is column o mod mini_r.
class MissSum : public MissPart {
 public:
  explicit MissSum(const PartBuild& build)
      : MissPart(build), out_(build.out_features()), dropout_(build.config.number("miss_dropout")) {
    const bool mini = variant_of(build.config) == "mini";
    const int64_t columns = mini ? build.config.integer("mini_r") : out_;
    if (columns <= 0 || out_ % columns != 0)
      build.refuse("its " + std::to_string(out_) + " outputs cannot be divided by a \"mini_r\" of " +
                   std::to_string(columns));
    block = parameter(build, "miss_block", {r_, columns});
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    block.zero_();
    if (!mini && !build.config.boolean("init_weights")) as_torch_layer(block);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto part = cast_to(gate.part(x), block);
    if (const int64_t rest = part.size(-1) % r_) part = at::constant_pad_nd(part, {0, r_ - rest});
    const auto shards = nn::dropout(part, dropout_, is_training()).unflatten(-1, {-1, r_});
    const auto made = at::matmul(shards.sum(-2), block);
    std::vector<int64_t> times(static_cast<size_t>(made.dim()), 1);
    times.back() = out_ / block.size(1);
    return gate.add(next(x), times.back() == 1 ? made : made.repeat(times));
  }

  void merge(Weights& weights) const override {
    const int64_t in = weights.weight.size(1);
    const auto rows = block.t().repeat({out_ / block.size(1), (in + r_ - 1) / r_}).narrow(1, 0, in);
    weights.weight = (weights.weight + rows).to(weights.weight.scalar_type());
  }

 private:
  int64_t out_;
  double dropout_;
};

/// "bat": every r x r shard of the weight becomes W + W B + B, with a B for each r outputs. The change
/// depends on the weight and must be made; PEFT has no dropout here.
class MissBat : public MissPart {
 public:
  explicit MissBat(const PartBuild& build) : MissPart(build) {
    if (build.in_features() % r_ != 0 || build.out_features() % r_ != 0)
      build.refuse("\"bat\" divides its weight into shards of r x r, and " +
                   std::to_string(build.out_features()) + " x " + std::to_string(build.in_features()) +
                   " cannot be divided by " + std::to_string(r_));
    block = parameter(build, "miss_block", {build.out_features() / r_, r_, r_});
    if (build.fresh()) block.zero_();
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = cast_to(gate.part(x), block);
    return gate.add(next(x), at::linear(part, change(layer().weight)));
  }

  void merge(Weights& weights) const override {
    weights.weight = (weights.weight + change(weights.weight)).to(weights.weight.scalar_type());
  }

  /// The second adapter would change what the first made of the weight.
  bool exclusive() const override { return true; }

 private:
  at::Tensor change(const at::Tensor& weight) const {
    const int64_t outs = block.size(0);
    const auto product = at::bmm(cast_to(weight, block).reshape({outs, -1, r_}), block);
    return (product.view({outs, r_, -1, r_}) + block.unsqueeze(2)).view(weight.sizes());
  }
};

std::shared_ptr<Part> miss_part(const PartBuild& build) {
  if (build.layer.kind() != nn::LayerKind::linear) build.refuse("MiSS is for Linear layers");
  if (variant_of(build.config) == "bat") return std::make_shared<MissBat>(build);
  return std::make_shared<MissSum>(build);
}

void check_miss(const AdapterConfig& config) {
  if (config.integer("r") <= 0)
    throw ConfigError("[adapters] \"r\" must be at least 1, got " + std::to_string(config.integer("r")));
  if (!config.is_string("init_weights")) {
    config.boolean("init_weights");
  } else if (const auto variant = variant_of(config); variant != "bat" && variant != "mini") {
    throw ConfigError("[adapters] \"init_weights\" is \"" + variant +
                      "\"; known: true, false, \"bat\", \"mini\"");
  }
}

}  // namespace

Method miss_method() {
  return {.type = "MISS",
          .fields = {{"r", 64},
                     {"miss_dropout", 0.0},
                     {"mini_r", 1},
                     {"init_weights", true, {}, Field::Rule::any},
                     {"bias", "none", {"none", "all", "MiSS_only"}}},
          .part = miss_part,
          .default_targets = usual_targets(),
          .check = check_miss};
}

}  // namespace graft::adapters
