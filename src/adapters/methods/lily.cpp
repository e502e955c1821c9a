#include "adapters/methods/lily.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "adapters/added_weight.h"
#include "adapters/torch_init.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// Layers of one name and shape are a group: all share one B (that is, `num_B` of them), and each `stride_A`
/// that follow each other one A. PEFT's file has what is shared under the name of every layer.
class LilyHalves : public Shared {
 public:
  struct Pair {
    at::Tensor A = {}, B = {};  // [r, in], [num_B * r, out]
    bool first_of_A = false, first_of_B = false;
    std::string path = {};
  };

  LilyHalves(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers, TensorSource& source)
      : layers_(layers.begin(), layers.end()) {
    const int64_t r = positive(config, "r"), stride = positive(config, "stride_A"),
                  experts = positive(config, "num_B");
    check_fits_memory("lily_B", {r, experts});
    struct Group {
      std::string name;
      std::vector<int64_t> shape;
      std::vector<size_t> members;
    };
    std::vector<Group> groups;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& weight = layers[i]->weight;
      if (layers[i]->kind() != nn::LayerKind::linear) {
        pairs_.push_back({});  // refused when its part is built
        continue;
      }
      const auto name = matched(config, layers[i]->path());
      auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) {
        return each.name == name && weight.sizes() == each.shape;
      });
      if (group == groups.end()) {
        groups.push_back({name, weight.sizes().vec(), {}});
        group = std::prev(groups.end());
      }
      const size_t number = group->members.size();
      group->members.push_back(i);
      const size_t leader = number - number % static_cast<size_t>(stride);
      Pair pair{.first_of_A = leader == number, .first_of_B = number == 0, .path = layers[i]->path()};
      pair.A = half(source, pair.path, "A", {r, weight.size(1)},
                    pair.first_of_A ? at::Tensor() : pairs_[group->members[leader]].A, weight.device());
      pair.B = half(source, pair.path, "B", {experts * r, weight.size(0)},
                    pair.first_of_B ? at::Tensor() : pairs_[group->members[0]].B, weight.device());
      pairs_.push_back(pair);
    }
  }

  std::vector<Entry> entries() const override {
    std::vector<Entry> all;
    for (const auto& pair : pairs_) {
      if (pair.first_of_A) all.push_back({key(pair.path, "A"), pair.A, true});
      if (pair.first_of_B) all.push_back({key(pair.path, "B"), pair.B, true});
    }
    return all;
  }

  NamedTensors saved() const override {
    NamedTensors tensors;
    for (const auto& pair : pairs_) {
      tensors.emplace_back(key(pair.path, "A"), pair.A.detach().clone());
      tensors.emplace_back(key(pair.path, "B"), pair.B.detach().clone());
    }
    return tensors;
  }

  const Pair& of(const nn::WeightedLayer& layer) const {
    return pairs_[static_cast<size_t>(std::find(layers_.begin(), layers_.end(), &layer) - layers_.begin())];
  }

 private:
  static std::string key(const std::string& path, const std::string& which) {
    return "base_model.model." + path + ".lily_" + which + ".weight";
  }

  /// The longest of the names that end the path; a pattern is one name.
  static std::string matched(const AdapterConfig& config, const std::string& path) {
    const auto targets = config.modules("target_modules");
    if (targets.pattern()) return *targets.pattern();
    std::string found;
    for (const auto& name : targets.names())
      if (path.ends_with(name) && name.size() > found.size()) found = name;
    return found;
  }

  static at::Tensor half(TensorSource& source, const std::string& path, const std::string& which,
                         at::IntArrayRef shape, const at::Tensor& leader, at::Device device) {
    const auto given = source.take(key(path, which), shape);
    if (!leader.defined())
      return given.defined() ? given.to(device) : fresh_tensor(key(path, which), shape).to(device);
    if (given.defined() && !at::equal(given.to(device), leader))
      throw FormatError("[adapters] \"" + key(path, which) +
                        "\" is not what the layers before it have: Lily's layers share it");
    return leader;
  }

  std::vector<const nn::WeightedLayer*> layers_;
  std::vector<Pair> pairs_;
};

class LilyPart : public Part {
 public:
  explicit LilyPart(const PartBuild& build) : Part(build) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has Lily for torch.nn.Linear only");
    const auto& shared = dynamic_cast<const LilyHalves&>(*build.shared).of(build.layer);
    A_ = register_parameter("lily_A", shared.A, /*requires_grad=*/false);
    B_ = register_parameter("lily_B", shared.B, /*requires_grad=*/false);
    router_ = parameter(build, "lily_router.weight", {build.config.integer("num_B"), A_.size(0)});
    scaling_ = constant("scaling", at::scalar_tensor(build.config.number("scaling"), build.options()));
    if (build.fresh()) initialise(build.config.boolean("init_weights"), shared);
  }

  /// One B for the whole call, as the adapter's tokens want it on the average.
  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto hidden = at::linear(cast_to(gate.part(x), A_), A_);
    const auto wanted = gate.mean(at::softmax(at::linear(hidden, router_), -1));
    const auto each = B_.view({router_.size(0), -1});
    const auto B = wanted.dim() == 1
                       ? at::matmul(wanted.unsqueeze(0), each).view({A_.size(0), -1})
                       : at::matmul(wanted, each).view({wanted.size(0), A_.size(0), -1});  // one for each row
    return gate.add(next(x), at::matmul(hidden, B) * scaling_);
  }

  void merge(Weights&) const override {
    throw UsageError("[adapters] Lily on \"" + layer().path() +
                     "\" cannot be merged: its weights depend on the layer's input");
  }

  bool scale(double factor) override {
    scaling_.mul_(factor);
    return true;
  }

 private:
  /// PEFT makes both halves for every layer, and shares them afterwards: the draws are for all.
  void initialise(bool at_base, const LilyHalves::Pair& shared) {
    const at::NoGradGuard no_grad;
    const auto a = shared.first_of_A ? A_ : at::empty_like(A_);
    const auto b = shared.first_of_B ? B_ : at::empty_like(B_);
    for (const auto& weight : {a, b, router_}) as_torch_layer(weight);  // as they are constructed
    as_torch_layer(a);
    as_torch_layer(router_);
    if (at_base)
      b.zero_();
    else
      as_torch_layer(b);
  }

  at::Tensor A_, B_, router_, scaling_;
};

void check_lily(const AdapterConfig& config) {
  for (const char* field : {"r", "stride_A", "num_B"}) positive(config, field);
  if (config.integer("num_B") < 2)
    throw ConfigError("[adapters] \"num_B\" must be at least 2: the router chooses between them");
}

}  // namespace

Method lily_method() {
  return {.type = "LILY",
          .fields = {{"r", 32}, {"stride_A", 1}, {"num_B", 2}, {"scaling", 1.0}, {"init_weights", true}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<LilyPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_lily,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<LilyHalves>(config, layers, source);
          },
          .mixes_tokens = true,
          .data_fields = {"scaling", "init_weights"}};
}

}  // namespace graft::adapters
