#include "adapters/methods/road.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::adapters {
namespace {

/// Outputs are dealt into groups; within a group, number i makes a pair with number i + group / 2.
class RoadPart : public Part {
 public:
  explicit RoadPart(const PartBuild& build)
      : Part(build), variant_(build.config.string("variant")), half_(build.config.integer("group_size") / 2) {
    const int64_t out = build.out_features();
    if (out % (2 * half_) != 0)
      build.refuse("its " + std::to_string(out) + " outputs cannot be dealt into groups of " +
                   std::to_string(2 * half_) + "; choose another \"group_size\"");
    const int64_t size = variant_ == "road_1" ? out / 2 : variant_ == "road_2" ? out : 2 * out;
    theta = parameter(build, "road_theta", {size});
    alpha = parameter(build, "road_alpha", {size});
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    if (build.config.boolean("init_weights")) {
      theta.zero_();
      alpha.fill_(1);
    } else {
      theta.normal_(0, 0.5);
      alpha.normal_(1, 0.5);
    }
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    return gate.put(y, turned(cast_to(gate.part(y), theta)));
  }

  void merge(Weights& weights) const override {
    const auto dtype = weights.weight.scalar_type();
    weights.weight = turned(cast_to(weights.weight.t(), theta)).t().to(dtype);
    if (weights.bias.defined()) weights.bias = turned(cast_to(weights.bias, theta)).to(dtype);
  }

  /// PEFT turns the result by one adapter after the other.
  bool first_inside() const override { return true; }
  bool order_matters() const override { return true; }

 private:
  /// y [..., out] turned: (y1, y2) becomes (c1 y1 - s1 y2, c2 y2 + s2 y1).
  at::Tensor turned(const at::Tensor& y) const {
    const auto pairs = y.reshape(with_tail(y, {-1, 2, half_}));
    const auto crossed = at::stack({-pairs.select(-2, 1), pairs.select(-2, 0)}, -2);
    return (pairs * cosines() + crossed * sines()).reshape(y.sizes());
  }

  static std::vector<int64_t> with_tail(const at::Tensor& y, std::initializer_list<int64_t> tail) {
    auto sizes = y.sizes().vec();
    sizes.pop_back();
    sizes.insert(sizes.end(), tail);
    return sizes;
  }

  // [groups, 1 or 2, group / 2]: road_1 has one angle for both of a pair, road_4 other ones for the sine.
  at::Tensor cosines() const { return entry(alpha, 0) * entry(theta, 0).cos(); }
  at::Tensor sines() const { return entry(alpha, 1) * entry(theta, 1).sin(); }
  at::Tensor entry(const at::Tensor& values, int64_t which) const {
    if (variant_ == "road_1") return values.view({-1, 1, half_});
    if (variant_ == "road_2") return values.view({-1, 2, half_});
    return values.view({-1, 2, 2, half_}).select(1, which);
  }

  std::string variant_;
  int64_t half_;
  at::Tensor theta, alpha;
};

std::shared_ptr<Part> road_part(const PartBuild& build) {
  if (build.layer.kind() != nn::LayerKind::linear) build.refuse("RoAd is for Linear layers");
  return std::make_shared<RoadPart>(build);
}

void check_road(const AdapterConfig& config) {
  const int64_t group = config.integer("group_size");
  if (group <= 0 || group % 2 != 0)
    throw ConfigError("[adapters] \"group_size\" must be an even number above 0, got " +
                      std::to_string(group));
}

}  // namespace

Method road_method() {
  return {.type = "ROAD",
          .fields = {{"variant", "road_1", {"road_1", "road_2", "road_4"}},
                     {"group_size", 64},
                     {"init_weights", true}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = road_part,
          .default_targets = usual_targets(),
          .check = check_road};
}

}  // namespace graft::adapters
