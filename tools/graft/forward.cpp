// graft forward: one call of a model over tensors from a file, results into a file.
#include <ATen/ATen.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "graft/safetensors.h"
#include "inputs.h"
#include "io/format/atomic_file.h"
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
  Call(const std::shared_ptr<PreTrainedModel>& model, const ModelInputs& inputs, bool grads,
       const CompileOptions& options)
      : model_(*model),
        forward_(compile(model, options)),
        inputs_(inputs),
        grads_(grads),
        parameters_(model->unique_parameters()) {
    if (grads && !inputs.labels.defined())
      throw UsageError(
          "[forward] --grads needs labels in the input file: without them there is no loss to differentiate");
  }

  NamedTensors operator()() {
    at::AutoGradMode mode(grads_);
    const auto out = forward_(inputs_);
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
    for (const auto& [name, parameter] : parameters_) wanted.push_back(parameter);
    const auto found = torch::autograd::grad({loss}, wanted, {}, std::nullopt, false, /*allow_unused=*/true);
    for (size_t i = 0; i < wanted.size(); ++i)
      results.emplace_back("grad." + parameters_[i].first,
                           found[i].defined() ? found[i] : at::zeros_like(wanted[i]));
  }

  PreTrainedModel& model_;
  Compiled<ModelOutput(const ModelInputs&)> forward_;
  const ModelInputs& inputs_;
  bool grads_;
  NamedTensors parameters_;
};

double seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t held_bytes(const PreTrainedModel& model) {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : model.unique_parameters())
    bytes += static_cast<int64_t>(parameter.nbytes());
  for (const auto& buffer : model.buffers()) bytes += static_cast<int64_t>(buffer.nbytes());
  return bytes;
}

void run(const ForwardFlags& flags) {
  flags.adapter.refuse();
  const auto options = flags.compile.options();
  const auto model = flags.model.load();
  const auto inputs = read_inputs(flags.input, *model);
  Call call(model, inputs, flags.grads, options);

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
  const auto after = counters();
  nlohmann::ordered_json report{
      {"architecture", model->architecture()}, {"first_call_s", first}, {"compile_s", after.compile_seconds}};
  // Null without --repeat: the first call is no steady state.
  report["median_ms"] = nullptr;
  report["min_ms"] = nullptr;
  if (!times.empty()) report["median_ms"] = times[times.size() / 2], report["min_ms"] = times.front();
  for (const auto& [name, value] : {std::pair("graphs", after.graphs),
                                    {"graph_breaks", after.graph_breaks},
                                    {"recompiles", after.recompiles},
                                    {"kernels", after.kernels},
                                    {"extern_calls", after.extern_calls},
                                    {"cache_hits", after.cache_hits}})
    report[name] = value;
  report["peak_bytes"] = held_bytes(*model) + peak;
  if (!flags.report.empty()) io::write_file_atomically(flags.report, report.dump(2) + "\n");
  if (flags.json) std::cout << report.dump() << "\n";
}

}  // namespace

void add_forward(CLI::App& app) {
  auto* command = app.add_subcommand("forward", "Run a model once over tensors from a file");
  auto flags = std::make_shared<ForwardFlags>();
  flags->model.add_to(*command);
  command
      ->add_option("--input", flags->input,
                   "safetensors with input_ids or pixel_values [, attention_mask, labels, ...]")
      ->required();
  command
      ->add_option("--output", flags->output,
                   "safetensors to write: logits or last_hidden_state [, loss, grad.NAME...]")
      ->required();
  command->add_flag("--grads", flags->grads, "Also write the loss's gradient for every trainable tensor");
  command->add_option("--repeat", flags->repeat, "Then time this many calls more")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--report", flags->report, "Write times and counters as JSON");
  command->add_flag("--json", flags->json, "Print the report on standard output");
  flags->adapter.add_to(*command);
  flags->compile.add_to(*command);
  command->footer(
      "Example:\n  graft forward --model checkpoints/llama --input in.safetensors --output out.safetensors "
      "--grads");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
