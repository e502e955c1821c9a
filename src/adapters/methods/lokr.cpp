#include "adapters/methods/lokr.h"

#include <ATen/ATen.h>

#include "adapters/methods/lycoris.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// PEFT's "init_weights": which factor starts at zero.
enum class Start { first, second, none };

Start start_of(const AdapterConfig& config) {
  if (config.is_string("init_weights")) return Start::second;
  return config.boolean("init_weights") ? Start::first : Start::none;
}

/// The weight's change, out = l k by in = m n, is never built but to be merged: W1 [l, m] and W2 [k, n]
/// are applied in turn.
class Lokr : public LycorisPart {
 public:
  explicit Lokr(const PartBuild& build) : LycorisPart(build, build.config.boolean("rank_dropout_scale")) {
    const auto& weight = build.layer.weight;
    const int64_t factor = build.config.integer("decompose_factor");
    std::tie(l_, k_) = factorization(weight.size(0), factor);
    std::tie(m_, n_) = factorization(weight.size(1), factor);
    kernel_.assign(weight.sizes().begin() + 2, weight.sizes().end());
    const int64_t area = c10::multiply_integers(kernel_);
    const auto low_rank = [&](int64_t rows, int64_t columns) { return 2 * r_ < std::max(rows, columns); };
    if (build.config.boolean("decompose_both") && low_rank(l_, m_)) {
      w1_a_ = parameter(build, "lokr_w1_a", {l_, r_});
      w1_b_ = parameter(build, "lokr_w1_b", {r_, m_});
    } else {
      w1_ = parameter(build, "lokr_w1", {l_, m_});
    }
    if (!low_rank(k_, n_)) {
      w2_ = parameter(build, "lokr_w2", w2_shape());
    } else if (has_cp_kernel(build)) {
      t2_ = parameter(build, "lokr_t2", {r_, r_, kernel_[0], kernel_[1]});
      w2_a_ = parameter(build, "lokr_w2_a", {r_, k_});
      w2_b_ = parameter(build, "lokr_w2_b", {r_, n_});
    } else {
      w2_a_ = parameter(build, "lokr_w2_a", {k_, r_});
      w2_b_ = parameter(build, "lokr_w2_b", {r_, n_ * area});
    }
    if (build.fresh()) initialise(start_of(build.config));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto product = first().view({l_, 1, m_, 1}) * second().reshape({1, k_, 1, -1});
    return product.reshape(layer().weight.sizes());
  }

  at::Tensor delta(const at::Tensor& x) const override { return kernel_.empty() ? on_rows(x) : on_images(x); }

  at::ScalarType dtype() const override { return (w1_.defined() ? w1_ : w1_a_).scalar_type(); }

 private:
  at::Tensor first() const { return w1_.defined() ? w1_ : at::mm(w1_a_, w1_b_); }
  at::Tensor second() const {
    if (w2_.defined()) return w2_;
    return (t2_.defined() ? cp_kernel(t2_, w2_a_, w2_b_) : at::mm(w2_a_, w2_b_)).view(w2_shape());
  }
  std::vector<int64_t> w2_shape() const {
    std::vector<int64_t> shape{k_, n_};
    shape.insert(shape.end(), kernel_.begin(), kernel_.end());
    return shape;
  }

  // W1's products are of matrices: torch takes one of more dimensions apart in one way where a factor wants a
  // gradient and in another where it does not, and a program serves an adapter that is trained and one at
  // rest.

  at::Tensor on_rows(const at::Tensor& x) const {
    const auto blocks = x.reshape({-1, m_, n_});
    const auto inner = w2_.defined() ? at::linear(blocks, w2_) : at::linear(at::linear(blocks, w2_b_), w2_a_);
    const auto mixed = at::linear(inner.transpose(1, 2).reshape({-1, m_}), first());
    auto sizes = x.sizes().vec();
    sizes.back() = l_ * k_;
    return mixed.view({-1, k_, l_}).transpose(1, 2).reshape(sizes);
  }

  /// The m groups of channels go through W2 like images of their own; W1 mixes what comes out.
  at::Tensor on_images(const at::Tensor& x) const {
    const auto inner = layer().apply(x.reshape({-1, n_, x.size(2), x.size(3)}), second(), {});
    const int64_t height = inner.size(2), width = inner.size(3);
    const auto channels = inner.reshape({-1, m_, k_ * height * width}).transpose(0, 1).reshape({m_, -1});
    const auto mixed = at::mm(first(), channels).view({l_, -1, k_ * height * width});
    return mixed.transpose(0, 1).reshape({-1, l_ * k_, height, width});
  }

  /// In the order of PEFT's draws.
  void initialise(Start start) const {
    const at::NoGradGuard no_grad;
    const auto set = [](const at::Tensor& tensor, bool zero) {
      if (!tensor.defined()) return;
      if (zero)
        tensor.zero_();
      else
        as_torch_layer(tensor);
    };
    set(w1_, start == Start::first);
    set(w1_a_, start == Start::first);
    set(w1_b_, false);
    set(w2_, start == Start::second);
    set(w2_a_, false);
    set(w2_b_, start == Start::second);
    set(t2_, false);
  }

  int64_t l_ = 0, k_ = 0, m_ = 0, n_ = 0;
  std::vector<int64_t> kernel_;  // of a convolution
  at::Tensor w1_, w1_a_, w1_b_, w2_, w2_a_, w2_b_, t2_;
};

std::shared_ptr<Part> lokr_part(const PartBuild& build) {
  check_lycoris_layer(build);
  return std::make_shared<Lokr>(build);
}

void check_lokr(const AdapterConfig& config) {
  if (!config.is_string("init_weights"))
    config.boolean("init_weights");  // an error for what is no flag
  else if (config.string("init_weights") != "lycoris")
    throw ConfigError("[adapters] \"init_weights\" is \"" + config.string("init_weights") +
                      "\"; known: true, false, \"lycoris\"");
}

}  // namespace

std::pair<int64_t, int64_t> factorization(int64_t size, int64_t factor) {
  if (factor > 0 && size % factor == 0) return {factor, size / factor};
  if (factor == -1) factor = size;
  int64_t m = 1, n = size;
  while (m < n) {
    int64_t next = m + 1;
    while (size % next != 0) ++next;
    if (next > factor) break;
    m = next;
    n = size / next;
  }
  return std::minmax(m, n);
}

Method lokr_method() {
  using Rule = Field::Rule;
  return {.type = "LOKR",
          .fields = {{"r", 8},
                     {"alpha", 8.0},
                     {"rank_dropout", 0.0},
                     {"module_dropout", 0.0},
                     {"rank_dropout_scale", false},
                     {"use_effective_conv2d", false},
                     {"decompose_both", false},
                     {"decompose_factor", -1},
                     {"init_weights", true, {}, Rule::any},
                     {"rank_pattern", nlohmann::json::object()},
                     {"alpha_pattern", nlohmann::json::object()}},
          .part = lokr_part,
          .default_targets = usual_targets(),
          .check = check_lokr};
}

}  // namespace graft::adapters
