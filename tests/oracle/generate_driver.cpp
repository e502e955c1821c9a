// What the oracle tests need of generation beyond `graft generate`.
//   generate_driver scores MODEL in.safetensors out.safetensors PROMPT_LENGTH MAX_LENGTH
//       of the next token, for `logits` after `input_ids`, by MODEL's generation_config.json; `source` is
//       what was given to read
//   generate_driver prompts MODEL out.safetensors NEW_TOKENS in.safetensors...
//       one Decoder over several prompts; prints what was compiled
//   generate_driver batch MODEL out.safetensors requests.json [NAME=ADAPTER]...
//       one BatchGenerator; requests.json has "rows", "capacity", "buckets" and "requests", each with
//       "input_ids", "config" (fields of generation_config.json), "adapter" and "after", the step it comes
//       after
#include <torch/types.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "generation/scores.h"
#include "generation/settings.h"
#include "graft/graft.h"

namespace {

void scores(char** argv) {
  const auto config = graft::GenerationConfig::from_pretrained(argv[0]);
  const auto file = graft::SafetensorsFile::open(argv[1]);
  const graft::generation::Scores rules(config, {.prompt_length = std::stoll(argv[3]),
                                                 .max_length = std::stoll(argv[4]),
                                                 .source = file->tensor("source")});
  graft::save_safetensors(argv[2], {{"scores", rules(file->tensor("logits"), file->tensor("input_ids"))}});
}

std::string counted() {
  const auto counted = graft::counters();
  return "graphs " + std::to_string(counted.graphs) + " recompiles " + std::to_string(counted.recompiles) +
         " breaks " + std::to_string(counted.graph_breaks);
}

void prompts(int argc, char** argv) {
  graft::Decoder decoder(graft::AutoModelForAny::from_pretrained(argv[0]), {.fullgraph = true});
  const graft::GenerationConfig config{.max_new_tokens = std::stoll(argv[2]), .pad_token_id = 1};
  graft::NamedTensors results;
  for (int i = 3; i < argc; ++i) {
    const auto file = graft::SafetensorsFile::open(argv[i]);
    graft::ModelInputs prompt{.input_ids = file->tensor("input_ids")};
    if (file->contains("attention_mask")) prompt.attention_mask = file->tensor("attention_mask");
    results.emplace_back(std::to_string(i - 3), decoder.generate(prompt, config));
  }
  graft::save_safetensors(argv[1], results);
  std::cout << counted() << "\n";
}

std::unique_ptr<graft::BatchGenerator> batch_generator(const std::string& folder, int adapters, char** specs,
                                                       const graft::BatchOptions& options) {
  const auto model = graft::AutoModelForCausalLM::from_pretrained(folder);
  if (adapters == 0) return std::make_unique<graft::BatchGenerator>(model, options);
  const auto peft = std::make_shared<graft::PeftModel>(model);
  for (const auto& spec : std::vector<std::string>(specs, specs + adapters)) {
    const auto split = spec.find('=');
    peft->load_adapter(spec.substr(split + 1), spec.substr(0, split));
  }
  peft->eval();
  return std::make_unique<graft::BatchGenerator>(peft, options);
}

void batch(int argc, char** argv) {
  std::ifstream text(argv[2]);
  const auto plan = nlohmann::json::parse(text);
  const auto generator = batch_generator(argv[0], argc - 3, argv + 3,
                                         {.rows = plan.at("rows"),
                                          .capacity = plan.at("capacity"),
                                          .buckets = plan.at("buckets"),
                                          .compile = {.fullgraph = true}});
  generator->warm_up();
  const auto warm = counted();
  std::map<size_t, std::vector<int64_t>> made;
  const auto& requests = plan.at("requests");
  for (int64_t step = 0, given = 0; given < static_cast<int64_t>(requests.size()) || !generator->idle();
       ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto& request = requests[i];
      if (request.at("after") != step) continue;
      graft::GenerationConfig config;
      for (const auto& setting : graft::generation::settings())
        setting.read(config, request.at("config").value(setting.name, nlohmann::json()), "requests.json");
      made[i] = request.at("input_ids").get<std::vector<int64_t>>();
      generator->submit({.input_ids = made[i],
                         .config = config,
                         .adapter_name = request.value("adapter", "__base__"),
                         .on_token = [&made, i](const graft::BatchToken& told) {
                           made[i].push_back(told.token);
                           return true;
                         }});
      ++given;
    }
    generator->step();
  }
  graft::NamedTensors results;
  for (const auto& [i, ids] : made) results.emplace_back(std::to_string(i), torch::tensor(ids, torch::kLong));
  graft::save_safetensors(argv[1], results);
  std::cout << warm << "\n" << counted() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "scores" && argc == 7)
      scores(argv + 2);
    else if (what == "prompts" && argc > 5)
      prompts(argc - 2, argv + 2);
    else if (what == "batch" && argc > 4)
      batch(argc - 2, argv + 2);
    else
      throw std::invalid_argument("see the comment at the top of generate_driver.cpp");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
