#include "bench/adapter_rows.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::cli::bench {
namespace {

/// One method and its configuration: PEFT's names and values, read by both sides. Where a method has a rank
/// it is 8 and it sits on all linear layers, so that the methods do alike work; else PEFT's defaults, but for
/// sizes that must divide a layer's.
struct Recipe {
  const char* name;
  const char* config;
  bool peft_gradients_right = true;
  int64_t tasks = 0;  ///< how many the rows of a call are of, where the method asks for that
};

constexpr const char* kLora = R"({"peft_type": "LORA", "r": 8, "target_modules": "all-linear"})";

constexpr Recipe kRecipes[] = {
    {"lora", kLora},
    {"dora", R"({"peft_type": "LORA", "use_dora": true, "r": 8, "target_modules": "all-linear"})"},
    {"adalora", R"({"peft_type": "ADALORA", "init_r": 12, "target_r": 8, "total_step": 100,
                    "target_modules": "all-linear"})"},
    {"loha", R"({"peft_type": "LOHA", "r": 8, "target_modules": "all-linear"})"},
    {"lokr", R"({"peft_type": "LOKR", "r": 8, "target_modules": "all-linear"})"},
    {"ia3", R"({"peft_type": "IA3"})"},
    {"ln_tuning", R"({"peft_type": "LN_TUNING"})"},
    {"oft", R"({"peft_type": "OFT", "oft_block_size": 32, "target_modules": "all-linear"})"},
    // Not PEFT's blocks of 4: torch.compile took 13 minutes for one layer of those.
    {"boft", R"({"peft_type": "BOFT", "boft_block_size": 32, "target_modules": "all-linear"})"},
    {"hra", R"({"peft_type": "HRA", "r": 8, "target_modules": "all-linear"})"},
    {"vera", R"({"peft_type": "VERA", "r": 64, "target_modules": "all-linear"})"},
    {"vblora", R"({"peft_type": "VBLORA", "r": 8, "vector_length": 64, "target_modules": "all-linear"})"},
    {"miss", R"({"peft_type": "MISS", "r": 8, "target_modules": "all-linear"})"},
    {"fourierft", R"({"peft_type": "FOURIERFT", "n_frequency": 1000, "target_modules": "all-linear"})"},
    {"randlora", R"({"peft_type": "RANDLORA", "r": 32, "target_modules": "all-linear"})"},
    {"shira", R"({"peft_type": "SHIRA", "r": 8, "target_modules": "all-linear"})"},
    {"road", R"({"peft_type": "ROAD", "target_modules": "all-linear"})"},
    // PEFT 0.21's own backward of C3A fails torch's gradcheck.
    {"c3a", R"({"peft_type": "C3A", "block_size": 64, "target_modules": "all-linear"})", false},
    {"hira", R"({"peft_type": "HIRA", "r": 8, "target_modules": "all-linear"})"},
    {"delora", R"({"peft_type": "DELORA", "r": 8, "target_modules": "all-linear"})"},
    {"beft", R"({"peft_type": "BEFT", "target_modules": "all-linear"})"},
    {"gralora", R"({"peft_type": "GRALORA", "r": 8, "target_modules": "all-linear"})"},
    {"deft", R"({"peft_type": "DEFT", "r": 8, "target_modules": "all-linear"})"},
    {"pvera", R"({"peft_type": "PVERA", "r": 64, "target_modules": "all-linear"})"},
    {"glora", R"({"peft_type": "GLORA", "r": 8, "target_modules": "all-linear"})"},
    {"waveft", R"({"peft_type": "WAVEFT", "n_frequency": 1000, "target_modules": "all-linear"})"},
    {"supertuning", R"({"peft_type": "SUPERTUNING", "target_modules": "all-linear"})"},
    {"peanut", R"({"peft_type": "PEANUT", "r": 8, "target_modules": "all-linear"})"},
    {"lily", R"({"peft_type": "LILY", "r": 8, "stride_A": 2, "target_modules": "all-linear"})"},
    {"tinylora", R"({"peft_type": "TINYLORA", "r": 2, "target_modules": "all-linear"})"},
    {"psoft", R"({"peft_type": "PSOFT", "r": 32, "target_modules": "all-linear"})"},
    {"unilora", R"({"peft_type": "UNILORA", "r": 8, "target_modules": "all-linear"})"},
    {"osf", R"({"peft_type": "OSF", "target_modules": "all-linear"})"},
    {"frod", R"({"peft_type": "FROD", "sparse_rate": 0.01, "target_modules": "all-linear"})"},
    {"adamss", R"({"peft_type": "ADAMSS", "r": 32, "subspace_rank": 4, "target_modules": "all-linear"})"},
    {"tokens", R"({"peft_type": "TRAINABLE_TOKENS", "token_indices": [1, 2, 3, 5, 8, 13, 21, 34, 55]})"},
    {"poly",
     R"({"peft_type": "POLY", "r": 8, "n_tasks": 4, "target_modules": ["q_proj", "v_proj", "down_proj"]})",
     true, 4},
    {"adaption", R"({"peft_type": "ADAPTION_PROMPT", "adapter_len": 8, "adapter_layers": 1})"},
    {"prompt", R"({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 8})"},
    {"prefix", R"({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 8})"},
    {"p_tuning", R"({"peft_type": "P_TUNING", "num_virtual_tokens": 8})"},
    {"multitask", R"({"peft_type": "MULTITASK_PROMPT_TUNING", "num_virtual_tokens": 8, "num_tasks": 4})",
     true, 4},
    {"cpt", R"({"peft_type": "CPT", "cpt_token_ids": [5, 6, 7, 8, 9, 10, 11, 12],
                "cpt_mask": [1, 1, 1, 1, 1, 1, 1, 1], "cpt_tokens_type_mask": [1, 1, 2, 2, 3, 3, 4, 4]})"},
    {"cartridge", R"({"peft_type": "CARTRIDGE", "num_virtual_tokens": 8})"},
};

ordered_json config_of(const char* text) {
  auto config = ordered_json::parse(text);
  config["task_type"] = "CAUSAL_LM";
  return config;
}

}  // namespace

/// The model of all rows; the tiny one keeps what the recipes need: sizes that 64 divides.
Row on_small_llama(bool tiny, const std::string& name, const std::string& work, int64_t batch) {
  const int64_t vocabulary = tiny ? 64 : 8192, length = tiny ? 8 : 64;
  const auto ids = whole_numbers({batch, length}, vocabulary);
  Row row{.name = name,
          .work = work,
          .config = {{"model_type", "llama"},
                     {"architectures", {"LlamaForCausalLM"}},
                     {"vocab_size", vocabulary},
                     {"hidden_size", tiny ? 64 : 448},
                     {"intermediate_size", tiny ? 128 : 1216},
                     {"num_hidden_layers", tiny ? 1 : 6},
                     {"num_attention_heads", tiny ? 2 : 7},
                     {"num_key_value_heads", tiny ? 2 : 7},
                     {"max_position_embeddings", 256}},
          .inputs = {{"input_ids", ids}},
          .tolerance = loose_single(),
          .goals = {}};
  if (work == "backward") row.inputs["labels"] = ids;
  return row;
}

ordered_json recipe_of(const std::string& method) {
  const auto* found = std::find_if(std::begin(kRecipes), std::end(kRecipes),
                                   [&](const Recipe& recipe) { return recipe.name == method; });
  if (found == std::end(kRecipes)) throw UsageError("[bench] there is no recipe for " + method);
  return config_of(found->config);
}

namespace {

void append_methods(bool tiny, std::vector<Row>& rows) {
  for (const auto& recipe : kRecipes)
    for (const char* work : {"forward", "backward"}) {
      const bool forward = std::string(work) == "forward";
      auto row = on_small_llama(tiny, std::string(recipe.name) + (forward ? "-forward" : "-fwd+bwd"), work);
      row.adapters = {.config = config_of(recipe.config),
                      .peft_gradients_right = recipe.peft_gradients_right};
      if (recipe.tasks > 0) row.inputs["task_ids"] = whole_numbers({4}, recipe.tasks);
      row.goals = {.steady = forward ? 0.7 : 0.8, .cold = 1.0 / 50};
      rows.push_back(row);
    }
}

void append_uses(bool tiny, std::vector<Row>& rows) {
  struct Use {
    const char *name, *state;
    int64_t adapters, batch;
    const char* over;
    double goal;
  };
  // The design's goals; for switching, what one adapter may cost.
  constexpr Use kUses[] = {{"use-base", "base", 1, 4, "", 0},
                           {"use-one", "one", 1, 4, "use-base", 1.08},
                           {"use-unused", "unused", 3, 4, "use-base", 1.02},
                           {"use-disabled", "disabled", 3, 4, "use-base", 1.02},
                           {"use-switched", "switched", 3, 4, "use-base", 1.08},
                           {"use-mixed", "mixed", 3, 4, "use-base", 1.15},
                           {"use-base8", "base", 1, 8, "", 0},
                           {"use-mixed8", "mixed", 8, 8, "use-base8", 1.15}};
  for (const auto& use : kUses) {
    auto row = on_small_llama(tiny, use.name, "forward", use.batch);
    row.adapters = {.config = config_of(kLora), .count = use.adapters, .state = use.state};
    row.over = use.over, row.over_goal = use.goal;
    rows.push_back(row);
  }
}

void append_loads(bool tiny, std::vector<Row>& rows) {
  for (const int64_t number : {2, 200}) {
    auto row = on_small_llama(tiny, number == 2 ? "load-2nd" : "load-200th", "load");
    row.adapters = {.config = config_of(kLora), .count = 3, .loaded = number - 1};
    if (number != 2) row.over = "load-2nd", row.over_goal = 1.1;
    rows.push_back(row);
  }
}

}  // namespace

std::vector<Row> adapter_rows(bool tiny) {
  std::vector<Row> rows;
  append_methods(tiny, rows);
  append_uses(tiny, rows);
  append_loads(tiny, rows);
  return rows;
}

}  // namespace graft::cli::bench
