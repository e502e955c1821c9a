#include "adapters/methods/c3a.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// Real and imaginary part.
struct Complex {
  at::Tensor re, im;
};

/// The Fourier transform over the last dimension, which then comes first: products are made by frequency.
Complex by_frequency(const at::Tensor& x) {
  const auto parts = at::view_as_real(at::fft_rfft(x));
  return {parts.select(-1, 0).movedim(-1, 0), parts.select(-1, 1).movedim(-1, 0)};
}

class C3aPart : public AddedWeight {
 public:
  explicit C3aPart(const PartBuild& build) : AddedWeight(build) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has C3A for torch.nn.Linear only");
    const int64_t in = build.in_features(), out = build.out_features();
    const auto block = static_cast<int64_t>(
        build.by_pattern("block_size_pattern", static_cast<double>(build.config.integer("block_size"))));
    if (block <= 0 || in % block != 0 || out % block != 0)
      build.refuse("\"block_size\" is " + std::to_string(block) + ", and must divide " + std::to_string(in) +
                   " and " + std::to_string(out) + " here");
    kernel_ = parameter(build, "c3a_kernel", {out / block, in / block, block});
    if (build.fresh()) initialise(build.config, in, out);
  }

  /// y_i = sum_j x_j w_(j - i): with F the transform, F y = F x * conj(F w), summed over the blocks of x.
  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = gate.part(x).to(at::kFloat);
    const int64_t blocks = kernel_.size(1), length = kernel_.size(2);
    const auto [x_re, x_im] = by_frequency(part.reshape({-1, blocks, length}));
    const auto [w_re, w_im] = by_frequency(kernel_.to(at::kFloat) / (blocks * length));
    // One product of real matrices for each frequency: [rows, 2 in] with [2 in, 2 out].
    const auto left = at::cat({x_re, x_im}, 2);
    const auto right = at::cat({at::cat({w_re, -w_im}, 1), at::cat({w_im, w_re}, 1)}, 2).transpose(1, 2);
    const auto product = at::bmm(left, right).unflatten(2, {2, kernel_.size(0)}).permute({1, 3, 0, 2});
    const auto made = at::fft_irfft(at::view_as_complex(product.contiguous()), length);
    auto shape = part.sizes().vec();
    shape.back() = kernel_.size(0) * length;
    return gate.add(next(x), made.reshape(shape));
  }

 protected:
  at::Tensor delta_weight() const override {
    const int64_t rows = kernel_.size(0), columns = kernel_.size(1), length = kernel_.size(2);
    const auto numbers = at::arange(length, kernel_.options().dtype(at::kLong));
    const auto shift = at::remainder(numbers.unsqueeze(0) - numbers.unsqueeze(1), length);
    return widened(kernel_)
               .index_select(2, shift.view(-1))
               .view({rows, columns, length, length})
               .transpose(1, 2)
               .reshape({rows * length, columns * length}) /
           (columns * length);
  }

 private:
  void initialise(const AdapterConfig& config, int64_t in, int64_t out) {
    const at::NoGradGuard no_grad;
    if (!config.is_string("init_weights") && config.boolean("init_weights")) {
      kernel_.zero_();
      return;
    }
    const auto init = config.is_string("init_weights") ? config.string("init_weights") : "xavier_uniform";
    const auto features = static_cast<double>(init == "xavier_uniform" ? in + out : in);
    const double bound = init == "xavier_uniform" ? std::sqrt(3.0) * (1.0 * std::sqrt(2.0 / features))
                                                  : std::sqrt(1.0 / features);
    if (init == "gaussian")
      kernel_.normal_();
    else
      kernel_.uniform_(-bound, bound);
  }

  at::Tensor kernel_;
};

void check_c3a(const AdapterConfig& config) {
  if (!config.is_string("init_weights")) {
    config.boolean("init_weights");
    return;
  }
  const auto init = config.string("init_weights");
  for (const char* known : {"gaussian", "kaiming_uniform", "xavier_uniform"})
    if (init == known) return;
  throw ConfigError("[adapters] \"init_weights\" is \"" + init +
                    "\"; known: true, false, \"gaussian\", \"kaiming_uniform\", \"xavier_uniform\"");
}

}  // namespace

Method c3a_method() {
  return {.type = "C3A",
          .fields = {{"block_size", 256},
                     {"bias", "none", {"none", "all", "c3a_only"}},
                     {"block_size_pattern", nlohmann::json::object()},
                     {"init_weights", "xavier_uniform", {}, Field::Rule::any}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<C3aPart>(build);
          },
          .default_targets = usual_targets_but("gpt2", {"mlp.c_proj"}),
          .check = check_c3a,
          .patterns_after_dot = true};
}

}  // namespace graft::adapters
