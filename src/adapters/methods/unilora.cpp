#include "adapters/methods/unilora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/added_weight.h"
#include "adapters/numpy_random.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

constexpr const char* kVectorKey = "base_model.unilora_theta_d";

/// The vector, and which of its numbers stands where in the A's and B's of all layers: every number equally
/// often, in an order that a seed gives, and divided by the root of how often it stands somewhere.
class UniVector : public Shared {
 public:
  struct Places {
    at::Tensor A, B, A_scales, B_scales;  // [r, in], [out, r]
  };

  UniVector(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers, TensorSource& source)
      : layers_(layers.begin(), layers.end()) {
    const int64_t length = config.integer("theta_d_length");
    const auto device = layers.front()->weight.device();
    theta = source.take(kVectorKey, {length});
    if (!theta.defined()) {
      theta = fresh_tensor(kVectorKey, {length});
      const double bound = config.number("init_theta_d_bound");
      if (config.boolean("init_weights"))
        theta.uniform_(-bound, bound);
      else
        theta.copy_(at::randn({length}));
    }
    theta = theta.to(device);
    if (!config.boolean("save_indices") || source.fresh()) deal(config, device);
  }

  std::vector<Entry> entries() const override { return {{kVectorKey, theta, true}}; }

  const Places& of(const nn::WeightedLayer& layer) const {
    return places_[static_cast<size_t>(std::find(layers_.begin(), layers_.end(), &layer) - layers_.begin())];
  }

  at::Tensor theta;

 private:
  void deal(const AdapterConfig& config, at::Device device) {
    const int64_t r = config.integer("r"), length = config.integer("theta_d_length");
    const auto width = [](const nn::WeightedLayer& layer, int64_t side) {
      return out_in(layer, layer.weight).size(side);
    };
    int64_t count = 0;
    for (const auto* layer : layers_)
      if (is_linear(*layer)) {
        check_fits_memory("unilora_indices", {r, width(*layer, 0) + width(*layer, 1)});
        count += r * (width(*layer, 0) + width(*layer, 1));
      }
    check_fits_memory("unilora_indices", {count});
    NumpyRandom random(static_cast<uint64_t>(config.integer("proj_seed")));
    std::vector<int64_t> numbers;
    for (int64_t number = 0; number < length; ++number)
      numbers.insert(numbers.end(), static_cast<size_t>(count / length), number);
    if (count % length != 0) {
      const auto more = random.choice(length, count % length);
      numbers.insert(numbers.end(), more.begin(), more.end());
    }
    random.shuffle(numbers);
    const auto all = at::tensor(numbers, at::kLong);
    const auto often = at::bincount(all, {}, length);
    const auto scales = at::where(often > 0, often.to(at::kFloat).rsqrt(), at::zeros({}, at::kFloat));
    int64_t done = 0;
    const auto next = [&](int64_t rows, int64_t columns) {
      const auto piece = all.narrow(0, done, rows * columns).view({rows, columns});
      done += rows * columns;
      return piece.to(device);
    };
    const auto scales_here = scales.to(device);
    for (const auto* layer : layers_) {
      if (!is_linear(*layer)) {
        places_.emplace_back();  // refused when its part is built
        continue;
      }
      Places places;
      places.A = next(r, width(*layer, 1));
      places.B = next(width(*layer, 0), r);
      places.A_scales = scales_here.index_select(0, places.A.view(-1)).view(places.A.sizes());
      places.B_scales = scales_here.index_select(0, places.B.view(-1)).view(places.B.sizes());
      places_.push_back(places);
    }
  }

  std::vector<const nn::WeightedLayer*> layers_;
  std::vector<Places> places_;
};

class UniloraPart : public AddedWeight {
 public:
  explicit UniloraPart(const PartBuild& build)
      : AddedWeight(build), dropout_(build.config.number("unilora_dropout")) {
    const auto& shared = dynamic_cast<const UniVector&>(*build.shared);
    const int64_t r = build.config.integer("r"), in = build.in_features(), out = build.out_features();
    theta_ = register_parameter("theta_d", shared.theta, /*requires_grad=*/false);
    const bool saved = build.config.boolean("save_indices");
    if (saved) {
      places_ = {.A = parameter(build, "unilora_indices_A", {r, in}, false, at::kLong),
                 .B = parameter(build, "unilora_indices_B", {out, r}, false, at::kLong),
                 .A_scales = parameter(build, "unilora_scales_A", {r, in}, false),
                 .B_scales = parameter(build, "unilora_scales_B", {out, r}, false)};
    }
    if (saved && !build.fresh()) {
      check(build);
      return;
    }
    const auto& dealt = shared.of(build.layer);
    if (!saved) {
      places_ = {.A = constant("indices_A", dealt.A),
                 .B = constant("indices_B", dealt.B),
                 .A_scales = constant("scales_A", dealt.A_scales),
                 .B_scales = constant("scales_B", dealt.B_scales)};
    } else {
      const at::NoGradGuard no_grad;
      places_.A.copy_(dealt.A);
      places_.B.copy_(dealt.B);
      places_.A_scales.copy_(dealt.A_scales);
      places_.B_scales.copy_(dealt.B_scales);
    }
    if (!build.fresh()) return;
    // PEFT draws indices that it does not use: the draws after them are its own.
    at::randint(0, theta_.size(0), {r, in});
    at::randint(0, theta_.size(0), {out, r});
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(cast_to(gate.part(x), theta_), dropout_, is_training());
    return gate.add(next(x), at::linear(at::linear(in, A(theta_)), B(theta_)));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto theta = widened(theta_);
    return at::matmul(B(theta), A(theta));
  }

 private:
  void check(const PartBuild& build) const {
    for (const auto& [name, places] :
         {std::pair{"unilora_indices_A", places_.A}, {"unilora_indices_B", places_.B}})
      if (at::logical_or(places.lt(0), places.ge(theta_.size(0))).any().item<bool>())
        throw FormatError("[adapters] \"" + build.key(name) + "\" names numbers that the vector of " +
                          std::to_string(theta_.size(0)) + " does not have");
  }

  static at::Tensor taken(const at::Tensor& theta, const at::Tensor& places, const at::Tensor& scales) {
    return theta.index_select(0, places.reshape(-1)).view(places.sizes()) * cast_to(scales, theta);
  }
  at::Tensor A(const at::Tensor& theta) const { return taken(theta, places_.A, places_.A_scales); }
  at::Tensor B(const at::Tensor& theta) const { return taken(theta, places_.B, places_.B_scales); }

  at::Tensor theta_;
  UniVector::Places places_;
  double dropout_;
};

void check_unilora(const AdapterConfig& config) {
  for (const char* field : {"r", "theta_d_length"}) positive(config, field);
  if (config.integer("proj_seed") < 0)
    throw ConfigError("[adapters] \"proj_seed\" must be at least 0, got " +
                      std::to_string(config.integer("proj_seed")));
  if (!(config.number("init_theta_d_bound") > 0))
    throw ConfigError("[adapters] \"init_theta_d_bound\" must be above 0, got " +
                      std::to_string(config.number("init_theta_d_bound")));
}

}  // namespace

Method unilora_method() {
  return {.type = "UNILORA",
          .fields = {{"r", 4},
                     {"proj_seed", 42},
                     {"theta_d_length", 256},
                     {"unilora_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "unilora_only"}},
                     {"init_theta_d_bound", 0.02},
                     {"init_weights", true},
                     {"save_indices", false}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<UniloraPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_unilora,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<UniVector>(config, layers, source);
          },
          .data_fields = {"proj_seed", "init_theta_d_bound", "init_weights"}};
}

}  // namespace graft::adapters
