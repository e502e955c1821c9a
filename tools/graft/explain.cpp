// graft explain: what compilation makes of a model's call, without running anything compiled.
#include <ATen/ATen.h>

#include <iostream>

#include "command.h"
#include "flags.h"
#include "graft/compile.h"
#include "inputs.h"

namespace graft::cli {
namespace {

struct ExplainFlags {
  ModelFlags model;
  AdapterFlags adapter;
  CompileFlags compile;
  std::string input, emit;
  bool grads = false;
};

void run(const ExplainFlags& flags) {
  auto compile_flags = flags.compile;
  compile_flags.compile = true;  // it is what this command is about
  const auto options = compile_flags.options();
  const auto model = flags.model.load();
  const auto inputs = read_inputs(flags.input, *model);
  const auto peft = flags.adapter.load(model, flags.model.model, flags.grads);
  const at::AutoGradMode mode(flags.grads);
  std::cout << (peft ? compile(peft, options).explain(inputs, {flags.adapter.names}, flags.emit)
                     : compile(model, options).explain(inputs, flags.emit));
}

}  // namespace

void add_explain(CLI::App& app) {
  auto* command =
      app.add_subcommand("explain", "Show how a model is compiled: graphs, guards, kernels, calls");
  auto flags = std::make_shared<ExplainFlags>();
  flags->model.add_to(*command);
  command
      ->add_option("--input", flags->input,
                   "Read this safetensors file: input_ids or pixel_values [, attention_mask, labels, ...]")
      ->required();
  command->add_option("--emit", flags->emit, "Print the program at this level, too")
      ->check(CLI::IsMember({"aten", "core", "fused", "loops", "llvm", "cuda"}));
  command->add_flag("--grads", flags->grads, "Explain the training program: forward and backward");
  flags->adapter.add_to(*command);
  flags->compile.add_to(*command);
  command->footer("Example:\n  graft explain --model checkpoints/llama --input in.safetensors --emit fused");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
