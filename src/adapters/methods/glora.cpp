#include "adapters/methods/glora.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// W becomes W + W * A + B, entry by entry, and the bias b + b * D + E + W C. Each of the five is a matrix of
/// low rank, a vector, a number, or nothing.
class GloraPart : public AddedWeight {
 public:
  explicit GloraPart(const PartBuild& build) : AddedWeight(build) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has GLoRA for torch.nn.Linear only");
    const auto& config = build.config;
    const int64_t r = positive(config, "r"), in = build.in_features(), out = build.out_features();
    const auto weight = config.string("config_A_B");
    const bool biased = build.layer.bias.defined();
    const std::string by_weight = biased ? config.string("config_C") : "none";
    const std::string bias = biased ? config.string("config_D_E") : "none";
    A_ = path(build, "glora_A", weight, {out, in}, r);
    B_ = path(build, "glora_B", weight, {out, in}, r);
    C_ = path(build, "glora_C", by_weight, {in, 1}, r);
    D_ = path(build, "glora_D", bias, {out}, r);
    E_ = path(build, "glora_E", bias, {out}, r);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto y = next(x);
    const auto weight = delta_weight(), bias = delta_bias();
    if (!weight.defined()) return bias.defined() ? gate.add(y, bias) : y;
    return gate.add(y, at::linear(cast_to(gate.part(x), weight), weight, bias));
  }

  void merge(Weights& weights) const override {
    if (delta_weight().defined()) AddedWeight::merge(weights);
    if (const auto bias = delta_bias(); bias.defined())
      weights.bias = (weights.bias + bias).to(weights.bias.scalar_type());
  }

  /// PEFT writes zeros for what a configuration leaves out.
  NamedTensors saved() const override {
    auto tensors = AddedWeight::saved();
    for (const auto& [key, shape] : absent_) tensors.emplace_back(key, at::zeros(shape, weight().options()));
    return tensors;
  }

 protected:
  /// Undefined for none.
  at::Tensor delta_weight() const override {
    if (!A_.defined()) return {};
    return (widened(weight()) * A_.value() + B_.value()).expand_as(weight());
  }

 private:
  struct Path {
    at::Tensor down, up;  // "Xd" and "Xu"
    at::Tensor x;
    bool defined() const { return down.defined() || x.defined(); }
    at::Tensor value() const { return x.defined() ? widened(x) : at::matmul(widened(down), widened(up)); }
  };

  const at::Tensor& weight() const { return layer().weight; }

  at::Tensor delta_bias() const {
    at::Tensor sum;
    const auto add = [&](const at::Tensor& term) { sum = sum.defined() ? sum + term : term; };
    if (D_.defined()) add((widened(layer().bias) * D_.value() + E_.value()).expand_as(layer().bias));
    if (C_.defined()) add(at::matmul(widened(weight()), C_.value()).squeeze(-1));
    return sum;
  }

  /// PEFT draws each when it is constructed.
  Path path(const PartBuild& build, const std::string& name, const std::string& kind, at::IntArrayRef shape,
            int64_t r) {
    const at::NoGradGuard no_grad;
    const bool draw = build.fresh() && !build.config.boolean("init_weights");
    Path path;
    if (kind == "lora") {
      path.down = parameter(build, name + ".Xd", {shape[0], r});
      path.up = parameter(build, name + ".Xu", {r, shape[1]});
      if (!build.fresh()) return path;
      as_torch_layer(path.up);
      if (draw)
        as_torch_layer(path.down);
      else
        path.down.zero_();
    } else if (kind == "none") {
      leave_out(build, name, shape);
    } else {
      const bool number = kind == "constant";
      path.x = parameter(build, name + ".X",
                         number              ? std::vector<int64_t>{1}
                         : shape.size() == 1 ? shape.vec()
                                             : std::vector<int64_t>{shape[0], 1});
      if (!build.fresh()) return path;
      if (!draw)
        path.x.zero_();
      else if (number)
        path.x.normal_(0, 0.02);
      else
        as_torch_layer(path.x.dim() == 1 ? path.x.unsqueeze(0) : path.x);
    }
    return path;
  }

  void leave_out(const PartBuild& build, const std::string& name, at::IntArrayRef shape) {
    const auto key = build.key(name + ".zeros");
    const auto given = build.source.take_if_there(key, shape);
    if (given.defined() && given.ne(0).any().item<bool>())
      throw FormatError("[adapters] \"" + key +
                        "\" has numbers other than zero, and the configuration says that there is nothing");
    absent_.emplace_back(key, shape.vec());
  }

  Path A_, B_, C_, D_, E_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> absent_;
};

void check_glora(const AdapterConfig& config) {
  positive(config, "r");
  if (config.string("bias") != "none" && config.string("config_D_E") != "none")
    throw ConfigError("[adapters] \"bias\" is \"" + config.string("bias") +
                      "\", and \"config_D_E\" scales the bias by \"" + config.string("config_D_E") +
                      "\": graft trains the one or the other; set one of them to \"none\"");
}

}  // namespace

Method glora_method() {
  return {.type = "GLORA",
          .fields = {{"r", 8},
                     {"bias", "none", {"none", "all", "glora_only"}},
                     {"config_A_B", "lora", {"lora", "vector", "constant", "none"}},
                     {"config_C", "lora", {"lora", "vector", "none"}},
                     {"config_D_E", "constant", {"vector", "constant", "none"}},
                     {"init_weights", true}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<GloraPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_glora,
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
