#include "adapters/methods/lora_init.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

#include "adapters/added_weight.h"
#include "adapters/svd.h"
#include "adapters/torch_init.h"
#include "graft/error.h"
#include "support/log.h"

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

/// An embedding, which starts by noise or by nothing. A weight that is named by itself starts as a linear
/// layer's.
bool starts_plainly(const PartBuild& build) {
  return build.layer.kind() == nn::LayerKind::embedding && build.parameter.empty();
}

/// What PiSSA or OLoRA start from, unscaled.
LowRank principal_part(const LoraPart& part, const std::string& init) {
  const int64_t r = part.rank();
  if (init == "olora") {
    // PEFT does not turn Conv1D's weight round here: see start_from().
    const auto [q, rest] = at::linalg_qr(part.layer().weight.to(at::kFloat));
    return {rest.narrow(0, 0, r).contiguous(), q.narrow(1, 0, r).contiguous()};
  }
  const auto weight = out_in(part.layer(), part.layer().weight).to(at::kFloat);
  const auto rounds = pissa_rounds(init);
  const auto [u, s, vh] = rounds >= 0 ? largest_singular(weight, r, rounds) : singular(weight);
  const auto root = (s.narrow(0, 0, r) / part.scaling()).sqrt();
  return {root.unsqueeze(1) * vh.narrow(0, 0, r), u.narrow(1, 0, r) * root};
}

/// The same, of which the base loses as much as the adapter starts with. Only OLoRA on Conv1D has the two the
/// other way round, as in PEFT.
LowRank take_start(LoraPart& part, const PartBuild& build, const std::string& init) {
  const bool turned = init == "olora" && build.layer.kind() == nn::LayerKind::conv1d;
  if (turned && build.in_features() != build.out_features())
    build.refuse("OLoRA's halves fit it only where it has as many inputs as outputs; PiSSA's fit");
  const auto start = principal_part(part, init);
  const auto b = start.b * part.scaling();
  if (turned)
    part.take_out(b.t().contiguous(), start.a.t().contiguous());
  else
    part.take_out(start.a, b);
  return start;
}

bool takes_from_base(const std::string& init) { return init.starts_with("pissa") || init == "olora"; }

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

/// Inits that look at data or at a quantised base while the adapter is made; what is trained from them, and
/// saved, is plain LoRA.
struct DataInit {
  std::string_view name, needs;
};
constexpr DataInit kDataInits[] = {
    {"eva", "batches of data (PEFT: initialize_lora_eva_weights)"},
    {"lora_ga", "gradients of the base on data (PEFT: preprocess_loraga)"},
    {"corda", "covariances of the layers' inputs on data (PEFT: preprocess_corda)"},
    {"loftq", "a base that is quantised on a GPU"}};

/// The r left singular vectors of the smallest singular values, which stay as they are.
void minor_components(LoraPart& part, const PartBuild& build) {
  const bool embedding = build.layer.kind() == nn::LayerKind::embedding;
  const auto weight = build.layer.weight.to(at::kFloat);
  const auto u = std::get<0>(at::linalg_svd(embedding ? weight.t() : out_in(build.layer, weight), false));
  if (part.rank() > u.size(1))
    throw ConfigError("[lora] \"init_lora_weights\": \"mica\" needs a rank of at most " +
                      std::to_string(u.size(1)) + " for \"" + build.path + "\", got " +
                      std::to_string(part.rank()));
  part.B.copy_(u.slice(1, u.size(1) - part.rank()));
  part.A.zero_();
}

}  // namespace

std::vector<Field> lora_start_fields() {
  const auto text = [](std::string_view name) { return Field{name, nullptr}; };
  return {object_field("loftq_config", {{"loftq_bits", 4}, {"loftq_iter", 1}}, nlohmann::json::object()),
          object_field("eva_config", {{"rho", 2.0},
                                      {"tau", 0.99},
                                      {"use_label_mask", true},
                                      {"label_mask_value", -100},
                                      {"whiten", false},
                                      {"adjust_scaling_factors", true}}),
          object_field("corda_config", {text("cache_file"),
                                        text("covariance_file"),
                                        {"corda_method", "ipm", {"ipm", "kpm"}},
                                        {"verbose", false},
                                        {"use_float16_for_covariance", false},
                                        {"prune_temporary_fields", true}}),
          object_field("lora_ga_config", {{"direction", "ArB2r", {"ArBr", "A2rBr", "ArB2r", "random"}},
                                          {"scale", "stable", {"stable", "weight_svd", "gd_scale", "unit"}},
                                          {"stable_gamma", 16}})};
}

int64_t start_rank(const PartBuild& build, int64_t r) {
  if (!is_linear(build.layer) || !build.parameter.empty() || !starts_from_base(build.config)) return r;
  return std::min({r, build.in_features(), build.out_features()});
}

bool starts_from_base(const AdapterConfig& config) { return takes_from_base(init_of(config)); }

void check_lora_init(const AdapterConfig& config) {
  const auto init = init_of(config);
  if (config.boolean("lora_bias") && (config.boolean("use_dora") || (init != "true" && init != "false")))
    throw ConfigError(
        "[adapters] \"lora_bias\" goes with neither \"use_dora\" nor an \"init_lora_weights\" other than "
        "true "
        "and false");
  for (const char* known : {"true", "false", "gaussian", "orthogonal", "pissa", "olora", "mica"})
    if (init == known) return;
  for (const auto& known : kDataInits)
    if (init == known.name) return;
  constexpr std::string_view prefix = "pissa_niter_";
  if (init.starts_with(prefix) && init.size() > prefix.size() &&
      init.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
    return;
  throw ConfigError(
      "[adapters] \"init_lora_weights\" is \"" + init +
      "\"; known: true, false, \"gaussian\", \"orthogonal\", \"pissa\", \"pissa_niter_N\", \"olora\", "
      "\"mica\", \"eva\", \"lora_ga\", \"corda\", \"loftq\"");
}

void initialise_lora(LoraPart& part, const PartBuild& build) {
  const at::NoGradGuard no_grad;
  const auto init = init_of(build.config);
  const bool embedding = starts_plainly(build), linear = is_linear(build.layer);
  for (const auto& data : kDataInits)
    if (init == data.name)
      throw ConfigError(
          "[lora] \"init_lora_weights\": \"" + init + "\" starts from " + std::string(data.needs) +
          ", which graft does not do: make the adapter with PEFT, save it and train it here, or "
          "start from true");
  if (!linear && !embedding && (takes_from_base(init) || init == "orthogonal"))
    build.refuse("\"init_lora_weights\": \"" + init + "\" is for linear layers");
  if (embedding) {
    part.A.normal_();
    part.B.normal_();
    if (init == "mica") return minor_components(part, build);
    if (init == "false") return;
    // Whatever linear layers start from, embeddings start as by true.
    part.A.zero_();
    part.B.normal_();
    return;
  }
  as_torch_layer(part.A);
  as_torch_layer(part.B);
  if (part.B_bias.defined()) as_torch_bias(part.B_bias, part.B);
  if (init == "true" || init == "gaussian") {
    if (init == "gaussian")
      part.A.normal_(0, 1.0 / static_cast<double>(part.rank()));
    else
      as_torch_layer(part.A);
    part.B.zero_();
    if (part.B_bias.defined()) part.B_bias.zero_();
  } else if (init == "mica") {
    minor_components(part, build);
  } else if (init == "orthogonal") {
    orthogonal(part);
  } else if (takes_from_base(init)) {
    const auto start = take_start(part, build, init);
    part.A.copy_(start.a);
    part.B.copy_(start.b);
  }
}

void restore_lora_base(LoraPart& part, const PartBuild& build) {
  const auto init = init_of(build.config);
  if (init == "corda" || init == "loftq" || init == "lora_ga") {
    static std::once_flag said;
    std::call_once(said, [&] {
      log_warning(
          "[lora] an adapter made with \"init_lora_weights\": \"" + init +
          "\" goes with the base that its making changed: load it on that one, or convert it to plain "
          "LoRA where it was made (PEFT: path_initial_model_for_weight_conversion)");
    });
  }
  if (!takes_from_base(init) || starts_plainly(build)) return;
  if (!is_linear(build.layer)) build.refuse("\"init_lora_weights\": \"" + init + "\" is for linear layers");
  if (pissa_rounds(init) >= 0)
    throw ConfigError(
        "[adapters] an adapter made with \"" + init +
        "\" goes with a base weight that random numbers decided; save it converted to plain LoRA "
        "(PEFT: path_initial_model_for_weight_conversion) and load that");
  const at::NoGradGuard no_grad;
  take_start(part, build, init);
}

}  // namespace graft::adapters
