#include "adapters/methods/hra.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "adapters/torch_init.h"
#include "graft/error.h"
#include "nn/conv.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

/// The product of the reflections as I - v uᵀ, of rank r: never a matrix of [in, in], which PEFT builds.
struct Rotation {
  at::Tensor u, v;  // [in, r]
};

class HraPart : public Part {
 public:
  HraPart(const PartBuild& build, int64_t width)
      : Part(build), gram_schmidt_(build.config.boolean("apply_GS")) {
    const int64_t r = build.config.integer("r");
    U = parameter(build, "hra_u", {width, r});
    if (build.fresh()) initialise(build, r);
  }

  void merge(Weights& weights) const override {
    const auto [u, v] = rotation();
    const auto rows = weights.weight.flatten(1).to(u.scalar_type());
    const auto turned = rows - at::matmul(at::matmul(rows, v), u.t());
    weights.weight = turned.view(weights.weight.sizes()).to(weights.weight.scalar_type());
  }

  /// PEFT multiplies the rotations in the order of the adapters: the last one turns the input first.
  bool first_inside() const override { return true; }
  bool order_matters() const override { return true; }

 protected:
  Rotation rotation() const {
    // LAPACK knows no half precision, which autocast would make products in.
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto wide = U.scalar_type() == at::kDouble ? U : U.to(at::kFloat);
    const auto narrow = [&](const at::Tensor& t) { return t.to(U.scalar_type()); };
    if (gram_schmidt_) {
      // Reflections along orthonormal vectors commute: I - 2 Q Qᵀ, for any orthonormal basis of the columns.
      const auto q = std::get<0>(at::linalg_qr(wide));
      return {narrow(q), narrow(2 * q)};
    }
    // The compact WY form: H_1 ... H_r = I - V uᵀ with V (I + 2 triu(uᵀu, 1)) = 2 u.
    const auto u = wide / at::linalg_vector_norm(wide, 2, at::IntArrayRef{0});
    const auto v = at::linalg_solve_triangular(2 * at::matmul(u.t(), u), 2 * u, /*upper=*/true,
                                               /*left=*/false, /*unitriangular=*/true);
    return {narrow(u), narrow(v)};
  }

  at::Tensor U;

 private:
  /// Pairs of equal reflections undo each other, so that a fresh adapter changes nothing.
  void initialise(const PartBuild& build, int64_t r) {
    const at::NoGradGuard no_grad;
    if (build.config.boolean("init_weights") && r % 2 == 0) {
      const auto half = at::zeros({U.size(0), r / 2});
      as_torch_layer(half);
      U.copy_(half.repeat_interleave(2, 1));
      return;
    }
    if (build.config.boolean("init_weights"))
      log_warning("[adapters] HRA with an odd \"r\" (" + std::to_string(r) +
                  ") does not start at the base of \"" + build.path +
                  "\": its reflections come in pairs only when \"r\" is even");
    as_torch_layer(U);
  }

  bool gram_schmidt_;
};

class HraLinear : public HraPart {
 public:
  explicit HraLinear(const PartBuild& build) : HraPart(build, build.in_features()) {}

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto [u, v] = rotation();
    const auto part = cast_to(gate.part(x), U);
    return next(gate.put(x, part - at::linear(at::matmul(part, u), v)));
  }
};

/// A convolution's weight is turned as [out, in * height * width], which no turn of its input gives: what the
/// rotation takes away is itself a convolution with r channels, W (I - v uᵀ) = W - (W v) uᵀ.
class HraConv : public HraPart {
 public:
  explicit HraConv(const PartBuild& build)
      : HraPart(build, width_of(build)), shape_(dynamic_cast<const nn::Conv2d&>(build.layer).shape()) {}

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto [u, v] = rotation();
    const auto& conv = layer();
    const auto rows = conv.weight.flatten(1).to(v.scalar_type());
    const auto part = cast_to(gate.part(x), U);
    if (conv.weight.scalar_type() != U.scalar_type()) {
      // In the adapter's precision the whole layer: a difference of two results that were rounded to the
      // layer's would lose what the rotation is about.
      const auto turned = (rows - at::matmul(at::matmul(rows, v), u.t())).view(conv.weight.sizes());
      const auto bias = conv.bias.defined() ? conv.bias.to(U.scalar_type()) : at::Tensor();
      const auto made = at::conv2d(part, turned, bias, shape_.stride, shape_.padding);
      return gate.is_all() ? made.to(x.scalar_type()) : gate.put(next(x), made);
    }
    const auto narrow = u.t().reshape({-1, shape_.in, shape_.kernel[0], shape_.kernel[1]});
    const auto widen = at::matmul(rows, v).view({shape_.out, -1, 1, 1});
    const auto taken = at::conv2d(at::conv2d(part, narrow, {}, shape_.stride, shape_.padding), widen);
    return gate.add(next(x), -taken);
  }

  bool exclusive() const override { return true; }

 private:
  static int64_t width_of(const PartBuild& build) {
    const auto& shape = dynamic_cast<const nn::Conv2d&>(build.layer).shape();
    if (shape.kernel[0] != shape.kernel[1]) build.refuse("HRA needs square kernels");
    return shape.in * shape.kernel[0] * shape.kernel[1];
  }

  nn::Conv2dShape shape_;
};

std::shared_ptr<Part> hra_part(const PartBuild& build) {
  switch (build.layer.kind()) {
    case nn::LayerKind::linear:
      return std::make_shared<HraLinear>(build);
    case nn::LayerKind::conv2d:
      return std::make_shared<HraConv>(build);
    default:
      build.refuse("HRA is for Linear and Conv2d layers");
  }
}

void check_hra(const AdapterConfig& config) {
  if (config.integer("r") <= 0)
    throw ConfigError("[adapters] \"r\" must be at least 1, got " + std::to_string(config.integer("r")));
}

}  // namespace

Method hra_method() {
  return {.type = "HRA",
          .fields = {{"r", 8},
                     {"apply_GS", false},
                     {"init_weights", true},
                     {"bias", "none", {"none", "all", "hra_only"}}},
          .part = hra_part,
          .default_targets = usual_targets(),
          .check = check_hra};
}

}  // namespace graft::adapters
