#include "adapters/methods/waveft.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "adapters/added_weight.h"
#include "adapters/methods/wavelets.h"

namespace graft::adapters {
namespace {

/// `proportional_parameters`: how many coefficients each layer has, of as many as all would have together.
class WaveletBudget : public Shared {
 public:
  WaveletBudget(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers) {
    if (!config.boolean("proportional_parameters")) return;
    double all = 0;
    for (const auto* layer : layers) all += static_cast<double>(layer->weight.numel());
    const double budget =
        static_cast<double>(config.integer("n_frequency")) * static_cast<double>(layers.size());
    for (const auto* layer : layers) {
      // Halves to the even number, as Python rounds them.
      const double share = std::nearbyint(static_cast<double>(layer->weight.numel()) / all * budget);
      counts_.emplace_back(layer, std::max<int64_t>(1, static_cast<int64_t>(std::min(share, 1e18))));
    }
  }

  std::vector<Entry> entries() const override { return {}; }

  int64_t count(const nn::WeightedLayer& layer) const {
    return std::find_if(counts_.begin(), counts_.end(),
                        [&](const auto& each) { return each.first == &layer; })
        ->second;
  }

 private:
  std::vector<std::pair<const nn::WeightedLayer*, int64_t>> counts_;
};

/// One level of a two-dimensional wavelet transform, backwards.
class Synthesis {
 public:
  Synthesis(std::string_view family, int64_t rows, int64_t columns, const at::TensorOptions& options) {
    const auto& low = wavelet_filter(family);
    length_ = static_cast<int64_t>(low.size());
    // The ends of the result depend on what lies beyond the coefficients, and are cut off.
    rows_ = rows + length_ - 2;
    columns_ = columns + length_ - 2;
    rows_ += rows_ % 2;
    columns_ += columns_ % 2;
    const auto lo = at::tensor(low, at::kDouble);
    const auto alternating = 1 - 2 * at::remainder(at::arange(length_, at::kDouble), 2);
    filters = at::stack({lo, alternating * lo.flip(0)}).to(options);
  }

  /// How large a matrix of coefficients is.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  /// Down the columns, and then along the rows. The right half of the coefficients is of high frequency down
  /// the columns, the lower half along the rows: so PEFT has it.
  at::Tensor operator()(const at::Tensor& coefficients, const at::Tensor& by) const {
    const auto quarters = coefficients.view({2, rows_ / 2, 2, columns_ / 2}).transpose(1, 2);
    const auto down = at::conv_transpose2d(quarters, by.view({2, 1, -1, 1}), {}, {2, 1});
    const auto all = at::conv_transpose2d(down.transpose(0, 1), by.view({2, 1, 1, -1}), {}, {1, 2});
    const int64_t edge = length_ - 2;
    return all.slice(2, edge, all.size(2) - edge).slice(3, edge, all.size(3) - edge).squeeze(0).squeeze(0);
  }

  at::Tensor filters;

 private:
  int64_t length_, rows_, columns_;
};

class WaveftPart : public AddedWeight {
 public:
  explicit WaveftPart(const PartBuild& build)
      : AddedWeight(build), out_(build.out_features()), in_(build.in_features()) {
    const auto& config = build.config;
    const auto count = config.boolean("proportional_parameters")
                           ? dynamic_cast<const WaveletBudget&>(*build.shared).count(build.layer)
                           : static_cast<int64_t>(build.by_pattern(
                                 "n_frequency_pattern", static_cast<double>(config.integer("n_frequency"))));
    if (count <= 0 || count > out_ * in_)
      build.refuse("\"n_frequency\" is " + std::to_string(count) + ", and must be from 1 to " +
                   std::to_string(out_ * in_) + " here");
    spectrum_ = parameter(build, "waveft_spectrum", {count});
    scaling_ = constant("scaling", at::scalar_tensor(config.number("scaling"), build.options()));
    int64_t columns = in_, up = 0, left = 0;
    if (config.boolean("use_idwt")) {
      synthesis_.emplace(config.string("wavelet_family"), out_, in_, build.options());
      filters_ = constant("filters", synthesis_->filters);
      columns = synthesis_->columns();
      up = (synthesis_->rows() - out_) / 2;
      left = (columns - in_) / 2;
    }
    const auto chosen =
        at::randperm(out_ * in_, seeded(config.integer("random_loc_seed"))).narrow(0, 0, count);
    const auto rows = at::floor_divide(chosen, in_) + up;
    places_ = constant("places",
                       (rows * columns + at::remainder(chosen, in_) + left).to(build.layer.weight.device()));
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    if (config.boolean("init_weights"))
      spectrum_.zero_();
    else
      spectrum_.copy_(at::randn({count}) * 0.01);
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
    const auto values = widened(spectrum_);
    const int64_t rows = synthesis_ ? synthesis_->rows() : out_,
                  columns = synthesis_ ? synthesis_->columns() : in_;
    const auto matrix =
        at::zeros({rows * columns}, values.options()).index_add(0, places_, values).view({rows, columns});
    if (!synthesis_) return matrix * scaling_;
    return (*synthesis_)(matrix, filters_.to(values.scalar_type())).slice(0, 0, out_).slice(1, 0, in_) *
           scaling_;
  }

 private:
  at::Tensor spectrum_, scaling_, filters_;
  at::Tensor places_;  // in the matrix of coefficients, row by row
  int64_t out_, in_;
  std::optional<Synthesis> synthesis_;
};

}  // namespace

Method waveft_method() {
  return {.type = "WAVEFT",
          .fields = {{"n_frequency", 2592},
                     {"scaling", 25.0},
                     {"wavelet_family", "db1", wavelet_names()},
                     {"use_idwt", true},
                     {"random_loc_seed", 777},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "waveft_only"}},
                     {"n_frequency_pattern", nlohmann::json::object()},
                     {"proportional_parameters", false},
                     {"init_weights", true}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<WaveftPart>(build);
          },
          .default_targets = usual_targets_but("gpt2", {"mlp.c_proj"}),
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource&) -> std::shared_ptr<Shared> {
            return std::make_shared<WaveletBudget>(config, layers);
          },
          .data_fields = {"random_loc_seed", "scaling", "init_weights"}};
}

}  // namespace graft::adapters
