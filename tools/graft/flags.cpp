#include "flags.h"

#include "command.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "graft/error.h"
#include "graft/process_group.h"
#include "io/dtype_names.h"
#include "io/format/hub_cache.h"
#include "progress.h"
#include "support/log.h"

namespace graft::cli {
namespace fs = std::filesystem;

namespace {

/// Paths differ from machine to machine: the last name decides.
void warn_of_other_base(const AdapterConfig& config, const std::string& base, const std::string& name) {
  const auto wanted = config.string("base_model_name_or_path");
  if (!wanted.empty() && io::model_name(wanted) != io::model_name(fs::absolute(base)))
    log_warning("[adapters] \"" + name + "\" was made for \"" + wanted + "\", and the model is \"" + base +
                "\"");
}

/// Each name once, without the base model's.
std::vector<std::string> used(const std::vector<std::string>& names, const PeftModel& peft) {
  std::vector<std::string> once;
  for (const auto& name : names)
    if (name != "__base__" && std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  return once.empty() ? peft.active_adapters() : once;
}

}  // namespace

void ModelFlags::add_to(CLI::App& command, bool positional) {
  command
      .add_option(
          positional ? "model,--model" : "--model", model,
          "Load this model: a folder with config.json and safetensors, a .gguf file, or org/name of what is "
          "in the Hugging Face cache")
      ->required();
  command.add_option("--dtype", dtype, "Load the weights in this dtype (default: the checkpoint's)")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  command.add_option("--device", device, "Run on this device")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
}

void ModelFlags::add_task_to(CLI::App& command) {
  command.add_option("--task", task, "Put this head on the model (default: the one its config.json names)")
      ->check(CLI::IsMember({"sequence-classification", "token-classification", "image-classification"}));
  command
      .add_option("--num-labels", num_labels,
                  "Give the head of --task N classes (default: what config.json says, else 2)")
      ->check(CLI::PositiveNumber)
      ->needs("--task");
}

LoadOptions ModelFlags::options() const {
  if (device == "cuda" && !torch::cuda::is_available())
    throw Error("[device] --device cuda: torch sees no CUDA device on this machine");
  at::Device where(device);
  // Of several processes on a machine each has a GPU of its own, in the order of their numbers, as torchrun
  // has it.
  if (where.is_cuda()) {
    const auto own = ProcessGroupOptions::from_environment();
    if (own.size > 1) {
      where.set_index(static_cast<at::DeviceIndex>(own.local_rank));
      c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(where);  // also for what is made on "cuda"
    }
  }
  LoadOptions options{.device = where, .progress = progress_bar("loading")};
  if (!dtype.empty()) options.dtype = io::floating_dtype(dtype, "--dtype");
  return options;
}

std::shared_ptr<PreTrainedModel> ModelFlags::load() const {
  if (task.empty()) return AutoModelForAny::from_pretrained(model, options());
  auto with_head = options();
  with_head.initialise_missing = true;
  if (num_labels > 0) with_head.num_labels = num_labels;
  if (task == "sequence-classification")
    return AutoModelForSequenceClassification::from_pretrained(model, with_head);
  if (task == "token-classification")
    return AutoModelForTokenClassification::from_pretrained(model, with_head);
  return AutoModelForImageClassification::from_pretrained(model, with_head);
}

std::shared_ptr<PreTrainedModel> ModelFlags::load_causal_lm() const {
  return AutoModelForCausalLM::from_pretrained(model, options());
}

std::shared_ptr<PreTrainedModel> ModelFlags::load_generator() const {
  if (Config::from_pretrained(model).boolean("is_encoder_decoder", false))
    return AutoModelForSeq2SeqLM::from_pretrained(model, options());
  return AutoModelForCausalLM::from_pretrained(model, options());
}

void AdapterFlags::add_to(CLI::App& command) {
  command.add_option("--adapter", adapters,
                     "Load this adapter folder, [NAME=]DIR; may be given several times");
  command.add_option("--active-adapter", active, "Use these adapters, by name")->delimiter(',');
  command.add_flag("--disable-adapter", disable, "Run the base model with the adapters loaded and off");
  command.add_option("--adapter-names", names, "Use one adapter for each row of the batch; __base__ is none")
      ->delimiter(',');
  command.add_flag("--merge", merge, "Merge the active adapters into the weights before running");
}

std::vector<AdapterSpec> adapter_specs(const std::vector<std::string>& texts, bool weighted) {
  std::vector<AdapterSpec> specs;
  for (const auto& text : texts) {
    AdapterSpec spec{.dir = text};
    if (weighted && !fs::exists(text))
      if (const auto colon = text.rfind(':'); colon != std::string::npos) {
        const auto number = text.substr(colon + 1);
        size_t read = 0;
        try {
          spec.weight = std::stod(number, &read);
        } catch (const std::exception&) {
          read = 0;
        }
        if (number.empty() || read != number.size() || !std::isfinite(spec.weight))
          throw WrongUsage("--adapter " + text + ": \"" + number +
                           "\" is not a valid weight; write [NAME=]DIR:WEIGHT");
        spec.dir = text.substr(0, colon);
      }
    // A folder may have "=" in its name.
    if (const auto equals = spec.dir.find('='); equals != std::string::npos && !fs::exists(spec.dir)) {
      spec.name = spec.dir.substr(0, equals);
      spec.dir = spec.dir.substr(equals + 1);
      if (spec.name.empty()) throw WrongUsage("--adapter " + text + ": the name before \"=\" is empty");
    }
    if (spec.name.empty()) spec.name = "default";
    for (const auto& other : specs)
      if (other.name == spec.name)
        throw WrongUsage("two adapters are called \"" + spec.name + "\": name them, --adapter NAME=DIR");
    specs.push_back(std::move(spec));
  }
  return specs;
}

void load_adapter(PeftModel& peft, const AdapterSpec& spec, const std::string& base, bool trainable) {
  warn_of_other_base(AdapterConfig::from_pretrained(spec.dir), base, spec.name);
  peft.load_adapter(spec.dir, spec.name, {.is_trainable = trainable});
}

void refuse_untrained(const PreTrainedModel& model, const PeftModel* peft, const std::string& what) {
  const auto& fresh = model.fresh_weights();
  if (fresh.empty()) return;
  const std::string who = "[models] " + fresh.front() +
                          (fresh.size() > 1 ? " and " + std::to_string(fresh.size() - 1) + " more" : "") +
                          " of " + model.architecture() + " are not in the checkpoint";
  if (!peft) throw Error(who + ": " + what);
  for (const auto& adapter : peft->adapter_names()) {
    const auto brought = peft->state_dict(adapter);
    for (const auto& name : fresh) {
      const auto is = [&](const auto& entry) { return entry.first == "base_model.model." + name; };
      if (std::none_of(brought.begin(), brought.end(), is))
        throw Error("[models] " + name + " of " + model.architecture() +
                    " is not in the checkpoint, and the adapter \"" + adapter +
                    "\" does not bring it: " + what);
    }
  }
}

void refuse_overwriting(const std::string& output, const std::string& input) {
  std::error_code none;
  if (fs::equivalent(output, input, none))
    throw Error("--output " + output + " is the folder that is read: write to another one");
}

std::vector<fs::path> AdapterFlags::read_with(std::vector<fs::path> others) const {
  for (const auto& spec : adapter_specs(adapters)) others.emplace_back(spec.dir);
  return others;
}

std::shared_ptr<PeftModel> AdapterFlags::load(const std::shared_ptr<PreTrainedModel>& model,
                                              const std::string& base, bool trainable) const {
  const auto specs = adapter_specs(adapters);
  if (specs.empty()) {
    for (const auto& [flag, given] : {std::pair("--active-adapter", !active.empty()),
                                      {"--adapter-names", !names.empty()},
                                      {"--disable-adapter", disable},
                                      {"--merge", merge}})
      if (given) throw WrongUsage(std::string(flag) + " needs an --adapter");
    return nullptr;
  }
  if (!names.empty() && (!active.empty() || disable || merge))
    throw WrongUsage(
        "--adapter-names chooses adapters by row: it goes with neither --active-adapter, "
        "--disable-adapter nor --merge");
  auto peft = std::make_shared<PeftModel>(model);
  for (const auto& spec : specs) load_adapter(*peft, spec, base, trainable);
  const bool without = disable || std::find(names.begin(), names.end(), "__base__") != names.end();
  refuse_untrained(*model, without ? nullptr : peft.get(), "without training its result means nothing");
  if (!names.empty() && trainable) peft->set_adapter(used(names, *peft));
  if (!active.empty()) peft->set_adapter(active);
  if (merge) peft->merge_adapter();
  if (disable) peft->disable_adapters();
  peft->eval();
  return peft;
}

void CompileFlags::add_to(CLI::App& command) {
  command_ = &command;
  constexpr auto group = "Compilation";
  command.add_flag("--compile", compile, "Compile the model")->group(group);
  command
      .add_option(
          "--mode", mode,
          "Choose what to optimise for: max-autotune measures kernels and products and keeps the choice; "
          "reduce-overhead is for GPUs")
      ->check(CLI::IsMember({"default", "reduce-overhead", "max-autotune"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--backend", backend, "Choose what runs the graph")
      ->check(CLI::IsMember({"graft", "inductor", "aot_eager", "eager"}))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--fullgraph", fullgraph, "Fail where the model is not one graph")->group(group);
  command.add_option("--dynamic", dynamic, "Choose how other shapes are compiled")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str()
      ->group(group);
  command.add_flag("--regional", regional, "Compile repeated blocks once and run block by block")
      ->group(group);
  command.add_flag("--no-cache", no_cache, "Leave the disk cache alone")->group(group);
  command.add_option("--verify-every", verify_every, "Compare every N-th call with eager code")
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
