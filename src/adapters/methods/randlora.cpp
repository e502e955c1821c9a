#include "adapters/methods/randlora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

/// How many bases of rank r make up the full rank.
int64_t bases_for(int64_t side, int64_t r) { return (side + r - 1) / r; }

/// -1, 0 or 1, the less often the larger `sparsity`.
at::Tensor signs(at::IntArrayRef shape, double sparsity, const at::Generator& generator) {
  const auto draw = at::rand(shape, generator);
  const double tail = 1 / (2 * sparsity);
  return draw.gt(1 - tail).to(at::kFloat) - draw.lt(tail).to(at::kFloat);
}

class RandloraBases : public Shared {
 public:
  RandloraBases(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                TensorSource& source)
      : saved_(config.boolean("save_projection")) {
    const int64_t r = positive(config, "r");
    const auto [out, in] = largest(layers);
    const int64_t small = std::min(out, in), large = std::max(out, in), bases = bases_for(small, r);
    if (saved_ && !source.fresh()) {
      A = source.take("base_model.randlora_A", {r, 1, small});
      B = source.take("base_model.randlora_B", {large, bases, r});
    } else {
      draw(config, small, large, bases);
    }
    for (auto* base : {&A, &B}) *base = base->to(layers.front()->weight.device());
  }

  std::vector<Entry> entries() const override {
    return {{"base_model.randlora_A", A, false, saved_}, {"base_model.randlora_B", B, false, saved_}};
  }

  at::Tensor A, B;

 private:
  void draw(const AdapterConfig& config, int64_t small, int64_t large, int64_t bases) {
    const int64_t r = config.integer("r");
    const auto generator = seeded(config.integer("projection_prng_key"));
    const bool very_sparse = config.boolean("very_sparse");
    check_fits_memory("randlora_A", {r, small});
    check_fits_memory("randlora_B", {large, bases, r});
    if (very_sparse || config.boolean("sparse")) {
      const double sparsity = very_sparse ? std::sqrt(static_cast<double>(small)) : 3;
      A = signs({r, 1, small}, sparsity, generator);
      B = signs({large, bases, r}, sparsity, generator);
    } else {
      // PEFT draws and scales them in bfloat16, and widens what comes out.
      A = at::empty({r, 1, small}, at::kBFloat16);
      kaiming_uniform(A, std::sqrt(5.0), generator);
      std::vector<at::Tensor> each;
      for (int64_t i = 0; i < bases; ++i) {
        each.push_back(at::empty({large, 1, r}, at::kBFloat16));
        kaiming_uniform(each.back(), std::sqrt(5.0), generator);
      }
      B = at::cat(each, 1);
    }
    for (auto* base : {&A, &B}) *base = (*base / base->std()).to(at::kFloat);
  }

  bool saved_;
};

class RandloraPart : public AddedWeight {
 public:
  explicit RandloraPart(const PartBuild& build)
      : AddedWeight(build),
        in_(build.in_features()),
        out_(build.out_features()),
        dropout_(build.config.number("randlora_dropout")) {
    const auto& shared = dynamic_cast<const RandloraBases&>(*build.shared);
    A_ = constant("randlora_A", shared.A);
    B_ = constant("randlora_B", shared.B);
    const int64_t r = shared.A.size(0), small = std::min(in_, out_);
    bases_ = bases_for(small, r);
    lambda_ = parameter(build, "randlora_lambda", {r, bases_});
    gamma_ = parameter(build, "randlora_gamma", {bases_, small});
    scaling_ = constant(
        "scaling",
        at::scalar_tensor(build.config.number("randlora_alpha") / static_cast<double>(r), build.options()));
    check_copies(build);
    if (build.fresh()) initialise(build.config);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto [first, second] = factors(false);
    const auto in = nn::dropout(cast_to(gate.part(x), lambda_), dropout_, is_training());
    return gate.add(next(x), at::linear(at::linear(in, first), second) * scaling_);
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto [first, second] = factors(true);
    return at::matmul(second, first) * scaling_;
  }

 private:
  struct Factors {
    at::Tensor first, second;  // what x meets, [rank, in], and then [out, rank]
  };

  Factors factors(bool wide) const {
    const auto typed = [&](const at::Tensor& t) { return wide ? widened(t) : cast_to(t, lambda_); };
    const int64_t small = std::min(in_, out_), large = std::max(in_, out_);
    const auto trained =
        (typed(lambda_).unsqueeze(2) * typed(A_.narrow(2, 0, small)) * typed(gamma_)).flatten(0, 1);
    // Here bases stand before ranks, above it is the other way round. So PEFT has it.
    const auto fixed = typed(B_.narrow(0, 0, large).narrow(1, 0, bases_)).flatten(1);
    return small == in_ ? Factors{trained, fixed} : Factors{fixed.t(), trained.t()};
  }

  /// PEFT's file has the shared bases once more under the name of every layer.
  void check_copies(const PartBuild& build) const {
    for (const auto& [name, shared] : {std::pair{"randlora_A", A_}, {"randlora_B", B_}}) {
      const auto copy = build.source.take_if_there(build.key(name), shared.sizes());
      if (copy.defined() && !at::equal(copy.to(shared.device(), shared.scalar_type()), shared))
        throw FormatError("[adapters] \"" + build.key(name) + "\" is not \"base_model." + name +
                          "\": all layers of a RandLoRA adapter have the same bases");
    }
  }

  void initialise(const AdapterConfig& config) {
    const at::NoGradGuard no_grad;
    lambda_.copy_(at::randn(lambda_.sizes()));  // drawn in any case: the draws after it are PEFT's
    if (config.boolean("init_weights")) {
      lambda_.zero_();
      gamma_.fill_(1.0 / static_cast<double>(std::max(gamma_.size(0), gamma_.size(1))));
    } else {
      gamma_.fill_(1.0 / static_cast<double>(std::max(in_, out_)));
    }
  }

  at::Tensor A_, B_, lambda_, gamma_, scaling_;
  int64_t in_, out_, bases_ = 0;
  double dropout_;
};

}  // namespace

Method randlora_method() {
  return {.type = "RANDLORA",
          .fields = {{"r", 32},
                     {"projection_prng_key", 0},
                     {"save_projection", true},
                     {"sparse", false},
                     {"very_sparse", false},
                     {"randlora_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"randlora_alpha", 640.0},
                     {"bias", "none", {"none", "all", "randlora_only"}},
                     {"init_weights", true}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<RandloraPart>(build);
          },
          .default_targets = usual_targets(),
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<RandloraBases>(config, layers, source);
          }};
}

}  // namespace graft::adapters
