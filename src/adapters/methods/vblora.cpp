#include "adapters/methods/vblora.h"

#include <ATen/ATen.h>

#include "adapters/added_weight.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

constexpr const char* kBankKey = "base_model.vblora_vector_bank";

/// `save_only_topk_weights`: the file has the chosen vectors' numbers and weights in place of the logits, and
/// can be used but not trained.
bool is_packed(const AdapterConfig& config, const TensorSource& source) {
  return config.boolean("save_only_topk_weights") && !source.fresh();
}

class VectorBank : public Shared {
 public:
  VectorBank(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers, TensorSource& source)
      : bound_(config.number("init_vector_bank_bound")), trainable_(!is_packed(config, source)) {
    const std::vector<int64_t> shape{positive(config, "num_vectors"), positive(config, "vector_length")};
    bank = source.take(kBankKey, shape);
    if (!bank.defined()) bank = fresh_tensor(kBankKey, shape);
    bank = bank.to(layers.front()->weight.device());
  }

  std::vector<Entry> entries() const override { return {{kBankKey, bank, trainable_}}; }

  void draw() {
    const at::NoGradGuard no_grad;
    bank.copy_(at::empty(bank.sizes(), at::kFloat).uniform_(-bound_, bound_));
  }

  at::Tensor bank;

 private:
  double bound_;
  bool trainable_;
};

at::ScalarType index_type(int64_t vectors) {
  if (vectors < 1 << 8) return at::kByte;
  if (vectors < 1 << 15) return at::kShort;
  return vectors < int64_t{1} << 31 ? at::kInt : at::kLong;
}

class VbloraPart : public AddedWeight {
 public:
  explicit VbloraPart(const PartBuild& build)
      : AddedWeight(build),
        r_(positive(build.config, "r")),
        topk_(build.config.integer("topk")),
        dropout_(build.config.number("vblora_dropout")),
        packs_(build.config.boolean("save_only_topk_weights")) {
    auto& shared = dynamic_cast<VectorBank&>(*build.shared);
    bank_ = register_parameter("bank", shared.bank, /*requires_grad=*/false);
    const int64_t length = bank_.size(1);
    for (const int64_t side : {build.in_features(), build.out_features()})
      if (side % length != 0)
        build.refuse("its " + std::to_string(side) + " features are not a multiple of \"vector_length\", " +
                     std::to_string(length));
    a_ = mixed(build, "vblora_logits_A", r_, build.in_features() / length);
    b_ = mixed(build, "vblora_logits_B", build.out_features() / length, r_);
    if (!build.fresh()) return;
    const at::NoGradGuard no_grad;
    shared.draw();  // PEFT draws the bank again for every layer and keeps the last
    for (const auto& mix : {a_, b_})
      mix.logits.copy_(
          at::empty(mix.logits.sizes(), at::kFloat).normal_(0, build.config.number("init_logits_std")));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    if (is_training() && !a_.logits.defined())
      throw UsageError(
          "[adapters] this VB-LoRA adapter was saved with \"save_only_topk_weights\": it can be used and "
          "merged, not trained");
    const auto in = nn::dropout(cast_to(gate.part(x), bank_), dropout_, is_training());
    return gate.add(next(x), at::linear(at::linear(in, A(bank_)), B(bank_)));
  }

  NamedTensors saved() const override {
    if (!packs_ || !a_.logits.defined()) return AddedWeight::saved();
    const at::NoGradGuard no_grad;
    NamedTensors tensors;
    for (const auto& [mix, key] : {std::pair{&a_, entries()[0].key}, {&b_, entries()[1].key}}) {
      const auto [top, indices] = mix->logits.topk(topk_, -1);
      tensors.emplace_back(key + "_topk_indices", indices.to(index_type(bank_.size(0))));
      // They sum to one: the last is not saved.
      tensors.emplace_back(key + "_topk_weights", at::softmax(top, -1).narrow(-1, 0, topk_ - 1).contiguous());
    }
    return tensors;
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto bank = widened(bank_);
    return at::matmul(B(bank), A(bank));
  }

 private:
  /// Of each piece of a matrix: logits over all vectors, or the choice itself.
  struct Mix {
    at::Tensor logits;            // [rows, columns, vectors]
    at::Tensor indices, weights;  // [rows, columns, k] and [rows, columns, k - 1]
  };

  Mix mixed(const PartBuild& build, const std::string& name, int64_t rows, int64_t columns) {
    if (!is_packed(build.config, build.source))
      return {.logits = parameter(build, name, {rows, columns, bank_.size(0)})};
    Mix mix{.indices = parameter(build, name + "_topk_indices", {rows, columns, topk_}, false),
            .weights = parameter(build, name + "_topk_weights", {rows, columns, topk_ - 1}, false)};
    if (at::logical_or(mix.indices.lt(0), mix.indices.ge(bank_.size(0))).any().item<bool>())
      throw FormatError("[adapters] \"" + build.key(name) +
                        "_topk_indices\" names vectors that the bank of " + std::to_string(bank_.size(0)) +
                        " does not have");
    return mix;
  }

  /// [rows, columns, vector_length]
  static at::Tensor pieces(const Mix& mix, const at::Tensor& bank, int64_t topk) {
    at::Tensor weights, indices;
    if (mix.logits.defined()) {
      std::tie(weights, indices) = cast_to(mix.logits, bank).topk(topk, -1);
      weights = at::softmax(weights, -1);
    } else {
      const auto known = cast_to(mix.weights, bank);
      weights = at::cat({known, 1 - known.sum(-1, /*keepdim=*/true)}, -1);
      indices = mix.indices.to(at::kLong);
    }
    return (weights.unsqueeze(-1) * at::embedding(bank, indices)).sum(-2);
  }
  at::Tensor A(const at::Tensor& bank) const { return pieces(a_, bank, topk_).flatten(1); }
  at::Tensor B(const at::Tensor& bank) const {
    return pieces(b_, bank, topk_).transpose(1, 2).reshape({-1, r_});
  }

  at::Tensor bank_;
  Mix a_, b_;
  int64_t r_, topk_;
  double dropout_;
  bool packs_;
};

void check_vblora(const AdapterConfig& config) {
  const auto topk = positive(config, "topk");
  if (topk > config.integer("num_vectors"))
    throw ConfigError("[adapters] \"topk\" is " + std::to_string(topk) + ", and the bank has only " +
                      std::to_string(config.integer("num_vectors")) + " vectors (\"num_vectors\")");
}

}  // namespace

Method vblora_method() {
  return {.type = "VBLORA",
          .fields = {{"r", 4},
                     {"num_vectors", 256},
                     {"vector_length", 256},
                     {"topk", 2},
                     {"save_only_topk_weights", false},
                     {"vblora_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "vblora_only"}},
                     {"init_vector_bank_bound", 0.02},
                     {"init_logits_std", 0.1}},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<VbloraPart>(build);
          },
          .default_targets = {{"llama", {"q_proj", "v_proj"}},
                              {"qwen2", {"q_proj", "v_proj"}},
                              {"qwen3", {"q_proj", "v_proj"}},
                              {"gemma", {"q_proj", "v_proj"}},
                              {"gemma2", {"q_proj", "v_proj"}},
                              {"gpt_neox", {"query_key_value"}},
                              {"bloom", {"query_key_value"}},
                              {"opt", {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}},
                              {"gpt2", {"c_attn"}},
                              {"bert", {"query", "value"}},
                              {"roberta", {"query", "value"}},
                              {"t5", {"q", "k", "v", "o", "wi", "wo"}}},
          .check = check_vblora,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<VectorBank>(config, layers, source);
          }};
}

}  // namespace graft::adapters
