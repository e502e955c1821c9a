// What the tests of adapters need of the library beyond `graft forward`.
//   adapter_life_driver fresh   MODEL config.json out.safetensors SEED          a new adapter's tensors
//   adapter_life_driver several MODEL in.safetensors out.safetensors ADAPTER... all of them active at once
//   adapter_life_driver train   MODEL in.safetensors out.safetensors ADAPTER BACKEND
//                          in training mode, with the seed 0: loss, gradients, the adapter's tensors after
//                          it and the base's buffers
//   adapter_life_driver resave  MODEL ADAPTER OUT                           loads it and saves it
//   adapter_life_driver count   MODEL ADAPTER...            for each, alone: its trainable parameters and all
//   adapter_life_driver configs                      prints {struct: its configuration, nothing being set}
//   adapter_life_driver config FILE...  for each file a line: "taken", or what is wrong with the
//   configuration
#include <ATen/ATen.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "graft/graft.h"
#include "graft/peft.h"

namespace {

graft::ModelInputs read(const std::string& path) {
  const auto file = graft::SafetensorsFile::open(path);
  const auto optional = [&](const char* name) {
    return file->contains(name) ? file->tensor(name) : at::Tensor();
  };
  return {.input_ids = optional("input_ids"),
          .attention_mask = optional("attention_mask"),
          .pixel_values = optional("pixel_values"),
          .labels = optional("labels"),
          .task_ids = optional("task_ids")};
}

void fresh(char** argv) {
  std::stringstream text;
  text << std::ifstream(argv[1]).rdbuf();
  const auto model = graft::AutoModelForAny::from_pretrained(argv[0]);
  at::manual_seed(std::stoull(argv[3]));
  const auto peft = graft::get_peft_model(model, graft::AdapterConfig::from_json(text.str()));
  graft::save_safetensors(argv[2], peft->state_dict("default"));
}

void several(int count, char** argv) {
  const at::NoGradGuard no_grad;
  graft::PeftModel peft(graft::AutoModelForAny::from_pretrained(argv[0]));
  for (int i = 3; i < count; ++i) peft.load_adapter(argv[i], std::to_string(i));
  peft.set_adapter(peft.adapter_names());
  const auto logits = peft.forward(read(argv[1])).logits;
  peft.merge_adapter();
  graft::save_safetensors(argv[2], {{"logits", logits}, {"merged", peft.forward(read(argv[1])).logits}});
}

void count(int adapters, char** argv) {
  const auto model = graft::AutoModelForAny::from_pretrained(argv[0]);
  for (int i = 1; i < adapters; ++i) {
    graft::PeftModel peft(model);
    peft.load_adapter(argv[i], "default", {.is_trainable = true});
    const auto found = peft.get_nb_trainable_parameters();
    std::cout << found.trainable << " " << found.all << "\n";
    peft.unload();
  }
}

void configs() {
  nlohmann::json all;
  const auto add = [&](const char* name, const graft::AdapterConfig& config) {
    all[name] = nlohmann::json::parse(config.dump());
  };
#define ADD(Config) add(#Config, graft::Config{})
  ADD(LoraConfig), ADD(LoHaConfig), ADD(LoKrConfig), ADD(IA3Config), ADD(LNTuningConfig), ADD(OFTConfig);
  ADD(BOFTConfig), ADD(HRAConfig), ADD(VeraConfig), ADD(VBLoRAConfig), ADD(MissConfig), ADD(FourierFTConfig);
  ADD(RandLoraConfig), ADD(ShiraConfig), ADD(RoadConfig), ADD(C3AConfig), ADD(HiraConfig);
  ADD(TrainableTokensConfig), ADD(DeloraConfig), ADD(BeftConfig), ADD(GraloraConfig), ADD(DeftConfig);
  ADD(PveraConfig), ADD(GloraConfig), ADD(WaveFTConfig), ADD(SupertuningConfig), ADD(PeanutConfig),
      ADD(FrodConfig), ADD(OSFConfig), ADD(UniLoraConfig), ADD(PsoftConfig), ADD(TinyLoraConfig),
      ADD(LilyConfig), ADD(PolyConfig), ADD(AdamssConfig);
  // What has no default must be given.
  add("XLoraConfig", graft::XLoraConfig{.adapters = {{"0", "a"}}});
  add("AdaLoraConfig", graft::AdaLoraConfig{.total_step = 10});
  add("PromptTuningConfig", graft::PromptTuningConfig{.num_virtual_tokens = 3});
  add("PrefixTuningConfig", graft::PrefixTuningConfig{.num_virtual_tokens = 3});
  add("PromptEncoderConfig", graft::PromptEncoderConfig{.num_virtual_tokens = 3});
  add("MultitaskPromptTuningConfig", graft::MultitaskPromptTuningConfig{.num_virtual_tokens = 3});
  add("CartridgeConfig", graft::CartridgeConfig{.num_virtual_tokens = 3});
  add("AdaptionPromptConfig", graft::AdaptionPromptConfig{.adapter_len = 3, .adapter_layers = 1});
  add("CPTConfig", graft::CPTConfig{.num_virtual_tokens = 2,
                                    .num_transformer_submodules = 1,
                                    .cpt_token_ids = {5, 6},
                                    .cpt_mask = {1, 1},
                                    .cpt_tokens_type_mask = {1, 1},
                                    .task_type = "CAUSAL_LM"});
  std::cout << all << "\n";
}

void read_configs(int count, char** argv) {
  for (int i = 0; i < count; ++i) try {
      graft::AdapterConfig::from_pretrained(argv[i]);
      std::cout << "taken\n";
    } catch (const graft::ConfigError& error) {
      std::cout << error.what() << "\n";
    }
}

void resave(char** argv) {
  graft::PeftModel peft(graft::AutoModelForAny::from_pretrained(argv[0]));
  peft.load_adapter(argv[1], "name.with weight");
  peft.save_adapter(argv[2], "name.with weight");
}

void train(char** argv) {
  const auto peft = std::make_shared<graft::PeftModel>(graft::AutoModelForAny::from_pretrained(argv[0]));
  peft->load_adapter(argv[3], "default", {.is_trainable = true});
  peft->train();
  const auto inputs = read(argv[1]);
  const std::string backend = argv[4];
  graft::CompileOptions options;
  options.backend = backend == "graft" ? graft::Backend::graft : graft::Backend::aot_eager;
  options.fullgraph = true;
  at::manual_seed(0);
  const auto out = backend == "none" ? peft->forward(inputs) : graft::compile(peft, options)(inputs);
  out.loss.backward();
  graft::NamedTensors results;
  results.emplace_back("loss", out.loss.detach());
  for (const auto& [key, tensor] : peft->state_dict("default")) results.emplace_back("after." + key, tensor);
  for (const auto& [key, tensor] : peft->trainable_tensors("default"))
    results.emplace_back("grad." + key, tensor.grad());
  for (const auto& item : peft->base_model()->named_buffers())
    if (item.key().find('@') == std::string::npos) results.emplace_back("base." + item.key(), item.value());
  graft::save_safetensors(argv[2], results);
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "fresh" && argc == 6) return fresh(argv + 2), 0;
  if (what == "several" && argc > 5) return several(argc - 2, argv + 2), 0;
  if (what == "resave" && argc == 5) return resave(argv + 2), 0;
  if (what == "config" && argc > 2) return read_configs(argc - 2, argv + 2), 0;
  if (what == "count" && argc > 3) return count(argc - 2, argv + 2), 0;
  if (what == "configs" && argc == 2) return configs(), 0;
  if (what == "train" && argc == 7) return train(argv + 2), 0;
  std::cerr << "adapter_life_driver: see the top of its source\n";
  return 2;
} catch (const std::exception& error) {
  std::cerr << "adapter_life_driver: " << error.what() << "\n";
  return 1;
}
