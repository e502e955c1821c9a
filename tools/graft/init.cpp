// graft init: a fresh adapter for a model.
#include <ATen/Context.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "graft/error.h"
#include "graft/peft.h"
#include "output_folder.h"

namespace graft::cli {
namespace {

struct InitFlags {
  ModelFlags model;
  std::string config, output;
  uint64_t seed = 42;
};

void run(const InitFlags& flags) {
  const auto config = AdapterConfig::from_pretrained(flags.config)
                          .with("base_model_name_or_path", nlohmann::json(flags.model.model).dump());
  refuse_overwriting(flags.output, flags.model.model);
  const OutputFolder output(flags.output);
  const auto model = flags.model.load();
  at::manual_seed(flags.seed);
  const auto peft = get_peft_model(model, config);
  output.fill([&](const std::filesystem::path& folder) { peft->save_adapter(folder, "default"); });
  const auto count = peft->get_nb_trainable_parameters();
  std::cout << "trainable params: " << count.trainable << " || all params: " << count.all << "\n";
}

}  // namespace

void add_init(CLI::App& app) {
  auto* command = app.add_subcommand("init", "Create a new adapter, as PEFT's get_peft_model does");
  auto flags = std::make_shared<InitFlags>();
  flags->model.add_to(*command);
  command
      ->add_option("--adapter-config", flags->config,
                   "Read this adapter_config.json, or the one in this folder")
      ->required();
  command->add_option("--output", flags->output, "Write the adapter to this folder")->required();
  command->add_option("--seed", flags->seed, "Fix the random numbers: those of PEFT after torch.manual_seed")
      ->capture_default_str();
  command->footer(
      "Example:\n  echo '{\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": \"all-linear\"}' > "
      "lora.json\n  "
      "graft init --model checkpoints/llama --adapter-config lora.json --output adapters/new --seed 1");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
