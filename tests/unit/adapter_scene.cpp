#include "unit/adapter_scene.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace graft::testing_tools {
namespace {

using nlohmann::json;

constexpr int kVocabulary = 37;
constexpr int64_t kTokens = 5;
enum Model { llama, gpt2, opt, bert, models };

/// Layers by model; square ones (as many outputs as inputs, or three times as many) suit every block size.
struct Layers {
  std::vector<std::string> square, all, norms;
};
const Layers& layers_of(int model) {
  static const Layers table[models] = {
      {{"q_proj"}, {"q_proj", "v_proj", "down_proj"}, {"input_layernorm", "norm"}},
      {{"c_attn"}, {"c_attn", "mlp.c_proj"}, {"ln_1", "ln_f"}},
      {{"q_proj"}, {"k_proj", "out_proj", "fc1"}, {"final_layer_norm"}},
      {{"query"}, {"query", "intermediate.dense"}, {"LayerNorm"}}};
  return table[model];
}

struct Kind {
  const char* type;
  bool conv1d;  ///< whether it goes on GPT-2's layers
  bool prompt;
  void (*fill)(json& config, const Pick& pick, const Scene& scene);
};

void square_only(json& config, const Scene& scene) {
  config["target_modules"] = layers_of(scene.model).square;
}

const std::vector<Kind>& kinds() {
  // LoRA first: what shrinks ends there.
  static const std::vector<Kind> table{
      {"LORA", true, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["r"] = pick.rank;
         config["lora_alpha"] = pick.rank + 3;
         config["use_rslora"] = (pick.options & 1) != 0;
         config["use_dora"] = (pick.options & 2) != 0;
         if (pick.options & 4) config["bias"] = "lora_only";
         if (pick.options & 8 && scene.model == llama) config["modules_to_save"] = {"lm_head"};
       }},
      {"ADALORA", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["init_r"] = pick.rank + 1;
         config["target_r"] = pick.rank;
         config["total_step"] = 10;
       }},
      {"BOFT", false, false,
       [](json& config, const Pick&, const Scene& scene) {
         config["boft_block_size"] = 4;
         square_only(config, scene);
       }},
      {"C3A", false, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["block_size"] = pick.options & 1 ? 4 : 2;
         config["init_weights"] = "gaussian";
         square_only(config, scene);
       }},
      {"FOURIERFT", true, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["n_frequency"] = 2 * pick.rank;
         config["scaling"] = 10;
         square_only(config, scene);
       }},
      {"HIRA", true, false, [](json& config, const Pick& pick, const Scene&) { config["r"] = pick.rank; }},
      {"HRA", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = 2 * pick.rank;
         config["apply_GS"] = (pick.options & 1) != 0;
       }},
      {"IA3", true, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         const auto& names = layers_of(scene.model).all;
         config["target_modules"] = names;
         config["feedforward_modules"] = pick.options & 1 ? json{names.back()} : json::array();
       }},
      {"LN_TUNING", true, false,
       [](json& config, const Pick&, const Scene& scene) {
         config["target_modules"] = layers_of(scene.model).norms;
       }},
      {"LOHA", false, false, [](json& config, const Pick& pick, const Scene&) { config["r"] = pick.rank; }},
      {"LOKR", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["decompose_both"] = (pick.options & 1) != 0;
       }},
      {"MISS", false, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["r"] = pick.options & 1 ? 4 : 2;
         if (pick.options & 2) config["init_weights"] = "bat";
         square_only(config, scene);
       }},
      {"OFT", false, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["oft_block_size"] = 4;
         config["block_share"] = (pick.options & 1) != 0;
         config["use_cayley_neumann"] = (pick.options & 2) != 0;
         square_only(config, scene);
       }},
      {"RANDLORA", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["randlora_alpha"] = 20;
         config["sparse"] = (pick.options & 1) != 0;
       }},
      {"ROAD", false, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["variant"] = "road_" + std::to_string(1 << (pick.options % 3));
         config["group_size"] = 4;
         square_only(config, scene);
       }},
      {"SHIRA", false, false,
       [](json& config, const Pick& pick, const Scene&) { config["r"] = 1 + pick.rank % 2; }},
      {"TRAINABLE_TOKENS", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config.erase("target_modules");
         config["token_indices"] = pick.options & 1 ? json{5, 3, 11} : json{4, 8};
       }},
      {"VBLORA", true, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["r"] = pick.rank;
         config["num_vectors"] = 9;
         config["vector_length"] = 4;
         square_only(config, scene);
       }},
      {"VERA", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["d_initial"] = 0.5;
       }},
      {"DELORA", false, false, [](json& config, const Pick& pick, const Scene&) { config["r"] = pick.rank; }},
      {"GRALORA", true, false,
       [](json& config, const Pick& pick, const Scene& scene) {
         config["gralora_k"] = 2;
         config["r"] = 2 * pick.rank;
         config["hybrid_r"] = pick.options & 1;
         square_only(config, scene);
       }},
      {"DEFT", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["decomposition_method"] = pick.options & 1 ? "qr" : "relu";
         config["para"] = (pick.options & 2) != 0;
       }},
      {"PVERA", true, false, [](json& config, const Pick& pick, const Scene&) { config["r"] = pick.rank; }},
      {"GLORA", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         static const char* kinds[] = {"lora", "vector", "constant", "none"};
         config["r"] = pick.rank;
         config["config_A_B"] = kinds[pick.options % 4];
         config["config_D_E"] = "vector";
       }},
      {"WAVEFT", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["n_frequency"] = 2 * pick.rank;
         config["wavelet_family"] = pick.options & 1 ? "db2" : "db1";
       }},
      {"SUPERTUNING", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["sparsity"] = 0.8;
         if (pick.options & 1) config["r"] = pick.rank;
       }},
      {"PEANUT", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["depth"] = pick.options % 3;
       }},
      // Not Lily, whose rows depend on others with the same adapter, and not BEFT, which Llama's
      // layers have no biases to merge with.
      {"TINYLORA", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["u"] = pick.rank;
         config["weight_tying"] = pick.options & 1 ? 0.5 : 0.0;
       }},
      {"PSOFT", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["psoft_orth"] = (pick.options & 1) == 0;
         config["use_cayley_neumann"] = (pick.options & 2) != 0;
       }},
      {"UNILORA", true, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = pick.rank;
         config["theta_d_length"] = 30;
       }},
      {"OSF", false, false, [](json&, const Pick&, const Scene&) {}},
      {"FROD", true, false, [](json& config, const Pick&, const Scene&) { config["sparse_rate"] = 0.1; }},
      {"ADAMSS", false, false,
       [](json& config, const Pick& pick, const Scene&) {
         config["r"] = 6;
         config["num_subspaces"] = 1 + pick.options % 2;
         config["subspace_rank"] = 2;
       }},
      {"PROMPT_TUNING", true, true, [](json&, const Pick&, const Scene&) {}},
      {"PREFIX_TUNING", true, true, [](json&, const Pick&, const Scene&) {}},
      {"P_TUNING", true, true, [](json&, const Pick&, const Scene&) {}},
      {"CARTRIDGE", true, true,
       [](json& config, const Pick& pick, const Scene&) { config["num_frozen_tokens"] = pick.options % 2; }},
  };
  return table;
}

/// Those that suit the model.
const Kind& kind_of(const Scene& scene, const Pick& pick) {
  std::vector<const Kind*> suited;
  for (const auto& kind : kinds())
    if (scene.model != gpt2 || kind.conv1d) suited.push_back(&kind);
  // Prompt methods are the last ones: a number that is below all others' count never names them.
  return *suited[static_cast<size_t>(pick.method) % suited.size()];
}

int most_methods(bool on_layers) {
  int all = 0, with_conv1d = 0;
  for (const auto& kind : kinds()) {
    if (on_layers && kind.prompt) continue;
    ++all;
    with_conv1d += kind.conv1d;
  }
  return on_layers ? with_conv1d : all;
}

void add_noise(const at::Tensor& tensor, double scale) {
  const at::NoGradGuard no_grad;
  at::Tensor changed = tensor;
  changed.add_(at::randn(tensor.sizes()) * scale);
}

/// In [low, high), whatever size rapidcheck has got to: the first scenes are as varied as the last.
rc::Gen<int> between(int low, int high) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high));
}

}  // namespace

std::string Scene::model_json() const {
  const int width = heads * head_size;
  json config;
  if (model == gpt2)
    config = {{"model_type", "gpt2"},
              {"n_embd", width},
              {"n_layer", layers},
              {"n_head", heads},
              {"n_inner", inner},
              {"n_positions", 16},
              {"tie_word_embeddings", seed % 2 == 0}};
  else
    config = {{"hidden_size", width},
              {"num_hidden_layers", layers},
              {"num_attention_heads", heads},
              {"max_position_embeddings", 16}};
  config["vocab_size"] = kVocabulary;
  if (model == llama) {
    config.update({{"model_type", "llama"}, {"intermediate_size", inner}, {"num_key_value_heads", 1}});
    config["tie_word_embeddings"] = false;
  } else if (model == opt) {
    config.update({{"model_type", "opt"}, {"ffn_dim", inner}, {"word_embed_proj_dim", width}});
    config["tie_word_embeddings"] = seed % 2 == 0;
    config["pad_token_id"] = 1;
  } else if (model == bert) {
    config.update({{"model_type", "bert"}, {"intermediate_size", inner}, {"num_labels", 3}});
  }
  static const char* classes[models] = {"LlamaForCausalLM", "GPT2LMHeadModel", "OPTForCausalLM",
                                        "BertForSequenceClassification"};
  config["architectures"] = {classes[model]};
  return config.dump();
}

bool Scene::is_prompt(size_t i) const { return kind_of(*this, adapters[i]).prompt; }
bool Scene::is_lora(size_t i) const { return std::string("LORA") == kind_of(*this, adapters[i]).type; }

std::string Scene::adapter_json(size_t i) const {
  const auto& kind = kind_of(*this, adapters[i]);
  json config{{"peft_type", kind.type}};
  if (kind.prompt) {
    config["num_virtual_tokens"] = 1 + adapters[i].rank;
    config["task_type"] = model == bert ? "SEQ_CLS" : "CAUSAL_LM";
  } else {
    config["target_modules"] = adapters[i].options & 16 ? layers_of(model).all : layers_of(model).square;
  }
  kind.fill(config, adapters[i], *this);
  return config.dump();
}

std::ostream& operator<<(std::ostream& out, const Scene& scene) {
  out << "model " << scene.model_json() << (scene.padded ? ", padded rows" : "") << ", seed " << scene.seed;
  for (size_t i = 0; i < scene.adapters.size(); ++i) out << "\n  a" << i << ": " << scene.adapter_json(i);
  return out;
}

rc::Gen<Scene> scenes(size_t adapters, bool on_layers) {
  using rc::gen::set;
  const auto pick =
      rc::gen::build<Pick>(set(&Pick::method, between(0, most_methods(on_layers))),
                           set(&Pick::rank, between(1, 5)), set(&Pick::options, between(0, 32)));
  const auto head_size = rc::gen::map(between(1, 4), [](int fours) { return 4 * fours; });
  return rc::gen::build<Scene>(set(&Scene::model, between(0, models)), set(&Scene::heads, between(1, 4)),
                               set(&Scene::head_size, head_size), set(&Scene::inner, between(5, 24)),
                               set(&Scene::layers, between(1, 3)),
                               set(&Scene::padded, rc::gen::arbitrary<bool>()),
                               set(&Scene::seed, between(0, 1000)),
                               set(&Scene::adapters, rc::gen::container<std::vector<Pick>>(adapters, pick)));
}

std::shared_ptr<PreTrainedModel> base_of(const Scene& scene) {
  at::manual_seed(static_cast<uint64_t>(scene.seed));
  auto model = AutoModelForAny::from_config(Config::from_json(scene.model_json()));
  for (const auto& [path, parameter] : model->unique_parameters()) add_noise(parameter, 0.1);
  model->eval();
  return model;
}

std::shared_ptr<PeftModel> peft_of(const Scene& scene, double noise) {
  auto peft = std::make_shared<PeftModel>(base_of(scene));
  for (size_t i = 0; i < scene.adapters.size(); ++i) {
    const auto name = "a" + std::to_string(i);
    peft->add_adapter(name, AdapterConfig::from_json(scene.adapter_json(i)));
    for (const auto& [key, tensor] : peft->trainable_tensors(name)) add_noise(tensor, noise);
  }
  peft->eval();
  return peft;
}

ModelInputs inputs_of(const Scene& scene, int64_t rows) {
  at::manual_seed(static_cast<uint64_t>(scene.seed) + 1);
  ModelInputs inputs{.input_ids = at::randint(3, kVocabulary, {rows, kTokens}, at::kLong)};
  // Tokens that TRAINABLE_TOKENS trains are there.
  inputs.input_ids.select(1, kTokens - 1).fill_(5);
  inputs.input_ids.select(1, kTokens - 2).fill_(4);
  if (!scene.padded) return inputs;
  inputs.attention_mask = at::ones({rows, kTokens}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) inputs.attention_mask[row].narrow(0, 0, row % kTokens).zero_();
  return inputs;
}

ModelInputs row_of(const ModelInputs& inputs, int64_t row) {
  ModelInputs one{.input_ids = inputs.input_ids.narrow(0, row, 1)};
  if (inputs.attention_mask.defined()) one.attention_mask = inputs.attention_mask.narrow(0, row, 1);
  return one;
}

NamedTensors tensors_in(const std::filesystem::path& file) {
  const auto opened = SafetensorsFile::open(file);
  NamedTensors tensors;
  for (const auto& name : opened->names()) tensors.emplace_back(name, opened->tensor(name).clone());
  return tensors;
}

at::Tensor result(PeftModel& model, const ModelInputs& inputs, const AdapterCall& call) {
  const at::NoGradGuard no_grad;
  return model.forward(inputs, call).logits;
}

std::string not_same(const at::Tensor& got, const at::Tensor& want) {
  return at::equal(got, want) ? "" : not_near(got, want, 0) + " (should be the same bit for bit)";
}

std::string not_near(const at::Tensor& got, const at::Tensor& want, double share) {
  if (got.sizes() != want.sizes()) return "another shape";
  const double apart = (got - want).abs().max().item<double>(), largest = want.abs().max().item<double>();
  if (apart <= share * largest) return "";
  std::ostringstream text;
  text << "apart by " << apart << " where the largest value is " << largest;
  return text.str();
}

std::string not_same(const NamedTensors& got, const NamedTensors& want) {
  if (got.size() != want.size()) return "another number of tensors";
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i].first != want[i].first) return got[i].first + " in place of " + want[i].first;
    if (auto why = not_same(got[i].second, want[i].second); !why.empty()) return want[i].first + ": " + why;
  }
  return "";
}

void check_law(int count, const rc::Gen<Scene>& scenes, const std::function<std::string(const Scene&)>& law) {
  auto params = rc::detail::configuration().testParams;
  params.maxSuccess = count;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(test->test_suite_name()) + "/" + test->name();
  const auto outcome = rc::detail::checkTestable(
      [&] {
        const auto scene = *scenes;
        if (const auto why = law(scene); !why.empty()) RC_FAIL(why);
      },
      metadata, params);
  if (outcome.is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(outcome, text);
  ADD_FAILURE() << text.str();
}

}  // namespace graft::testing_tools
