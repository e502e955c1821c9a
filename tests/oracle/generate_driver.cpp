// What the oracle tests need of generation beyond `graft generate`.
//   generate_driver probabilities MODEL in.safetensors out.safetensors PROMPT_LENGTH
//       of the next token, for `logits` after `input_ids`, by MODEL's generation_config.json
//   generate_driver prompts MODEL out.safetensors NEW_TOKENS in.safetensors...
//       one Decoder over several prompts; prints what was compiled
#include <torch/types.h>

#include <iostream>

#include "generation/scores.h"
#include "graft/graft.h"

namespace {

void probabilities(char** argv) {
  const auto config = graft::GenerationConfig::from_pretrained(argv[0]);
  const auto file = graft::SafetensorsFile::open(argv[1]);
  const auto scores = graft::generation::scores_of(file->tensor("logits"), file->tensor("input_ids"),
                                                   std::stoll(argv[3]), config);
  graft::save_safetensors(argv[2], {{"probabilities", scores.softmax(-1)}});
}

void prompts(int argc, char** argv) {
  graft::Decoder decoder(graft::AutoModelForCausalLM::from_pretrained(argv[0]), {.fullgraph = true});
  const graft::GenerationConfig config{.max_new_tokens = std::stoll(argv[2]), .pad_token_id = 1};
  graft::NamedTensors results;
  for (int i = 3; i < argc; ++i) {
    const auto file = graft::SafetensorsFile::open(argv[i]);
    graft::ModelInputs prompt{.input_ids = file->tensor("input_ids")};
    if (file->contains("attention_mask")) prompt.attention_mask = file->tensor("attention_mask");
    results.emplace_back(std::to_string(i - 3), decoder.generate(prompt, config));
  }
  graft::save_safetensors(argv[1], results);
  const auto counted = graft::counters();
  std::cout << "graphs " << counted.graphs << " recompiles " << counted.recompiles << " breaks "
            << counted.graph_breaks << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "probabilities" && argc == 6)
      probabilities(argv + 2);
    else if (what == "prompts" && argc > 5)
      prompts(argc - 2, argv + 2);
    else
      throw std::invalid_argument("see the comment at the top of generate_driver.cpp");
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
