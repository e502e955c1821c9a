#include "flags.h"

#include "command.h"

#include <torch/cuda.h>

#include "graft/error.h"
#include "io/dtype_names.h"
#include "progress.h"

namespace graft::cli {

void ModelFlags::add_to(CLI::App& command) {
  command.add_option("--model", model, "Checkpoint folder: config.json and safetensors")->required();
  command.add_option("--dtype", dtype, "Dtype of the weights (default: the checkpoint's)")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  command.add_option("--device", device, "Where to run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

std::shared_ptr<PreTrainedModel> ModelFlags::load() const {
  if (device == "cuda" && !torch::cuda::is_available())
    throw Error("[device] --device cuda: torch sees no CUDA device on this machine");
  LoadOptions options{.device = at::Device(device), .progress = progress_bar("loading")};
  if (!dtype.empty()) options.dtype = io::floating_dtype(dtype, "--dtype");
  return AutoModelForAny::from_pretrained(model, options);
}

void AdapterFlags::add_to(CLI::App& command) {
  command.add_option("--adapter", adapters, "Adapter folder, [NAME=]DIR; may be given several times");
  command.add_option("--active-adapter", active, "Which adapters are active, by name")->delimiter(',');
  command.add_flag("--disable-adapter", disable, "Run the base model, adapters loaded");
  command.add_option("--adapter-names", names, "One adapter per row of the batch; __base__ is none")
      ->delimiter(',');
  command.add_flag("--merge", merge, "Merge the active adapters into the weights before running");
}

void AdapterFlags::refuse() const {
  if (adapters.empty() && active.empty() && names.empty() && !disable && !merge) return;
  throw Error(
      "[adapters] adapters are not supported yet: run without --adapter, --active-adapter, "
      "--disable-adapter, "
      "--adapter-names and --merge");
}

void CompileFlags::add_to(CLI::App& command) {
  command_ = &command;
  constexpr auto group = "Compilation";
  command.add_flag("--compile", compile, "Compile the model")->group(group);
  command.add_option("--mode", mode, "What to optimise for")
      ->check(CLI::IsMember({"default", "reduce-overhead", "max-autotune"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--backend", backend, "Which pipeline runs the graph")
      ->check(CLI::IsMember({"graft", "inductor", "aot_eager", "eager"}))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--fullgraph", fullgraph, "A graph break is an error")->group(group);
  command.add_option("--dynamic", dynamic, "Dynamic shapes")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--regional", regional, "Compile repeated blocks once and run block by block")
      ->group(group);
  command.add_flag("--no-cache", no_cache, "Leave the disk cache alone")->group(group);
  command.add_option("--verify-every", verify_every, "Compare every N-th call with eager")
      ->check(CLI::NonNegativeNumber)
      ->group(group);
}

CompileOptions CompileFlags::options() const {
  for (const char* flag :
       {"--mode", "--backend", "--fullgraph", "--dynamic", "--regional", "--no-cache", "--verify-every"})
    if (!compile && command_->count(flag) > 0)
      throw WrongUsage(std::string(flag) + " says how to compile: give --compile too");
  return {.mode = mode_named(mode),
          .backend = compile ? backend_named(backend) : Backend::eager,
          .fullgraph = fullgraph,
          .dynamic = dynamic_named(dynamic),
          .regional = regional,
          .verify_every = verify_every,
          .cache = !no_cache};
}

}  // namespace graft::cli
