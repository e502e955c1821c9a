#include "adapters/methods/lora_init.h"

#include <ATen/ATen.h>

#include "adapters/svd.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

struct LowRank {
  at::Tensor a, b;
};

std::string init_of(const AdapterConfig& config) {
  if (config.is_string("init_lora_weights")) {
    auto name = config.string("init_lora_weights");
    for (auto& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return name;
  }
  return config.boolean("init_lora_weights") ? "true" : "false";
}

int64_t pissa_rounds(const std::string& init) {
  constexpr std::string_view prefix = "pissa_niter_";
  return init.starts_with(prefix) ? std::stoll(init.substr(prefix.size())) : -1;
}

/// What PiSSA or OLoRA takes out of the base, unscaled.
LowRank principal_part(const LoraPart& part, const std::string& init) {
  const int64_t r = part.rank();
  const auto weight = out_in(part.layer(), part.layer().weight).to(at::kFloat);
  if (init == "olora") {
    // PEFT does not turn Conv1D's weight round here, whose halves then do not fit.
    const auto [q, rest] = at::linalg_qr(weight);
    return {rest.narrow(0, 0, r).contiguous(), q.narrow(1, 0, r).contiguous()};
  }
  const auto rounds = pissa_rounds(init);
  const auto [u, s, vh] = rounds >= 0 ? largest_singular(weight, r, rounds) : singular(weight);
  const auto root = (s.narrow(0, 0, r) / part.scaling()).sqrt();
  return {root.unsqueeze(1) * vh.narrow(0, 0, r), u.narrow(1, 0, r) * root};
}

bool starts_from_base(const std::string& init) { return init.starts_with("pissa") || init == "olora"; }

void orthogonal(LoraPart& part) {
  const int64_t r = part.rank(), in = part.A.size(1), out = part.B.size(0);
  if (r % 2 != 0)
    throw ConfigError("[adapters] \"init_lora_weights\": \"orthogonal\" needs an even rank, got " +
                      std::to_string(r));
  const auto q = std::get<0>(at::linalg_qr(at::randn({r, r})));
  const auto odd = q.slice(0, 0, std::nullopt, 2), even = q.slice(0, 1, std::nullopt, 2);
  part.A.copy_(at::randn({in, r / 2}).mm(odd).t() / 10.0);
  part.B.copy_(at::randn({r / 2, out}).t().mm(even) / 10.0);
}

}  // namespace

void check_lora_init(const AdapterConfig& config) {
  const auto init = init_of(config);
  if (config.boolean("lora_bias") && (config.boolean("use_dora") || (init != "true" && init != "false")))
    throw ConfigError(
        "[adapters] \"lora_bias\" goes with neither \"use_dora\" nor an \"init_lora_weights\" other than "
        "true "
        "and false");
  for (const char* known : {"true", "false", "gaussian", "orthogonal", "pissa", "olora"})
    if (init == known) return;
  constexpr std::string_view prefix = "pissa_niter_";
  if (init.starts_with(prefix) && init.size() > prefix.size() &&
      init.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
    return;
  throw ConfigError(
      "[adapters] \"init_lora_weights\" is \"" + init +
      "\"; known: true, false, \"gaussian\", \"orthogonal\", \"pissa\", \"pissa_niter_N\", \"olora\"");
}

void initialise_lora(LoraPart& part, const PartBuild& build) {
  const at::NoGradGuard no_grad;
  const auto init = init_of(build.config);
  const bool embedding = build.layer.kind() == nn::LayerKind::embedding;
  const bool linear =
      build.layer.kind() == nn::LayerKind::linear || build.layer.kind() == nn::LayerKind::conv1d;
  if (!linear && (starts_from_base(init) || init == "orthogonal"))
    build.refuse("\"init_lora_weights\": \"" + init + "\" is for linear layers");
  if (embedding) {
    part.A.normal_();
    part.B.normal_();
  } else {
    as_torch_layer(part.A);
    as_torch_layer(part.B);
    if (part.B_bias.defined()) as_torch_bias(part.B_bias, part.B);
  }
  if (init == "true" || init == "gaussian") {
    if (embedding) {
      part.A.zero_();
      part.B.normal_();
      return;
    }
    if (init == "gaussian")
      part.A.normal_(0, 1.0 / static_cast<double>(part.rank()));
    else
      as_torch_layer(part.A);
    part.B.zero_();
    if (part.B_bias.defined()) part.B_bias.zero_();
  } else if (init == "orthogonal") {
    orthogonal(part);
  } else if (starts_from_base(init)) {
    const auto start = principal_part(part, init);
    part.A.copy_(start.a);
    part.B.copy_(start.b);
    part.take_out(start.a, start.b * part.scaling());
  }
}

void restore_lora_base(LoraPart& part, const PartBuild& build) {
  const auto init = init_of(build.config);
  if (!starts_from_base(init)) return;
  if (pissa_rounds(init) >= 0)
    throw ConfigError(
        "[adapters] an adapter made with \"" + init +
        "\" goes with a base weight that random numbers decided; save it converted to plain LoRA "
        "(PEFT: path_initial_model_for_weight_conversion) and load that");
  const at::NoGradGuard no_grad;
  const auto start = principal_part(part, init);
  part.take_out(start.a, start.b * part.scaling());
}

}  // namespace graft::adapters
