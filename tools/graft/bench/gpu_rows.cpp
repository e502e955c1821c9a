#include "bench/gpu_rows.h"

namespace graft::cli::bench {
namespace {

struct Sizes {
  int64_t hidden, intermediate, layers, heads, kv_heads;
  bool tied;
};
constexpr Sizes k1B{2048, 8192, 16, 32, 8, true}, k8B{4096, 14336, 32, 32, 8, false},
    kTiny{64, 128, 2, 4, 2, true};

/// Llama 3's shapes; nothing ends a continuation.
ordered_json config_of(const Sizes& sizes, int64_t vocabulary) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", vocabulary},
          {"hidden_size", sizes.hidden},
          {"intermediate_size", sizes.intermediate},
          {"num_hidden_layers", sizes.layers},
          {"num_attention_heads", sizes.heads},
          {"num_key_value_heads", sizes.kv_heads},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", sizes.tied},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

class GpuRows {
 public:
  explicit GpuRows(bool tiny) : tiny_(tiny) {}

  // The goals are the design's for an H200, in what torch.compile took there.
  std::vector<Row> all() {
    forward("1b-forward-1x128", k1B, "float16", 1, 128, 1.2 / 1.67);
    forward("1b-forward-8x128", k1B, "bfloat16", 8, 128, 4.3 / 4.79);
    forward("8b-forward-1x128", k8B, "float16", 1, 128, 5.2 / 6.29);
    forward("8b-forward-4x128", k8B, "bfloat16", 4, 128, 13.5 / 16.2);
    uses();
    step();
    decode("1b-decode-1", 1, 359.0 / 1200);
    decode("1b-decode-32", 32, 8578.0 / 20000);
    return std::move(rows_);
  }

 private:
  Row& add(const std::string& name, const std::string& work, const Sizes& sizes, const std::string& dtype,
           int64_t batch, int64_t length) {
    const int64_t vocabulary = tiny_ ? 64 : 128256;
    const auto ids = whole_numbers(
        tiny_ ? std::vector<int64_t>{std::min<int64_t>(batch, 4), 8} : std::vector<int64_t>{batch, length},
        vocabulary);
    return rows_.emplace_back(Row{.name = name,
                                  .work = work,
                                  .config = config_of(tiny_ ? kTiny : sizes, vocabulary),
                                  .inputs = {{"input_ids", ids}},
                                  .tolerance = loose_half(),
                                  .goals = {},
                                  .place = {.device = "cuda", .dtype = dtype},
                                  .modes = true});
  }

  void forward(const std::string& name, const Sizes& sizes, const std::string& dtype, int64_t batch,
               int64_t length, double goal) {
    auto& row = add(name, "forward", sizes, dtype, batch, length);
    row.goals = {.steady = 0.5, .cold = 0.1, .reduce_overhead = goal};
    row.alone = &sizes == &k8B;
  }

  /// Three adapters of rank 16 on all linear layers.
  static ordered_json lora() {
    return {{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"r", 16},
            {"lora_alpha", 32},
            {"target_modules", "all-linear"}};
  }

  void uses() {
    struct Use {
      const char *name, *state;
      int64_t adapters;
      double goal;
    };
    constexpr Use kUses[] = {{"1b-use-base", "base", 1, 0},
                             {"1b-use-one", "one", 1, 1.08},
                             {"1b-use-unused", "unused", 3, 1.02},
                             {"1b-use-disabled", "disabled", 3, 1.02},
                             {"1b-use-switched", "switched", 3, 1.08},
                             {"1b-use-mixed", "mixed", 3, 1.15}};
    for (const auto& use : kUses) {
      auto& row = add(use.name, "forward", k1B, "bfloat16", 8, 128);
      row.adapters = {.config = lora(), .count = use.adapters, .state = use.state};
      if (use.goal > 0) row.over = kUses[0].name, row.over_goal = use.goal;
    }
  }

  void step() {
    auto& row = add("1b-step", "step", k1B, "bfloat16", 4, 512);
    row.inputs["labels"] = row.inputs["input_ids"];
    row.adapters.config = lora();
    row.goals = {.memory = 6 / 8.19, .reduce_overhead = 24 / 32.0};
  }

  void decode(const std::string& name, int64_t batch, double goal) {
    auto& row = add(name, "generate", k1B, "bfloat16", batch, 64);
    row.new_tokens = tiny_ ? 4 : 128;
    row.goals = {.reduce_overhead = goal};
  }

  bool tiny_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<Row> gpu_rows(bool tiny) { return GpuRows(tiny).all(); }

}  // namespace graft::cli::bench
