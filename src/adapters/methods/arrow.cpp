#include "adapters/methods/arrow.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <set>

#include "adapters/added_weight.h"
#include "adapters/methods/lora_experts.h"
#include "adapters/methods/lora_linear.h"
#include "graft/error.h"
#include "io/format/hub_cache.h"

namespace graft::adapters {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kFieldName = "arrow_config";

nlohmann::json settings_of(const AdapterConfig& config) { return *object_of(config, kFieldName); }

/// The layers that an adapter's file is for.
std::set<std::string> layers_in(const std::string& folder) {
  constexpr std::string_view root = "base_model.model.", ending = ".lora_A.weight";
  std::set<std::string> layers;
  const auto file = Checkpoint::open(io::local_path(folder), "adapter_model");
  for (const auto& name : file.names())
    if (name.starts_with(root) && name.ends_with(ending))
      layers.insert(name.substr(root.size(), name.size() - root.size() - ending.size()));
  return layers;
}

/// The last parts of their paths: "q_proj".
std::vector<std::string> short_names(const std::set<std::string>& layers) {
  std::set<std::string> names;
  for (const auto& layer : layers) names.insert(layer.substr(layer.rfind('.') + 1));
  return {names.begin(), names.end()};
}

std::vector<std::string> folders_in(const nlohmann::json& settings, const char* field) {
  return settings[field].is_null() ? std::vector<std::string>()
                                   : settings[field].get<std::vector<std::string>>();
}

/// The files, while the parts are built.
class Experts : public Shared {
 public:
  explicit Experts(const AdapterConfig& config) {
    const auto settings = settings_of(config);
    tasks = opened(folders_in(settings, "task_adapter_names"));
    general = opened(folders_in(settings, "gks_adapter_names"));
    const auto first = layers_in(tasks.front().folder);
    for (const auto* list : {&tasks, &general})
      for (const auto& expert : *list)
        if (layers_in(expert.folder) != first)
          throw ConfigError("[arrow] the adapters in " + tasks.front().folder + " and " + expert.folder +
                            " are on different layers: Arrow's adapters must all be on the same");
  }

  std::vector<Entry> entries() const override { return {}; }
  void finish(const PreTrainedModel& model) override {
    finish_experts(tasks, model);
    finish_experts(general, model);
  }

  std::vector<Expert> tasks, general;

 private:
  static std::vector<Expert> opened(const std::vector<std::string>& folders) {
    std::vector<Expert> experts;
    for (const auto& folder : folders) {
      auto own = plain_lora(folder, "Arrow");
      if (own.boolean("lora_bias"))
        throw ConfigError("[arrow] the adapter in " + folder +
                          " has \"lora_bias\", which Arrow would leave out: route over adapters without it");
      auto source = std::make_shared<GivenSource>(GivenSource::open(folder));
      if (!source->shapes("lora_embedding_A").empty())
        throw ConfigError("[arrow] the adapter in " + folder +
                          " is on an embedding: Arrow is for linear layers");
      experts.push_back({folder, std::move(own), std::move(source)});
    }
    return experts;
  }
};

/// PEFT's: the direction of the input that B A makes most of, by power iteration from a drawn beginning.
at::Tensor main_direction(const at::Tensor& a, const at::Tensor& b, int64_t seed) {
  constexpr int rounds = 15;
  constexpr double eps = 1e-8;
  const auto unit = [&](const at::Tensor& v) { return v / (at::linalg_vector_norm(v) + eps); };
  const auto inner = at::matmul(b.t(), b);
  auto v = unit(at::randn({a.size(1)}, seeded(seed), at::TensorOptions(at::kFloat)).to(a.device()));
  for (int i = 0; i < rounds; ++i) v = unit(at::matmul(a.t(), at::matmul(inner, at::matmul(a, v))));
  return v;
}

/// y += sum over the token's top_k adapters of share * scaling B A x. Its own A and B, which PEFT makes and
/// saves, do nothing.
class ArrowPart : public LoraLinear {
 public:
  explicit ArrowPart(const PartBuild& build) : LoraLinear(build) {
    const at::NoGradGuard no_grad;
    const auto settings = settings_of(build.config);
    const auto& experts = dynamic_cast<const Experts&>(*build.shared);
    top_k_ = settings["top_k"];
    auto [a, b, scales] = on_layer(build, experts.tasks);
    if (!experts.general.empty()) {
      // In float32, as PEFT has all of it: a difference is no number of the file's dtype.
      const auto general = on_layer(build, experts.general, a.front());
      const auto mean_a = mean_of(general.a), mean_b = mean_of(general.b);
      for (auto& each : a) each = each.to(at::kFloat) - mean_a;
      for (auto& each : b) each = each.to(at::kFloat) - mean_b;
    }
    const int64_t seed = settings["rng_seed"].is_null() ? 0 : settings["rng_seed"].get<int64_t>();
    std::vector<at::Tensor> directions;
    directions.reserve(a.size());
    for (size_t i = 0; i < a.size(); ++i)
      directions.push_back(
          main_direction(a[i].to(at::kFloat), b[i].to(at::kFloat), seed).to(a[i].scalar_type()));
    all_A_ = constant("all_A", at::cat(a, 0));
    all_B_ = constant("all_B", at::cat(b, 1));
    directions_ = constant("directions", at::stack(directions));
    shares_ = constant("shares", at::tensor(scales, build.options()));
    temperature_ = constant("temperature",
                            at::scalar_tensor(settings["router_temperature"].get<double>(), build.options()));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    auto y = next(x);
    const auto in = cast_to(gate.part(x), all_A_);
    const auto by_expert = at::linear(in, all_A_).unflatten(-1, {shares_.size(0), -1});
    const auto weighted = by_expert * (chosen(in) * shares_).to(in.scalar_type()).unsqueeze(-1);
    return gate.add(y, dropped(at::linear(weighted.flatten(-2), all_B_)));
  }

  Joint joint() const override { return nullptr; }

  bool scale(double factor) override {
    shares_.mul_(factor);
    return true;
  }

  // Not as LoRA, whose adapters may be of lower ranks.
  // NOLINTBEGIN(bugprone-parent-virtual-call)
  bool can_take(const Part& other) const override {
    const auto* arrow = dynamic_cast<const ArrowPart*>(&other);
    return arrow && arrow->top_k_ == top_k_ && Part::can_take(other);
  }
  void take(const Part& other) override {
    Part::take(other);
    take_scaling(other);
  }
  // NOLINTEND(bugprone-parent-virtual-call)
  bool silence() override {
    const at::NoGradGuard no_grad;
    all_B_.zero_();
    return true;
  }

  void merge(Weights& /*weights*/) const override {
    throw UsageError(
        "[arrow] Arrow chooses among its adapters token by token and cannot be merged into the weights: keep "
        "it as an adapter, or make one of its adapters by `graft combine`");
  }

 private:
  struct OnLayer {
    std::vector<at::Tensor> a, b;
    std::vector<double> scales;
  };

  /// `like`: of the rank that they must have; undefined for the first one's.
  static OnLayer on_layer(const PartBuild& build, const std::vector<Expert>& experts, at::Tensor like = {}) {
    OnLayer all;
    for (const auto& expert : experts) {
      const auto lora = expert.part(build, "lora_A.weight");
      if (!lora)
        throw ConfigError("[arrow] the adapter in " + expert.folder + " is not on \"" + build.path +
                          "\": Arrow's adapters must be on all layers that the router is on; name those "
                          "in its \"target_modules\"");
      if (!like.defined()) like = lora->A;
      if (lora->A.size(0) != like.size(0))
        throw ConfigError("[arrow] the adapter in " + expert.folder + " has the rank " +
                          std::to_string(lora->A.size(0)) + " on \"" + build.path +
                          "\", and the first one has " + std::to_string(like.size(0)) +
                          ": Arrow's adapters must have the same rank");
      all.a.push_back(lora->A.detach());
      all.b.push_back(lora->B.detach());
      all.scales.push_back(lora->scaling());
    }
    return all;
  }

  static at::Tensor mean_of(const std::vector<at::Tensor>& tensors) {
    return at::stack(tensors).to(at::kFloat).mean(0);
  }

  /// What each token takes of each adapter, [..., experts]; of all but the largest nothing.
  at::Tensor chosen(const at::Tensor& x) const {
    const auto alike = at::linear(x, directions_).abs();
    const auto largest = std::get<1>(alike.topk(top_k_, -1));
    const auto left_out = at::ones_like(alike, at::kBool).scatter(-1, largest, false);
    return at::softmax(alike.masked_fill(left_out, -std::numeric_limits<double>::infinity()) / temperature_,
                       -1);
  }

  int64_t top_k_;
  at::Tensor all_A_, all_B_, directions_, shares_, temperature_;
};

}  // namespace

Field arrow_field() {
  return object_field(kFieldName, {{"top_k", 3},
                                   {"router_temperature", 1.0},
                                   {"use_gks", false},
                                   {"task_adapter_names", nullptr, {}, Field::Rule::any},
                                   {"gks_adapter_names", nullptr, {}, Field::Rule::any},
                                   {"rng_seed", nullptr, {}, Field::Rule::any}});
}

bool is_arrow(const AdapterConfig& config) {
  return config.peft_type() == "LORA" && config.is_object(kFieldName);
}

void check_arrow(const AdapterConfig& config) {
  if (!is_arrow(config)) return;
  const auto settings = settings_of(config);
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw ConfigError("[arrow] \"arrow_config\": " + what);
  };
  for (const char* field : {"task_adapter_names", "gks_adapter_names"}) {
    const auto& names = settings[field];
    const auto is_text = [](const auto& each) { return each.is_string(); };
    demand(names.is_null() || (names.is_array() && std::all_of(names.begin(), names.end(), is_text)),
           "\"" + std::string(field) + "\" must be a list of folders of LoRA adapters, got " + names.dump());
  }
  const auto tasks = folders_in(settings, "task_adapter_names").size();
  const auto general = folders_in(settings, "gks_adapter_names").size();
  demand(tasks > 0, "\"task_adapter_names\" must name the folders of the LoRA adapters to choose among");
  const auto& top_k = settings["top_k"];
  demand(top_k.is_number_integer() && top_k > 0, "\"top_k\" must be at least 1, got " + top_k.dump());
  demand(top_k <= tasks,
         "\"top_k\" is " + top_k.dump() + ", and there are " + std::to_string(tasks) + " adapters");
  const auto& temperature = settings["router_temperature"];
  demand(temperature.is_number() && temperature > 0,
         "\"router_temperature\" must be above 0, got " + temperature.dump());
  demand(general == 0 || settings["use_gks"] == true,
         "\"gks_adapter_names\" has no effect without \"use_gks\"");
  demand(general > 0 || settings["use_gks"] != true,
         "\"use_gks\" needs \"gks_adapter_names\", the folders of general LoRA adapters");
  demand(settings["rng_seed"].is_null() || settings["rng_seed"].is_number_integer(),
         "\"rng_seed\" must be a whole number, got " + settings["rng_seed"].dump());
  for (const char* field : {"lora_bias", "use_rslora", "rank_pattern", "alpha_pattern"})
    if (config.has(field))
      throw ConfigError(
          "[arrow] \"" + std::string(field) +
          "\" has no effect on a router, which has no weights of its own at work: leave it out");
}

AdapterConfig with_folders(const AdapterConfig& config, const fs::path& path) {
  if (!is_arrow(config)) return config;
  auto settings = nlohmann::ordered_json::parse(config.text(kFieldName));
  // An adapter's file lies in a folder of its own, beside which PEFT saves the others; any other file of
  // that kind is among them.
  const auto file = fs::absolute(path).lexically_normal();
  const auto place = file.parent_path();
  const auto beside = file.filename() == "adapter_config.json" ? place.parent_path() : place;
  for (const char* field : {"task_adapter_names", "gks_adapter_names"}) {
    if (!settings.contains(field) || !settings[field].is_array()) continue;
    for (auto& name : settings[field])
      for (const auto& from : {beside, fs::current_path()})
        if (const auto folder = from / name.get<std::string>(); fs::exists(folder / "adapter_config.json")) {
          name = folder.lexically_normal().string();
          break;
        }
  }
  return config.with(kFieldName, settings.dump());
}

AdapterConfig with_layers_of_experts(const AdapterConfig& config) {
  if (!is_arrow(config) || config.has("target_modules")) return config;
  const auto first = folders_in(settings_of(config), "task_adapter_names").front();
  const auto expert = plain_lora(first, "Arrow");
  const auto names = short_names(layers_in(first));
  if (names.empty())
    throw ConfigError("[arrow] the adapter in " + first + " is on no linear layer: Arrow is for those");
  return config.with("target_modules", names).with("r", expert.text("r"));
}

std::shared_ptr<Shared> arrow_experts(const AdapterConfig& config) {
  return is_arrow(config) ? std::make_shared<Experts>(config) : nullptr;
}

std::shared_ptr<Part> arrow_part(const PartBuild& build) { return std::make_shared<ArrowPart>(build); }

}  // namespace graft::adapters
