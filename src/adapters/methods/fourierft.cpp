#include "adapters/methods/fourierft.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"

namespace graft::adapters {
namespace {

class FourierPart : public AddedWeight {
 public:
  explicit FourierPart(const PartBuild& build)
      : AddedWeight(build), out_(build.out_features()), in_(build.in_features()) {
    const auto count = static_cast<int64_t>(
        build.by_pattern("n_frequency_pattern", static_cast<double>(build.config.integer("n_frequency"))));
    if (count <= 0 || count > out_ * in_)
      build.refuse("\"n_frequency\" is " + std::to_string(count) + ", and must be from 1 to " +
                   std::to_string(out_ * in_) + " here");
    spectrum_ = parameter(build, "fourierft_spectrum", {count});
    scaling_ = constant("scaling", at::scalar_tensor(build.config.number("scaling"), build.options()));
    place(at::randperm(out_ * in_, seeded(build.config.integer("random_loc_seed"))).narrow(0, 0, count),
          build.options());
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    spectrum_.copy_(at::randn({count}));
    if (build.config.boolean("init_weights")) spectrum_.zero_();
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto delta = cast_to(delta_weight(), spectrum_);
    return gate.add(next(x), at::linear(cast_to(gate.part(x), delta), delta));
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto values = widened(spectrum_).index_select(0, taken_) * 0.5;
    const auto half = at::zeros({out_ * (in_ / 2 + 1)}, values.options()).index_add(0, places_, values);
    const auto spectrum = at::complex(half, at::zeros_like(half)).view({out_, in_ / 2 + 1});
    return at::fft_irfft2(spectrum, at::IntArrayRef{out_, in_}) * scaling_;
  }

 private:
  /// PEFT takes the real part of the transform of S, which is the transform of S's even part,
  /// (S(p, q) + S(-p, -q)) / 2. That is real, and needs only the columns q <= in / 2: half the work. So every
  /// coefficient goes, halved, to its place and to the mirrored one, as far as these are in the left half.
  void place(const at::Tensor& chosen, const at::TensorOptions& options) {
    const auto p = at::floor_divide(chosen, in_), q = at::remainder(chosen, in_);
    const auto rows = at::cat({p, at::remainder(-p, out_)}), columns = at::cat({q, at::remainder(-q, in_)});
    const auto left = columns.le(in_ / 2).nonzero().squeeze(1);
    const auto places = rows * (in_ / 2 + 1) + columns;
    places_ = constant("places", places.index_select(0, left).to(options.device()));
    taken_ = constant("taken", at::remainder(left, chosen.size(0)).to(options.device()));
  }

  at::Tensor spectrum_, scaling_;
  at::Tensor places_, taken_;  // in the half spectrum, and which coefficient goes there
  int64_t out_, in_;
};

}  // namespace

Method fourierft_method() {
  return {.type = "FOURIERFT",
          .fields = {{"n_frequency", 1000},
                     {"scaling", 150.0},
                     {"random_loc_seed", 777},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "fourier_only"}},
                     {"n_frequency_pattern", nlohmann::json::object()},
                     {"init_weights", false}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<FourierPart>(build);
          },
          .default_targets = usual_targets_but("gpt2", {"mlp.c_proj"}),
          .patterns_after_dot = true};
}

}  // namespace graft::adapters
