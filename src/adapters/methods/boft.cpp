#include "adapters/methods/boft.h"

#include <ATen/ATen.h>

#include "adapters/methods/rotation.h"
#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

struct Blocks {
  int64_t factors, count, size;
};

Blocks blocks_of(const PartBuild& build, int64_t features) {
  const auto& config = build.config;
  Blocks blocks{config.integer("boft_n_butterfly_factor"), config.integer("boft_block_num"),
                config.integer("boft_block_size")};
  const bool by_size = blocks.size != 0;
  const int64_t given = by_size ? blocks.size : blocks.count;
  if (features % given != 0)
    throw ConfigError("[adapters] \"" + std::string(by_size ? "boft_block_size" : "boft_block_num") +
                      "\": " + std::to_string(given) + " does not divide the " + std::to_string(features) +
                      " inputs of \"" + build.path + "\"");
  (by_size ? blocks.count : blocks.size) = features / given;
  if (blocks.factors == 1) return blocks;
  // Each factor interleaves twice as many half blocks as the one before.
  if (blocks.factors > 62 || blocks.count % (int64_t{1} << (blocks.factors - 1)) != 0 || blocks.size % 2 != 0)
    throw ConfigError("[adapters] \"boft_n_butterfly_factor\": " + std::to_string(blocks.factors) +
                      " needs blocks of even size in a number that 2^" + std::to_string(blocks.factors - 1) +
                      " divides; \"" + build.path + "\" has " + std::to_string(blocks.count) + " of size " +
                      std::to_string(blocks.size));
  return blocks;
}

class Boft : public Part {
 public:
  explicit Boft(const PartBuild& build) : Part(build), dropout_(build.config.number("boft_dropout")) {
    const auto& base = build.layer.weight;
    const int64_t out = base.size(0);
    const auto blocks = blocks_of(build, base.numel() / out);
    R_ = parameter(build, "boft_R", {blocks.factors, blocks.count, blocks.size, blocks.size});
    const bool image = build.layer.kind() == nn::LayerKind::conv2d;
    s_ = parameter(build, "boft_s", image ? at::IntArrayRef{1, out} : at::IntArrayRef{out, 1});
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    if (build.config.boolean("init_weights")) {
      R_.zero_();
      s_.fill_(1);
    } else {
      R_.normal_(0, 0.1);
      s_.normal_(1, 0.1);
    }
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto blocks = dropped(rotations());
    const auto part = cast_to(gate.part(x), R_);
    if (sees_patches()) {
      // No input of the layer gives what turned patches would: the kernel is turned.
      const auto kernel = layer().weight.to(R_.scalar_type());
      return gate.add(next(x), layer().apply(part, turned(kernel, blocks) - kernel, {}));
    }
    const auto rotated = [&](const at::Tensor& t) { return rotate(t, blocks); };
    const auto y = next(gate.put(x, image() ? rotate_channels(part, rotated) : rotated(part)));
    const auto scales = image() ? s_.view({1, -1, 1, 1}) : s_.view({-1});
    const auto& bias = layer().bias;
    if (!bias.defined()) return gate.put(y, gate.part(y) * scales);
    const auto offset = image() ? bias.view({1, -1, 1, 1}) : bias;
    return gate.put(y, (gate.part(y) - offset) * scales + offset);
  }

  void merge(Weights& weights) const override {
    const auto wide = weights.weight.to(R_.scalar_type());
    weights.weight = turned(wide, rotations()).to(weights.weight.scalar_type());
  }

  bool exclusive() const override { return sees_patches(); }
  /// PEFT multiplies the rotations in the order of the adapters: the last one turns the input first.
  bool first_inside() const override { return true; }
  bool order_matters() const override { return true; }

 private:
  bool image() const { return layer().kind() == nn::LayerKind::conv2d; }
  bool sees_patches() const { return image() && layer().weight.size(2) * layer().weight.size(3) > 1; }

  /// [factor, block, size, size], orthogonal.
  at::Tensor rotations() const {
    const auto flat = R_.flatten(0, 1);
    return cayley(0.5 * (flat - flat.transpose(1, 2))).view_as(R_);
  }

  /// PEFT's dropout: some blocks of one factor turn nothing.
  at::Tensor dropped(const at::Tensor& blocks) const {
    if (dropout_ <= 0 || !is_training()) return blocks;
    const int64_t factors = R_.size(0), count = R_.size(1);
    const auto options = at::TensorOptions(at::kLong).device(R_.device());
    const auto factor = at::arange(factors, options) == at::randint(0, factors, {1}, options);
    const auto chosen = static_cast<int64_t>(dropout_ * static_cast<double>(count));
    const auto block = at::randperm(count, options) < chosen;
    const auto mask = factor.view({-1, 1, 1, 1}).logical_and(block.view({1, -1, 1, 1}));
    return at::where(mask, at::eye(R_.size(2), blocks.options()), blocks);
  }

  /// x times one factor. The i-th has the halves of its blocks from 2^i blocks away.
  at::Tensor times(const at::Tensor& x, const at::Tensor& blocks, int64_t i) const {
    if (i == 0) return rotate_blocks(x, blocks);
    const int64_t span = int64_t{1} << i, groups = blocks.size(0) / span, half = blocks.size(1) / 2;
    const auto interleaved = x.reshape({-1, groups, 2, span, half}).transpose(2, 3).reshape(x.sizes());
    return rotate_blocks(interleaved, blocks)
        .reshape({-1, groups, span, 2, half})
        .transpose(2, 3)
        .reshape(x.sizes());
  }

  at::Tensor rotate(at::Tensor x, const at::Tensor& blocks) const {
    for (int64_t i = blocks.size(0) - 1; i >= 0; --i) x = times(x, blocks.select(0, i), i);
    return x;
  }

  /// The weight that sees x as this adapter's layer sees it turned, and scales what it gives.
  at::Tensor turned(const at::Tensor& weight, const at::Tensor& blocks) const {
    auto rows = weight.reshape({weight.size(0), -1});
    for (int64_t i = 0; i < blocks.size(0); ++i) rows = times(rows, blocks.select(0, i).transpose(1, 2), i);
    return (rows * s_.view({-1, 1})).view(weight.sizes());
  }

  double dropout_;
  at::Tensor R_, s_;
};

std::shared_ptr<Part> boft_part(const PartBuild& build) {
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
    case nn::LayerKind::conv2d:
      return std::make_shared<Boft>(build);
    default:
      build.refuse("BOFT is for Linear and Conv2d layers");
  }
}

void check_boft(const AdapterConfig& config) {
  const int64_t size = config.integer("boft_block_size"), count = config.integer("boft_block_num");
  if (size < 0 || count < 0 || (size == 0) == (count == 0))
    throw ConfigError("[adapters] one of \"boft_block_size\" (" + std::to_string(size) +
                      ") and \"boft_block_num\" (" + std::to_string(count) +
                      ") must be positive and the other 0: each follows from the other");
  if (const int64_t factors = config.integer("boft_n_butterfly_factor"); factors < 1)
    throw ConfigError("[adapters] \"boft_n_butterfly_factor\" must be at least 1, got " +
                      std::to_string(factors));
}

/// PEFT without its CUDA extension makes and saves one factor, and leaves the configuration as it was given.
AdapterConfig with_saved_factors(const AdapterConfig& config, std::string_view, const TensorSource& source) {
  const int64_t factors = config.integer("boft_n_butterfly_factor");
  const auto shapes = source.shapes(".boft_R");
  if (factors == 1 || shapes.empty()) return config;
  for (const auto& shape : shapes)
    if (shape.size() != 4 || shape[0] != 1) return config;
  log_warning(
      "[adapters] \"boft_n_butterfly_factor\" is " + std::to_string(factors) +
      ", but the adapter's file has 1 factor (PEFT saves it so where its CUDA extension is missing); 1 is "
      "taken");
  return config.with("boft_n_butterfly_factor", "1");
}

}  // namespace

Method boft_method() {
  return {.type = "BOFT",
          .fields = {{"boft_block_size", 4},
                     {"boft_block_num", 0},
                     {"boft_n_butterfly_factor", 1},
                     {"boft_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "boft_only"}},
                     {"init_weights", true}},
          .part = boft_part,
          .default_targets = usual_targets(),
          .check = check_boft,
          .complete = with_saved_factors};
}

}  // namespace graft::adapters
