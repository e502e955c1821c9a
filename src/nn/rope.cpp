#include "nn/rope.h"

#include <cmath>

#include "graft/error.h"

namespace graft::nn {
namespace {

/// What a config says about its rotation, the two generations of spelling brought together.
struct RopeConfig {
  std::string type;
  double theta;
  Config values;  // factor, low_freq_factor, ...
  int64_t original_positions;
};

RopeConfig read_rope(const Config& config) {
  // transformers gives rope_scaling, the older name, precedence where both are set.
  const Config values = config.object(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  config.acknowledge({"rope_parameters", "rope_theta"});
  const double theta = values.number("rope_theta", config.number("rope_theta", 10000.0));
  const int64_t positions = config.size("max_position_embeddings", 2048);
  const std::string type = values.string("rope_type", values.string("type", "default"));
  const int64_t original = config.has("original_max_position_embeddings")
                               ? config.size("original_max_position_embeddings")
                               : values.size("original_max_position_embeddings", positions);
  const double partial = values.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0));
  if (partial != 1.0)
    throw ConfigError("[rope] \"partial_rotary_factor\" is " + std::to_string(partial) +
                      "; this architecture rotates whole heads only");
  return {type, theta, values, original};
}

at::Tensor plain_frequencies(double theta, int64_t dim) {
  const auto exponents = at::arange(0, dim, 2, at::kLong).to(at::kFloat) / static_cast<double>(dim);
  return 1.0 / at::pow(theta, exponents);
}

/// Llama 3's: long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
at::Tensor llama3_frequencies(const at::Tensor& inv_freq, const RopeConfig& rope) {
  const double factor = rope.values.number("factor");
  const double low = rope.values.number("low_freq_factor"), high = rope.values.number("high_freq_factor");
  const auto context = static_cast<double>(rope.original_positions);
  if (high == low) throw ConfigError("[rope] \"low_freq_factor\" and \"high_freq_factor\" are equal");
  const auto wavelength = 2 * M_PI / inv_freq;
  const auto stretched = at::where(wavelength > context / low, inv_freq / factor, inv_freq);
  const auto smooth = (context / wavelength - low) / (high - low);
  const auto between = (1 - smooth) * stretched / factor + smooth * stretched;
  const auto is_between = (wavelength >= context / high).logical_and(wavelength <= context / low);
  return at::where(is_between, between, stretched);
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const Build& b, const Config& config, int64_t head_dim) : dim_(head_dim) {
  if (head_dim % 2 != 0)
    throw ConfigError("[rope] rotary embedding needs an even head_dim, got " + std::to_string(head_dim));
  const RopeConfig rope = read_rope(config);
  theta_ = rope.theta;
  max_positions_ = config.size("max_position_embeddings", 2048);
  at::Tensor frequencies = plain_frequencies(theta_, dim_);
  if (rope.type == "linear") {
    frequencies = frequencies / rope.values.number("factor");
  } else if (rope.type == "llama3") {
    frequencies = llama3_frequencies(frequencies, rope);
  } else if (rope.type == "dynamic") {
    dynamic_ = true;
    factor_ = rope.values.number("factor");
    if (dim_ == 2) throw ConfigError("[rope] \"dynamic\" scaling needs a head_dim above 2");
  } else if (rope.type != "default") {
    throw ConfigError("[rope] rope_type \"" + rope.type +
                      "\" is not supported; known: default, dynamic, linear, llama3");
  }
  // Not a registered buffer: checkpoints don't hold it, and a change of the model's dtype must leave it in
  // float32.
  inv_freq_ = frequencies.to(b.options().device());
}

at::Tensor RotaryEmbedding::dynamic_frequencies(const at::Tensor& position_ids) const {
  // NTK scaling: past the trained length the base grows with the sequence. Tensor arithmetic throughout:
  // reading the length on the host would be a graph break.
  const auto length = (position_ids.max() + 1).clamp_min(max_positions_);
  const auto ratio = factor_ * length / static_cast<double>(max_positions_) - (factor_ - 1);
  const auto base = theta_ * at::pow(ratio, static_cast<double>(dim_) / static_cast<double>(dim_ - 2));
  const auto exponents = at::arange(0, dim_, 2, position_ids.options().dtype(at::kLong)).to(at::kFloat) /
                         static_cast<double>(dim_);
  return 1.0 / at::pow(base, exponents);
}

Rotation RotaryEmbedding::forward(const at::Tensor& like, const at::Tensor& position_ids) {
  at::NoGradGuard no_grad;
  if (inv_freq_.device() != like.device()) inv_freq_ = inv_freq_.to(like.device());
  const auto frequencies = dynamic_ ? dynamic_frequencies(position_ids) : inv_freq_;
  const auto angles = position_ids.unsqueeze(-1).to(at::kFloat) * frequencies;
  const auto both = at::cat({angles, angles}, -1);
  return {both.cos().to(like.scalar_type()), both.sin().to(like.scalar_type())};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& by) {
  const int64_t half = x.size(-1) / 2;
  const auto first = x.slice(-1, 0, half), second = x.slice(-1, half);
  const auto turned = at::cat({second.neg(), first}, -1);
  return x * by.cos.unsqueeze(1) + turned * by.sin.unsqueeze(1);
}

}  // namespace graft::nn
