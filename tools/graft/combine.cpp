// graft combine: several LoRA adapters into one.
#include "adapters/combine.h"

#include <ATen/Context.h>

#include "command.h"
#include "flags.h"
#include "graft/error.h"
#include "io/format/atomic_file.h"
#include "io/format/hub_cache.h"
#include "output_folder.h"
#include "support/log.h"

namespace graft::cli {
namespace {
namespace fs = std::filesystem;

struct CombineFlags {
  std::vector<std::string> adapters;
  std::string output, model;
  CombineOptions options;
  uint64_t seed = 42;
};

/// What needs the base's weights, too.
void with_base(const CombineFlags& flags, const std::vector<AdapterSpec>& specs, const OutputFolder& output) {
  PeftModel peft(AutoModelForAny::from_pretrained(flags.model));
  std::vector<std::string> names;
  std::vector<double> weights;
  names.reserve(specs.size());
  weights.reserve(specs.size());
  for (const auto& spec : specs) {
    peft.load_adapter(spec.dir, spec.name);
    names.push_back(spec.name);
    weights.push_back(spec.weight);
  }
  std::string result = "combined";
  while (std::find(names.begin(), names.end(), result) != names.end()) result += "+";
  at::manual_seed(flags.seed);
  peft.add_weighted_adapter(names, weights, result, flags.options);
  output.fill([&](const fs::path& folder) { peft.save_adapter(folder, result); });
}

void run(const CombineFlags& flags) {
  const auto specs = adapter_specs(flags.adapters, /*weighted=*/true);
  std::vector<adapters::WeightedSource> sources;
  for (const auto& spec : specs) refuse_overwriting(flags.output, spec.dir);
  const OutputFolder output(flags.output);
  for (const auto& spec : specs) {
    const auto file = Checkpoint::open(io::local_path(spec.dir), "adapter_model");
    NamedTensors tensors;
    for (const auto& name : file.names()) tensors.emplace_back(name, file.tensor(name));
    sources.push_back({spec.name, AdapterConfig::from_pretrained(spec.dir), std::move(tensors), spec.weight});
    const auto base = [](const auto& source) { return source.config.string("base_model_name_or_path"); };
    if (base(sources.back()) != base(sources.front()))
      log_warning("[combine] \"" + sources.front().name + "\" was made for \"" + base(sources.front()) +
                  "\" and \"" + spec.name + "\" for \"" + base(sources.back()) + "\"");
  }
  if (!flags.model.empty()) return with_base(flags, specs, output);
  at::manual_seed(flags.seed);
  const auto combined = adapters::combine(sources, flags.options);
  output.fill([&](const fs::path& folder) {
    save_checkpoint(folder, combined.tensors, {{"format", "pt"}}, 50'000'000'000, "adapter_model");
    io::write_file_atomically(folder / "adapter_config.json",
                              combined.config.with("inference_mode", "true").dump());
  });
}

}  // namespace

void add_combine(CLI::App& app) {
  auto* command =
      app.add_subcommand("combine", "Combine several adapters into one: LoRA, or IA3 (linear only)");
  auto flags = std::make_shared<CombineFlags>();
  command
      ->add_option("--adapter", flags->adapters,
                   "Add this adapter, NAME=DIR:WEIGHT; give several. A weight may be negative")
      ->required();
  command->add_option("--combination-type", flags->options.combination_type, "Choose how they are combined")
      ->check(CLI::IsMember({"linear", "cat", "svd", "ties", "ties_svd", "dare_linear", "dare_ties",
                             "dare_linear_svd", "dare_ties_svd", "magnitude_prune", "magnitude_prune_svd"}))
      ->required();
  command->add_option(
      "--model", flags->model,
      "Load this base model: DoRA needs its weights to measure magnitudes, and with it dare drops "
      "what PEFT drops for the same seed");
  command->add_option("--svd-rank", flags->options.svd_rank,
                      "Give the result this rank (default: the largest)");
  command->add_option("--svd-clamp", flags->options.svd_clamp,
                      "Clip both factors of an svd at this quantile, 0 to 1");
  command->add_option("--density", flags->options.density,
                      "Keep this share of the values, 0 to 1 (ties, dare, magnitude_prune)");
  command
      ->add_option("--majority-sign-method", flags->options.majority_sign_method,
                   "Choose how ties finds the sign")
      ->check(CLI::IsMember({"total", "frequency"}))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Fix the random numbers of dare")->capture_default_str();
  command->add_option("--output", flags->output, "Write the adapter to this folder")->required();
  command->footer(
      "Example:\n  graft combine --adapter de=adapters/de:0.7 --adapter fr=adapters/fr:-0.3 "
      "--combination-type "
      "cat --output adapters/both");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
