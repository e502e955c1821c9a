// graft forward: one call of a model over tensors from a file, results into a file.
#include <ATen/ATen.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "graft/peft.h"
#include "graft/safetensors.h"
#include "inputs.h"
#include "io/format/atomic_file.h"
#include "output_folder.h"
#include "report.h"
#include "runtime/memory_meter.h"

namespace graft::cli {
namespace {

struct ForwardFlags {
  ModelFlags model;
  AdapterFlags adapter;
  CompileFlags compile;
  std::string input, output, report;
  bool grads = false, json = false;
  int64_t repeat = 0;
};

void wait_for(const at::Device& device) {
  if (!device.is_cpu()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

/// One call: forward, and with `grads` backward too.
class Call {
 public:
  Call(std::function<ModelOutput()> forward, const PreTrainedModel& model, NamedTensors trainable, bool grads)
      : forward_(std::move(forward)), model_(model), trainable_(std::move(trainable)), grads_(grads) {}

  NamedTensors operator()() {
    at::AutoGradMode mode(grads_);
    const auto out = forward_();
    NamedTensors results;
    if (out.logits.defined()) results.emplace_back("logits", out.logits.detach());
    if (out.last_hidden_state.defined())
      results.emplace_back("last_hidden_state", out.last_hidden_state.detach());
    if (out.loss.defined()) results.emplace_back("loss", out.loss.detach());
    if (grads_) append_gradients(out.loss, results);
    wait_for(model_.device());
    return results;
  }

 private:
  void append_gradients(const at::Tensor& loss, NamedTensors& results) {
    std::vector<at::Tensor> wanted;
    for (const auto& [name, parameter] : trainable_) wanted.push_back(parameter);
    const auto found = torch::autograd::grad({loss}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
    for (size_t i = 0; i < wanted.size(); ++i)
      results.emplace_back("grad." + trainable_[i].first,
                           found[i].defined() ? found[i] : at::zeros_like(wanted[i]));
  }

  std::function<ModelOutput()> forward_;
  const PreTrainedModel& model_;
  NamedTensors trainable_;
  bool grads_;
};

/// An adapter's tensors have their names in its file; where several are trained, PEFT's names in the model,
/// which have the adapter's in them.
NamedTensors trainable_of(const PeftModel& peft) {
  const auto& active = peft.active_adapters();
  NamedTensors all;
  for (const auto& adapter : active)
    for (auto [key, tensor] : peft.trainable_tensors(adapter)) {
      if (!tensor.requires_grad()) continue;
      if (active.size() > 1) {
        const auto last = key.rfind('.');
        key = key.ends_with(".weight") || key.ends_with(".bias")
                  ? key.substr(0, last) + "." + adapter + key.substr(last)
                  : key + "." + adapter;
      }
      all.emplace_back(key, tensor);
    }
  return all;
}

Call call_of(const ForwardFlags& flags, const std::shared_ptr<PreTrainedModel>& model,
             const std::shared_ptr<PeftModel>& peft, const ModelInputs& inputs) {
  if (flags.grads && !inputs.labels.defined())
    throw UsageError(
        "[forward] --grads needs labels in the input file: without them there is no loss to differentiate");
  const auto options = flags.compile.options();
  if (!peft)
    return {[forward = compile(model, options), &inputs] { return forward(inputs); }, *model,
            model->unique_parameters(), flags.grads};
  const auto trainable = trainable_of(*peft);
  if (flags.grads && trainable.empty())
    throw UsageError("[forward] --grads: no adapter is at work, so there is nothing to differentiate for");
  return {[forward = compile(peft, options), &inputs, call = AdapterCall{flags.adapter.names}] {
            return forward(inputs, call);
          },
          *model, trainable, flags.grads};
}

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run(const ForwardFlags& flags) {
  flags.compile.options();  // wrong ones before anything is loaded
  refuse_unwritable({{"--output", flags.output}, {"--report", flags.report}},
                    flags.adapter.read_with({flags.model.model, flags.input}));
  const auto model = flags.model.load();
  const auto peft = flags.adapter.load(model, flags.model.model, flags.grads);
  if (!peft)
    refuse_untrained(*model, nullptr,
                     "without training its result means nothing; give the --adapter that has it");
  const auto inputs = read_inputs(flags.input, *model);
  Call call = call_of(flags, model, peft, inputs);

  NamedTensors results;
  int64_t peak = 0;
  double first = 0;
  std::vector<double> times;
  times.reserve(static_cast<size_t>(flags.repeat));
  {
    MemoryMeter meter;
    first = seconds([&] { results = call(); });
    if (flags.repeat > 0) {
      // The second call is the program's second check; what is measured comes after it.
      if (flags.compile.compile) call();
      meter.start_again();
      call();
    }
    peak = meter.peak();
  }
  for (int64_t i = 0; i < flags.repeat; ++i) times.push_back(1e3 * seconds([&] { call(); }));
  std::sort(times.begin(), times.end());

  save_safetensors(flags.output, results);
  nlohmann::ordered_json report{{"architecture", model->architecture()},
                                {"first_call_s", first},
                                {"compile_s", counters().compile_seconds}};
  // Null without --repeat: the first call is no steady state.
  report["median_ms"] = nullptr;
  report["min_ms"] = nullptr;
  if (!times.empty()) report["median_ms"] = times[times.size() / 2], report["min_ms"] = times.front();
  add_counters(report);
  report["peak_bytes"] = held_bytes(*model) + peak;
  if (!flags.report.empty()) io::write_file_atomically(flags.report, report.dump(2) + "\n");
  if (flags.json) std::cout << report.dump() << "\n";
}

}  // namespace

void add_forward(CLI::App& app) {
  auto* command = app.add_subcommand("forward", "Run a model once on tensors from a file");
  auto flags = std::make_shared<ForwardFlags>();
  flags->model.add_to(*command);
  flags->model.add_task_to(*command);
  command
      ->add_option("--input", flags->input,
                   "Read this safetensors file: input_ids or pixel_values [, attention_mask, labels, ...]")
      ->required();
  command
      ->add_option("--output", flags->output,
                   "Write this safetensors file: logits or last_hidden_state [, loss, grad.NAME...]")
      ->required();
  command->add_flag("--grads", flags->grads, "Write the loss's gradient for every trainable tensor, too");
  command->add_option("--repeat", flags->repeat, "Time N more calls")->check(CLI::NonNegativeNumber);
  command->add_option("--report", flags->report, "Write times and counters to this file as JSON");
  command->add_flag("--json", flags->json, "Print the report on standard output");
  flags->adapter.add_to(*command);
  flags->compile.add_to(*command);
  command->footer(
      "Examples:\n  graft forward --model checkpoints/llama --input in.safetensors --output out.safetensors "
      "--grads\n  graft forward --model checkpoints/llama --adapter de=adapters/de --adapter fr=adapters/fr "
      "--adapter-names de,__base__,fr\n    --input in.safetensors --output out.safetensors --compile");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
