#include "adapters/methods/oft.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "adapters/methods/rotation.h"
#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

/// The divisor of `features` nearest to `wanted`, the lower of two.
int64_t nearest_divisor(int64_t features, int64_t wanted) {
  if (wanted >= features) return features;
  int64_t lower = wanted, higher = wanted;
  while (features % lower != 0) --lower;
  while (features % higher != 0) ++higher;
  return wanted - lower <= higher - wanted ? lower : higher;
}

/// PEFT adjusts what does not fit, and says so.
int64_t fitting(const PartBuild& build, const char* field, int64_t features) {
  const int64_t wanted = build.config.integer(field);
  const int64_t found = nearest_divisor(features, wanted);
  if (found != wanted)
    log_warning("[adapters] \"" + std::string(field) + "\": " + std::to_string(wanted) + " does not divide " +
                std::to_string(features) + " of \"" + build.path + "\"; " + std::to_string(found) +
                " is taken");
  return found;
}

/// PEFT has a "module_dropout" and never applies it.
class Oft : public Part {
 public:
  explicit Oft(const PartBuild& build)
      : Part(build),
        constrained_(build.config.boolean("coft")),
        exact_(!build.config.boolean("use_cayley_neumann")),
        terms_(build.config.integer("num_cayley_neumann_terms")) {
    const auto& base = build.layer.weight;
    const int64_t features = base.numel() / base.size(0);  // an embedding's are those of its rows, too
    size_ = build.config.integer("r") != 0 ? features / fitting(build, "r", features)
                                           : fitting(build, "oft_block_size", features);
    const int64_t count = build.config.boolean("block_share") ? 1 : features / size_;
    weight_ = parameter(build, embeds() ? "oft_embedding_R.weight" : "oft_R.weight",
                        {count, size_ * (size_ - 1) / 2});
    const auto rows_and_columns =
        at::triu_indices(size_, size_, 1, at::TensorOptions(at::kLong).device(base.device()));
    upper_ = constant("upper", rows_and_columns[0] * size_ + rows_and_columns[1]);
    // PEFT measures the whole matrix, which has every number of the vector twice.
    const double limit = build.config.number("eps") / std::sqrt(static_cast<double>(count));
    limit_ = constant("limit", at::scalar_tensor(limit / std::numbers::sqrt2, build.options()));
    if (sees_patches())
      log_warning(
          "[adapters] OFT on \"" + build.path +
          "\", whose kernel is larger than 1x1, works as PEFT has it: it adds up overlapping patches, so "
          "that even a fresh adapter changes the layer");
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    if (build.config.boolean("init_weights"))
      weight_.zero_();
    else
      weight_.normal_(0, 0.1);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto blocks = rotation();
    if (embeds()) {
      const auto y = next(x);
      return gate.put(y, rotate_blocks(cast_to(gate.part(y), weight_), blocks));
    }
    const auto part = cast_to(gate.part(x), weight_);
    return next(gate.put(x, layer().kind() == nn::LayerKind::conv2d ? rotate_image(part, blocks)
                                                                    : rotate_blocks(part, blocks)));
  }

  /// An embedding's result is turned by one after the other, as other layers' input is.
  bool first_inside() const override { return embeds(); }
  bool order_matters() const override { return true; }

  void merge(Weights& weights) const override {
    if (sees_patches())
      throw UsageError("[adapters] OFT on \"" + layer().path() +
                       "\" cannot be merged: its kernel is larger than 1x1, and what PEFT does there is no "
                       "convolution with any other kernel");
    const auto blocks = rotation();
    const auto rows = weights.weight.reshape({weights.weight.size(0), -1}).to(blocks.scalar_type());
    weights.weight = rotate_blocks(rows, embeds() ? blocks : blocks.transpose(1, 2))
                         .view(weights.weight.sizes())
                         .to(weights.weight.scalar_type());
  }

 private:
  bool embeds() const { return layer().kind() == nn::LayerKind::embedding; }
  bool sees_patches() const {
    const auto& base = layer().weight;
    return layer().kind() == nn::LayerKind::conv2d && base.size(2) * base.size(3) > 1;
  }

  at::Tensor rotation() const {
    const auto values = constrained_ ? projected() : weight_;
    const auto upper = at::zeros({values.size(0), size_ * size_}, values.options())
                           .index_copy(1, upper_, values)
                           .view({-1, size_, size_});
    const auto skew = upper - upper.transpose(1, 2);
    return exact_ ? cayley(skew) : cayley_series(skew, terms_);
  }

  /// COFT: not further from the identity than the limit. The gradient is the one at the nearer place.
  at::Tensor projected() const {
    const auto nearer = [&] {
      const at::NoGradGuard no_grad;
      const auto norm = at::linalg_vector_norm(weight_, 2, at::IntArrayRef{1}, /*keepdim=*/true);
      return at::where(norm <= limit_, weight_, limit_ * (weight_ / norm));
    }();
    if (is_training()) {
      const at::NoGradGuard no_grad;
      at::Tensor(weight_).copy_(nearer);  // the next step starts there
      return weight_;
    }
    return nearer + (weight_ - weight_.detach());
  }

  at::Tensor rotate_image(const at::Tensor& x, const at::Tensor& blocks) const {
    if (!sees_patches())
      return rotate_channels(x, [&](const at::Tensor& t) { return rotate_blocks(t, blocks); });
    const auto kernel = layer().weight.sizes().slice(2);
    const auto patches = at::im2col(x, kernel, {1, 1}, {0, 0}, {1, 1}).transpose(1, 2);
    // PEFT reads the turned patches in another order than they were written in.
    const auto turned = rotate_blocks(patches, blocks)
                            .reshape({x.size(0), patches.size(1), x.size(1), -1})
                            .transpose(1, 2)
                            .reshape({x.size(0), patches.size(2), patches.size(1)});
    return at::col2im(turned, x.sizes().slice(2), kernel, {1, 1}, {0, 0}, {1, 1});
  }

  bool constrained_, exact_;
  int64_t terms_, size_ = 0;
  at::Tensor weight_;  // the upper triangles of skew-symmetric blocks
  at::Tensor upper_;   // where they are in a flat block
  at::Tensor limit_;
};

std::shared_ptr<Part> oft_part(const PartBuild& build) {
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
    case nn::LayerKind::conv2d:
    case nn::LayerKind::embedding:
      return std::make_shared<Oft>(build);
    default:
      build.refuse("OFT is for Linear, Conv2d and Embedding layers");
  }
}

void check_oft(const AdapterConfig& config) {
  const int64_t r = config.integer("r"), size = config.integer("oft_block_size");
  if (r < 0 || size < 0 || (r == 0) == (size == 0))
    throw ConfigError("[adapters] one of \"r\" (" + std::to_string(r) + ") and \"oft_block_size\" (" +
                      std::to_string(size) +
                      ") must be positive and the other 0: each follows from the other");
}

}  // namespace

Method oft_method() {
  return {.type = "OFT",
          .fields = {{"r", 0},
                     {"oft_block_size", 32},
                     {"module_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "oft_only"}},
                     {"init_weights", true},
                     {"coft", false},
                     {"eps", 6e-5},
                     {"block_share", false},
                     {"use_cayley_neumann", true},
                     {"num_cayley_neumann_terms", 5}},
          .part = oft_part,
          .default_targets = usual_targets(),
          .check = check_oft};
}

}  // namespace graft::adapters
