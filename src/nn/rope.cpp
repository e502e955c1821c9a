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
  double partial_factor;
};

RopeConfig read_rope(const Config& config, const RopeDefaults& defaults) {
  // transformers gives rope_scaling, the older name, precedence where both are set.
  const Config values = config.object(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  config.acknowledge({"rope_parameters", "rope_theta"});
  const double theta = values.number("rope_theta", config.number(defaults.theta_key, 10000.0));
  if (!(theta > 0 && std::isfinite(theta)))
    throw ConfigError("[rope] \"rope_theta\" must be above 0, got " + std::to_string(theta));
  if (const double factor = values.number("factor", 1.0); !(factor > 0 && std::isfinite(factor)))
    throw ConfigError("[rope] \"factor\" must be above 0, got " + std::to_string(factor));
  const int64_t positions = config.size("max_position_embeddings", defaults.positions);
  std::string type = values.string("rope_type", values.string("type", "default"));
  if (defaults.renamed_longrope && (type == "su" || type == "yarn")) type = "longrope";
  // The config's own field goes first, and so does an architecture's default of it.
  const int64_t original = config.has("original_max_position_embeddings") || defaults.original_positions
                               ? config.size("original_max_position_embeddings", defaults.original_positions)
                               : values.size("original_max_position_embeddings", positions);
  const double partial = values.number(
      "partial_rotary_factor", config.number(defaults.partial_key, defaults.partial_factor.value_or(1.0)));
  if (partial != 1.0 && !defaults.partial_factor)
    throw ConfigError("[rope] \"partial_rotary_factor\" is " + std::to_string(partial) +
                      "; this architecture rotates whole heads only");
  if (partial <= 0 || partial > 1)
    throw ConfigError("[rope] \"partial_rotary_factor\" is " + std::to_string(partial) +
                      "; it must be above 0 and at most 1");
  return {type, theta, values, original, partial};
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

/// How far the trained length is stretched; from the two lengths where the config does not say.
double stretch(const RopeConfig& rope, int64_t positions) {
  return rope.values.number("factor",
                            static_cast<double>(positions) / static_cast<double>(rope.original_positions));
}

/// YaRN's factor for cos and sin (Peng et al. 2023).
double yarn_attention_factor(const RopeConfig& rope, double factor) {
  const auto magnitude = [&](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  const double scale = rope.values.number("mscale", 0.0), all = rope.values.number("mscale_all_dim", 0.0);
  const double usual = scale != 0 && all != 0 ? magnitude(scale) / magnitude(all) : magnitude(1.0);
  return rope.values.number("attention_factor", usual);
}

/// YaRN's: frequencies that turn often within the trained length are kept, those that hardly turn are
/// stretched, and between them one goes over into the other.
at::Tensor yarn_frequencies(const at::Tensor& inv_freq, const RopeConfig& rope, double factor) {
  const int64_t half = inv_freq.size(0);
  const auto dim = static_cast<double>(2 * half);
  // The (fractional) frequency that makes so many turns in the trained length.
  const auto place = [&](double turns) {
    return dim * std::log(static_cast<double>(rope.original_positions) / (turns * 2 * M_PI)) /
           (2 * std::log(rope.theta));
  };
  const auto or_default = [&](const char* key, double usual) {
    const double value = rope.values.number(key, usual);
    return value == 0 ? usual : value;
  };
  double low = place(or_default("beta_fast", 32)), high = place(or_default("beta_slow", 1));
  if (rope.values.boolean("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const auto stretched = ((at::arange(half, at::kFloat) - low) / (high - low)).clamp(0, 1);
  return inv_freq / factor * stretched + inv_freq * (1 - stretched);
}

/// LongRoPE's (Ding et al. 2024): each frequency has a factor of its own.
at::Tensor longrope_frequencies(const at::Tensor& inv_freq, const RopeConfig& rope, const char* key) {
  const auto factors = rope.values.numbers(key);
  if (static_cast<int64_t>(factors.size()) != inv_freq.size(0))
    throw ConfigError("[rope] \"" + std::string(key) + "\" has " + std::to_string(factors.size()) +
                      " factors for " + std::to_string(inv_freq.size(0)) + " frequencies");
  return inv_freq / at::tensor(factors, at::kFloat);
}

double longrope_attention_factor(const RopeConfig& rope, double factor) {
  const double usual =
      factor <= 1 ? 1.0
                  : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(rope.original_positions)));
  return rope.values.number("attention_factor", usual);
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const Build& b, const Config& config, int64_t head_dim,
                                 const RopeDefaults& defaults) {
  const RopeConfig rope = read_rope(config, defaults);
  dim_ = static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_factor);
  if (dim_ % 2 != 0 || dim_ == 0)
    throw ConfigError("[rope] rotary embedding needs an even head_dim, got " + std::to_string(dim_));
  theta_ = rope.theta;
  max_positions_ = config.size("max_position_embeddings", defaults.positions);
  at::Tensor frequencies = plain_frequencies(theta_, dim_);
  if (rope.type == "linear") {
    frequencies = frequencies / rope.values.number("factor");
  } else if (rope.type == "llama3") {
    frequencies = llama3_frequencies(frequencies, rope);
  } else if (rope.type == "yarn") {
    const double factor = stretch(rope, max_positions_);
    frequencies = yarn_frequencies(frequencies, rope, factor);
    attention_factor_ = yarn_attention_factor(rope, factor);
  } else if (rope.type == "longrope") {
    trained_positions_ = rope.original_positions;
    long_inv_freq_ = longrope_frequencies(frequencies, rope, "long_factor").to(b.options().device());
    frequencies = longrope_frequencies(frequencies, rope, "short_factor");
    attention_factor_ = longrope_attention_factor(rope, stretch(rope, max_positions_));
  } else if (rope.type == "dynamic") {
    dynamic_ = true;
    factor_ = rope.values.number("factor");
    if (dim_ == 2) throw ConfigError("[rope] \"dynamic\" scaling needs a head_dim above 2");
  } else if (rope.type != "default") {
    throw ConfigError("[rope] rope_type \"" + rope.type +
                      "\" is not supported; known: default, dynamic, linear, llama3, longrope, yarn");
  }
  // Not a registered buffer: checkpoints don't hold it, and a change of the model's dtype must leave it in
  // float32.
  inv_freq_ = frequencies.to(b.options().device());
}

std::optional<int64_t> RotaryEmbedding::rotation_limit() const {
  if (dynamic_) return max_positions_;
  if (long_inv_freq_.defined()) return trained_positions_;
  return {};
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
  auto frequencies = dynamic_ ? dynamic_frequencies(position_ids) : inv_freq_;
  if (long_inv_freq_.defined()) {
    if (long_inv_freq_.device() != like.device()) long_inv_freq_ = long_inv_freq_.to(like.device());
    frequencies = at::where((position_ids.max() + 1).gt(trained_positions_), long_inv_freq_, frequencies);
  }
  const auto angles = position_ids.unsqueeze(-1).to(at::kFloat) * frequencies;
  const auto both = at::cat({angles, angles}, -1);
  const auto scaled = [&](const at::Tensor& x) {
    return (attention_factor_ == 1 ? x : x * attention_factor_).to(like.scalar_type());
  };
  return {scaled(both.cos()), scaled(both.sin())};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& by) {
  const int64_t width = by.cos.size(-1), half = width / 2;
  const bool whole = width == x.size(-1);
  const auto part = whole ? x : x.slice(-1, 0, width);
  const auto turned = at::cat({part.slice(-1, half).neg(), part.slice(-1, 0, half)}, -1);
  const auto rotated = part * by.cos.unsqueeze(1) + turned * by.sin.unsqueeze(1);
  return whole ? rotated : at::cat({rotated, x.slice(-1, width)}, -1);
}

}  // namespace graft::nn
