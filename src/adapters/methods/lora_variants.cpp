#include "adapters/methods/lora_variants.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "adapters/methods/arrow.h"
#include "adapters/methods/lora_init.h"
#include "adapters/methods/lora_linear.h"
#include "adapters/methods/monteclora.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// aLoRA: works from the last occurrence of its invocation tokens in a row on (Gate::last). What comes before
/// is the base's, so that the base's key/value cache of it can be taken over.
class ActivatedLora : public LoraLinear {
 public:
  using LoraLinear::LoraLinear;

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    if (!gate.last().defined()) return y;
    const auto part = cast_to(gate.part(x), A);
    const auto delta = low_rank(dropped(part));
    return gate.add(y, at::where(chosen(part, gate), delta, at::zeros({}, delta.options())));
  }

  Joint joint() const override { return nullptr; }

  void merge(Weights& /*weights*/) const override {
    throw UsageError(
        "[adapters] aLoRA works on some tokens of a row only and cannot be merged into the weights: keep it "
        "as "
        "an adapter");
  }

 private:
  /// The tokens it works on, over what comes out: the last ones of each row. A layer whose input has no
  /// tokens is behind all of them.
  static at::Tensor chosen(const at::Tensor& x, const Gate& gate) {
    const auto last = gate.part(gate.last());
    if (x.dim() == 2) return (last > 0).unsqueeze(1);
    const int64_t tokens = x.size(1);
    const auto from = (tokens - last.clamp_max(tokens)).unsqueeze(1);
    return (at::arange(tokens, last.options()).unsqueeze(0) >= from).unsqueeze(-1);
  }
};

/// BD-LoRA: one of the factors is made of blocks along its diagonal, of which the file has the blocks one
/// under the other.
class BlockLora : public LoraLinear {
 public:
  explicit BlockLora(const PartBuild& build) : BlockLora(build, blocks_of(build)) {
    if (build.fresh()) draw(build);
  }

  Joint joint() const override { return nullptr; }
  std::pair<at::Tensor, at::Tensor> factors() const override { return {whole(A, a_), whole(B, b_)}; }
  // Not as LoRA, whose start may have taken something out of the base.
  // NOLINTBEGIN(bugprone-parent-virtual-call)
  bool can_take(const Part& other) const override { return Part::can_take(other); }
  NamedTensors saved() const override { return Part::saved(); }
  void take(const Part& other) override {
    Part::take(other);
    take_scaling(other);
  }
  // NOLINTEND(bugprone-parent-virtual-call)

 private:
  BlockLora(const PartBuild& build, Blocks blocks) : LoraLinear(build, blocks), a_(blocks.a), b_(blocks.b) {}

  static Blocks blocks_of(const PartBuild& build) {
    const auto options = *object_of(build.config, "use_bdlora");
    const auto named = [&](const char* field) {
      return std::any_of(options[field].begin(), options[field].end(), [&](const auto& name) {
        return build.path.find(name.template get<std::string>()) != std::string::npos;
      });
    };
    const bool a = named("target_modules_bd_a"), b = named("target_modules_bd_b");
    if (a && b)
      throw ConfigError("[lora] \"use_bdlora\": \"" + build.path +
                        "\" is named for a block-diagonal A and for a block-diagonal B: name it for one");
    if (!a && !b && options["match_strict"])
      throw ConfigError("[lora] \"use_bdlora\": \"" + build.path +
                        "\" is named for neither factor: name it, or set \"match_strict\" to false");
    const int64_t count = options["nblocks"];
    const int64_t rank = static_cast<int64_t>(
        build.by_pattern("rank_pattern", static_cast<double>(build.config.integer("r"))));
    const int64_t side = a ? build.in_features() : build.out_features();
    if ((a || b) && (rank % count != 0 || side % count != 0))
      throw ConfigError("[lora] \"use_bdlora\": the rank " + std::to_string(rank) + " and the " +
                        std::to_string(side) + " features of \"" + build.path + "\" cannot be divided into " +
                        std::to_string(count) + " blocks");
    if (b && build.config.boolean("lora_bias"))
      throw ConfigError("[lora] \"lora_bias\" does not go with a block-diagonal B (\"" + build.path + "\")");
    return {a ? count : 1, b ? count : 1};
  }

  /// As PEFT does: both factors whole, then one again as blocks.
  void draw(const PartBuild& build) {
    const at::NoGradGuard no_grad;
    const auto a = A, b = B;
    A = at::empty({a.size(0), a.size(1) * a_}, a.options());
    B = at::empty({b.size(0), b.size(1) * b_}, b.options());
    initialise_lora(*this, build);
    if (a_ > 1)
      kaiming_uniform(a, 0);
    else
      a.copy_(A);
    if (b_ > 1)
      b.zero_();
    else
      b.copy_(B);
    A = a;
    B = b;
  }

  static at::Tensor whole(const at::Tensor& stored, int64_t blocks) {
    return blocks == 1 ? stored : at::block_diag(stored.chunk(blocks, 0));
  }

  /// x [..., in] by the blocks of a factor: each sees its own part of the features.
  static at::Tensor by_blocks(const at::Tensor& x, const at::Tensor& stored, int64_t blocks) {
    if (blocks == 1) return at::linear(x, stored);
    const auto parts = x.reshape({-1, blocks, stored.size(1)}).transpose(0, 1);
    const auto made = at::bmm(parts, stored.view({blocks, -1, stored.size(1)}).transpose(1, 2));
    auto sizes = x.sizes().vec();
    sizes.back() = stored.size(0);
    return made.transpose(0, 1).reshape(sizes);
  }

 protected:
  at::Tensor narrowed(const at::Tensor& x) const override { return by_blocks(x, A, a_); }
  at::Tensor spread(const at::Tensor& low) const override { return by_blocks(low, B, b_); }

 private:
  int64_t a_, b_;
};

/// KaSA: W loses its r smallest singular values, and B diag(d) A is added. PEFT changes the base itself;
/// here what it loses is taken out where the adapter works.
class KasaLora : public LoraLinear {
 public:
  explicit KasaLora(const PartBuild& build) : LoraLinear(build) {
    if (build.layer.kind() == nn::LayerKind::conv1d) build.refuse("KaSA is for linear layers");
    diagonal = parameter(build, "lora_diag", {rank()});
    const at::NoGradGuard no_grad;
    if (build.fresh()) diagonal.normal_();
    const auto [u, s, vh] = at::linalg_svd(layer().weight.to(at::kFloat), /*full_matrices=*/false);
    const int64_t kept = s.size(0) - rank();
    if (kept <= 0)
      throw ConfigError("[lora] \"kasa_config\": the rank " + std::to_string(rank()) + " of \"" + build.path +
                        "\" must be less than its " + std::to_string(s.size(0)) + " singular values");
    take_out(vh.slice(0, kept).contiguous(), (u.slice(1, kept) * s.slice(0, kept)).contiguous());
  }

  std::pair<at::Tensor, at::Tensor> factors() const override { return {A, B * diagonal}; }
  // Not as LoRA, whose start may have taken something out of the base.
  // NOLINTBEGIN(bugprone-parent-virtual-call)
  bool can_take(const Part& other) const override { return Part::can_take(other); }
  void take(const Part& other) override {
    Part::take(other);
    take_scaling(other);
  }
  // NOLINTEND(bugprone-parent-virtual-call)

 protected:
  at::Tensor narrowed(const at::Tensor& x) const override { return at::linear(x, A) * diagonal; }

 private:
  at::Tensor diagonal;
};

/// A x whose backward knows of x only a number for each group of its features: their length along one
/// direction that all groups share.
struct CompressedProduct : torch::autograd::Function<CompressedProduct> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& direction, int64_t groups, double scale) {
    ctx->save_for_backward({at::matmul(grouped(x, groups), direction.to(x.scalar_type())), a, direction});
    ctx->saved_data["scale"] = scale;
    return at::linear(x, a);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &compressed = saved[0], &a = saved[1];
    const auto& grad = grads[0];
    const auto direction = saved[2].to(grad.scalar_type());
    const auto rebuilt = (compressed.unsqueeze(-1) * direction).flatten(1).slice(1, 0, a.size(1)) *
                         ctx->saved_data["scale"].toDouble();
    const auto of_a = at::matmul(grad.reshape({-1, grad.size(-1)}).t(), rebuilt);
    return {at::matmul(grad, a), of_a, {}, {}, {}};
  }

  /// [tokens, groups, features of a group], the last ones of the last group zeros.
  static at::Tensor grouped(const at::Tensor& x, int64_t groups) {
    const int64_t size = (x.size(-1) + groups - 1) / groups;
    return at::constant_pad_nd(x, {0, groups * size - x.size(-1)}).reshape({-1, groups, size});
  }
};

/// VeLoRA: LoRA that keeps less for the backward pass. The direction follows the inputs of training.
class CompressedLora : public LoraLinear {
 public:
  explicit CompressedLora(const PartBuild& build) : LoraLinear(build) {
    const auto options = *object_of(build.config, "velora_config");
    groups_ = options["num_groups"];
    scale_ = options["scale"];
    start_ = options["init_type"];
    direction = parameter(build, "lora_velora_embed", {(A.size(1) + groups_ - 1) / groups_},
                          /*trainable=*/false);
    started_ = constant("velora_started", at::zeros({}, A.options().dtype(at::kBool)));
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    if (start_ == "random")
      direction.copy_(unit(at::randn(direction.sizes())));
    else
      direction.zero_();
  }

  Joint joint() const override { return is_training() ? nullptr : LoraLinear::joint(); }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    if (!is_training() || !at::GradMode::is_enabled()) return LoraLinear::forward(x, next, gate);
    auto y = next(x);
    const auto part = dropped(cast_to(gate.part(x), A));
    follow(part, gate);
    const auto low = CompressedProduct::apply(part, A, direction, groups_, scale_);
    auto delta = spread(low * scaling_);
    if (B_bias.defined()) delta = delta + B_bias * scaling_;
    return gate.add(y, delta);
  }

 private:
  static at::Tensor unit(const at::Tensor& v) {
    const auto wide = v.to(at::kFloat);
    const auto length = at::linalg_vector_norm(wide);
    const auto ones = at::ones_like(wide);
    return at::where(length > 0, wide / length, ones / at::linalg_vector_norm(ones));
  }

  void follow(const at::Tensor& x, const Gate& gate) {
    if (start_ == "random") return;
    const at::NoGradGuard no_grad;
    // Rows of others are zeros here, which changes the mean's length and not its direction.
    auto mean =
        unit(CompressedProduct::grouped(x, groups_).mean(at::IntArrayRef{0, 1})).to(direction.scalar_type());
    if (start_ == "batch_average_once") {
      mean = at::where(started_, direction, mean);
      started_.copy_(gate.if_any(at::ones_like(started_), started_));
    }
    direction.copy_(gate.if_any(mean, direction));
  }

  int64_t groups_ = 1;
  double scale_ = 1;
  std::string start_;
  at::Tensor direction, started_;
};

/// QA-LoRA: A sees the sums of neighbouring features over the number of features in a group. PEFT makes it on
/// quantised bases alone, and plain LoRA of the same configuration on others; the file's A says which it is.
class PooledLora : public LoraLinear {
 public:
  explicit PooledLora(const PartBuild& build)
      : LoraLinear(build, {.a = group_of(build)}), group_(group_of(build)) {
    finish(build);
  }

  /// The features of a group in the file's A, 1 for plain LoRA.
  static int64_t group_of(const PartBuild& build) {
    const auto shapes = build.source.shapes(build.key("lora_A.weight"));
    const int64_t group = build.config.integer("qalora_group_size"), in = build.in_features();
    return !shapes.empty() && group > 1 && shapes[0].back() * group == in ? group : 1;
  }

  Joint joint() const override { return nullptr; }
  std::pair<at::Tensor, at::Tensor> factors() const override {
    return {A.repeat_interleave(group_, 1) * share(), B};
  }

 protected:
  at::Tensor narrowed(const at::Tensor& x) const override {
    return at::linear(x.unflatten(-1, {A.size(1), group_}).mean(-1) * A.size(1), A);
  }

 private:
  double share() const { return static_cast<double>(A.size(1)) / static_cast<double>(group_); }

  int64_t group_;
};

struct Variant {
  std::string_view field;
  bool (*asked)(const AdapterConfig&);
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"use_dora", [](const AdapterConfig& c) { return c.boolean("use_dora"); }},
      {"alora_invocation_tokens", [](const AdapterConfig& c) { return !invocation_tokens(c).empty(); }},
      {"use_bdlora", [](const AdapterConfig& c) { return c.is_object("use_bdlora"); }},
      {"velora_config", [](const AdapterConfig& c) { return c.is_object("velora_config"); }},
      {"kasa_config", [](const AdapterConfig& c) { return c.is_object("kasa_config"); }},
      {"monteclora_config", [](const AdapterConfig& c) { return c.is_object("monteclora_config"); }},
      {"arrow_config", is_arrow},
      {"init_lora_weights", is_mica}};
  return all;
}

/// The field that asks for a variant; empty for plain LoRA.
std::string_view variant_of(const AdapterConfig& config) {
  for (const auto& variant : variants())
    if (variant.asked(config)) return variant.field;
  return {};
}

}  // namespace

std::vector<Field> lora_variant_fields() {
  const auto names = nlohmann::json::array();
  using Rule = Field::Rule;
  return {{"alora_invocation_tokens", nullptr, {}, Rule::any},
          object_field("use_bdlora", {{"target_modules_bd_a", names},
                                      {"target_modules_bd_b", names},
                                      {"nblocks", 1},
                                      {"match_strict", true}}),
          object_field("velora_config",
                       {{"num_groups", 64},
                        {"scale", 1.0},
                        {"init_type", "batch_average", {"batch_average", "batch_average_once", "random"}}}),
          object_field("kasa_config", {{"beta", 1e-4}, {"gamma", 1e-3}}),
          {"use_qalora", false},
          {"qalora_group_size", 16},
          monteclora_field(),
          arrow_field()};
}

bool has_variant(const AdapterConfig& config) { return !variant_of(config).empty(); }

bool draws_in_training(const AdapterConfig& config) {
  return config.peft_type() == "LORA" && config.is_object("monteclora_config");
}

bool is_mica(const AdapterConfig& config) {
  return config.is_string("init_lora_weights") && config.string("init_lora_weights") == "mica";
}

std::vector<int64_t> invocation_tokens(const AdapterConfig& config) {
  return config.peft_type() == "LORA" ? config.integers("alora_invocation_tokens") : std::vector<int64_t>();
}

void check_lora_variants(const AdapterConfig& config) {
  std::string asked;
  size_t count = 0;
  for (const auto& variant : variants())
    if (variant.asked(config)) {
      asked += (asked.empty() ? "\"" : ", \"") + std::string(variant.field) + '"';
      ++count;
    }
  if (count > 1)
    throw ConfigError("[lora] " + asked + " ask for different variants of LoRA: an adapter is one at most");
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw ConfigError("[lora] " + what);
  };
  if (!invocation_tokens(config).empty())
    demand(config.string("task_type") == "CAUSAL_LM",
           "\"alora_invocation_tokens\" needs \"task_type\": \"CAUSAL_LM\": PEFT looks for them in no other "
           "call, and the adapter would never work");
  if (count > 0 && variant_of(config) != "use_dora" && starts_from_base(config))
    throw ConfigError("[lora] \"init_lora_weights\": " + config.text("init_lora_weights") +
                      " changes the base, and " + asked + " does not go with that");
  check_monteclora(config);
  check_arrow(config);
  if (const auto velora = object_of(config, "velora_config")) {
    demand((*velora)["num_groups"] > 0, "\"velora_config\": \"num_groups\" must be at least 1");
    demand((*velora)["scale"] > 0, "\"velora_config\": \"scale\" must be above 0");
  }
  if (const auto kasa = object_of(config, "kasa_config"))
    for (const char* field : {"beta", "gamma"})
      demand((*kasa)[field] >= 0, "\"kasa_config\": \"" + std::string(field) + "\" must not be negative");
  if (const auto blocks = object_of(config, "use_bdlora")) {
    demand((*blocks)["nblocks"] > 0, "\"use_bdlora\": \"nblocks\" must be at least 1");
    for (const char* field : {"target_modules_bd_a", "target_modules_bd_b"})
      for (const auto& name : (*blocks)[field])
        demand(name.is_string(), "\"use_bdlora\": \"" + std::string(field) + "\" must be a list of strings");
  }
}

void check_variant_fits(const PartBuild& build) {
  const auto variant = variant_of(build.config);
  const auto kind = build.layer.kind();
  const bool linear = kind == nn::LayerKind::linear || kind == nn::LayerKind::conv1d;
  if (variant.empty() || variant == "use_dora" || linear) return;
  if (is_mica(build.config) && kind == nn::LayerKind::embedding) return;
  build.refuse("\"" + std::string(variant) + "\" is for linear layers");
}

std::shared_ptr<Part> lora_linear_part(const PartBuild& build) {
  const auto variant = variant_of(build.config);
  if (variant == "alora_invocation_tokens") return std::make_shared<ActivatedLora>(build);
  if (variant == "use_bdlora") return std::make_shared<BlockLora>(build);
  if (variant == "kasa_config") return std::make_shared<KasaLora>(build);
  if (variant == "monteclora_config") return monteclora_part(build);
  if (variant == "velora_config") return std::make_shared<CompressedLora>(build);
  if (variant == "arrow_config") return arrow_part(build);
  if (build.config.boolean("use_qalora") && PooledLora::group_of(build) > 1)
    return std::make_shared<PooledLora>(build);
  return std::make_shared<LoraLinear>(build);
}

}  // namespace graft::adapters
