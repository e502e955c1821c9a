#include "adapters/methods/osf.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "adapters/added_weight.h"
#include "adapters/svd.h"
#include "graft/error.h"
#include "support/regex.h"

namespace graft::adapters {
namespace {

/// A whole number of singular values, or a fraction of all: one JSON number, which has a point or not.
int64_t kept_of(const nlohmann::ordered_json& value, int64_t all) {
  const auto number = value.get<double>();
  const bool share = value.is_number_float() && number > 0 && number <= 1;
  const double kept = share ? static_cast<double>(all) * number : number;
  return static_cast<int64_t>(std::clamp(std::trunc(kept), 0.0, static_cast<double>(all)));
}

/// How many of the layer's singular values stay as they are.
int64_t kept_rank(const PartBuild& build, int64_t all) {
  const auto fields = nlohmann::ordered_json::parse(build.config.dump());
  for (const auto& [pattern, value] : fields.at("rank_pattern").items())  // the first that matches anywhere
    if (Regex(".*(?:" + pattern + ")", "[adapters] \"rank_pattern\"").matches_start(build.path))
      return kept_of(value, all);
  const auto& rank = fields.at("effective_rank");
  return rank.is_null() ? all / 2 : kept_of(rank, all);
}

class OsfPart : public AddedWeight {
 public:
  explicit OsfPart(const PartBuild& build) : AddedWeight(build) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has OSF for torch.nn.Linear only");
    const int64_t in = build.in_features(), out = build.out_features(), all = std::min(in, out);
    const int64_t kept = kept_rank(build, all), low = all - kept;
    if (kept <= 0)
      build.refuse("\"effective_rank\" keeps none of its " + std::to_string(all) + " singular values");
    S_ = parameter(build, "osf_svd_params.S_low", {low});
    U_ = parameter(build, "osf_svd_params.U_low", {out, low});
    V_ = parameter(build, "osf_svd_params.V_low", {low, in});
    const at::NoGradGuard no_grad;
    const auto [u, s, vh] = singular(build.layer.weight.detach().to(at::kFloat));
    const auto U = u.narrow(1, kept, low), S = s.narrow(0, kept, low), V = vh.narrow(0, kept, low);
    first_U_ = constant("first_U", (U * S).contiguous());
    first_V_ = constant("first_V", V.contiguous());
    // What is at right angles to the large singular vectors: all of it is spanned by the small ones where the
    // vectors are as many as their entries.
    large_U_ = out > in;
    large_V_ = out < in;
    span_U_ = constant("span_U", (large_U_ ? u.narrow(1, 0, kept) : U).contiguous());
    span_V_ = constant("span_V", (large_V_ ? vh.narrow(0, 0, kept) : V).contiguous());
    if (!build.fresh()) return;
    if (build.config.boolean("init_weights")) {
      U_.copy_(U);
      S_.copy_(S);
      V_.copy_(V);
    } else {
      for (const auto& factor : {U_, S_, V_}) factor.copy_(at::randn(factor.sizes()));
    }
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = widened(gate.part(x));
    const auto now =
        at::linear(at::linear(in, cast_to(trained_V(), in)), cast_to(trained_U() * widened(S_), in));
    const auto first = at::linear(at::linear(in, cast_to(first_V_, in)), cast_to(first_U_, in));
    return gate.add(next(x), now - first);
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto left = widened(U_) * widened(S_);
    const auto now = at::matmul(left, cast_to(V_, left));
    return now - at::matmul(cast_to(first_U_, now), cast_to(first_V_, now));
  }

 private:
  // U and V themselves, whose gradients are at right angles to the large singular vectors.
  at::Tensor trained_U() const {
    auto u = widened(U_);
    if (!at::GradMode::is_enabled()) return u;
    const auto still = u.detach(), change = u - still, span = cast_to(span_U_, u);
    const auto within = at::matmul(span, at::matmul(span.t(), change));
    return still + (large_U_ ? change - within : within);
  }
  at::Tensor trained_V() const {
    auto v = widened(V_);
    if (!at::GradMode::is_enabled()) return v;
    const auto still = v.detach(), change = v - still, span = cast_to(span_V_, v);
    const auto within = at::matmul(at::matmul(change, span.t()), span);
    return still + (large_V_ ? change - within : within);
  }

  at::Tensor U_, S_, V_;
  at::Tensor first_U_, first_V_, span_U_, span_V_;
  bool large_U_ = false, large_V_ = false;
};

void check_osf(const AdapterConfig& config) {
  const auto fields = nlohmann::json::parse(config.dump());
  const auto& rank = fields.at("effective_rank");
  if (!rank.is_null() && !(rank.is_number() && rank.get<double>() > 0))
    throw ConfigError("[adapters] \"effective_rank\" must be a number above 0, got " + rank.dump());
  const auto& pattern = fields.at("rank_pattern");
  if (pattern.is_null()) return;
  const auto fits = [](const nlohmann::json& each) { return each.is_number() && each.get<double>() > 0; };
  if (!pattern.is_object() || !std::all_of(pattern.begin(), pattern.end(), fits))
    throw ConfigError("[adapters] \"rank_pattern\" must be an object of numbers above 0, got " +
                      pattern.dump());
}

const DefaultTargets& osf_targets() {
  static const DefaultTargets targets = [] {
    const std::vector<std::string> gated{"q_proj",    "k_proj",    "v_proj", "o_proj",
                                         "gate_proj", "down_proj", "up_proj"};
    DefaultTargets all;
    for (const char* type : {"llama", "mistral", "gemma", "gemma2", "qwen2", "qwen3"})
      all.emplace_back(type, gated);
    all.emplace_back("gpt2", std::vector<std::string>{"c_attn", "c_proj"});
    all.emplace_back("opt", std::vector<std::string>{"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"});
    for (const char* type : {"bloom", "gpt_neox", "falcon"})
      all.emplace_back(type, std::vector<std::string>{"query_key_value", "dense_4h_to_h"});
    return all;
  }();
  return targets;
}

}  // namespace

Method osf_method() {
  return {.type = "OSF",
          .fields = {{"effective_rank", nullptr, {}, Field::Rule::any},
                     {"rank_pattern", nullptr, {}, Field::Rule::any},
                     {"init_weights", true},
                     {"target_svd_config", nullptr, {}, Field::Rule::default_only}},
          .lacks = {"exclude_modules", "layers_to_transform", "layers_pattern"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<OsfPart>(build);
          },
          .default_targets = osf_targets(),
          .all_linear_by_default = true,
          .check = check_osf,
          .data_fields = {"init_weights"}};
}

}  // namespace graft::adapters
