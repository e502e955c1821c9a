// graft train: fine-tunes an adapter, or a whole model.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "graft/error.h"
#include "graft/trainer.h"
#include "io/format/atomic_file.h"
#include "output_folder.h"
#include "runtime/memory_meter.h"
#include "stop_signals.h"
#include "support/counted.h"
#include "train_output.h"
#include "training_lines.h"

namespace graft::cli {
namespace {

struct TrainFlags {
  ModelFlags model;
  CompileFlags compile;
  TrainingArguments arguments;
  std::string adapter, adapter_config, data, tokens, eval_data, output, report;
  JsonlOptions rows;
  bool full = false, resume = false, eval_on_start = false;
  int64_t logging_steps = 0, ddp_timeout = 1800;
  CLI::App* command = nullptr;
};

/// What is trained: one of the two.
struct Subject {
  std::shared_ptr<PreTrainedModel> model;
  std::shared_ptr<PeftModel> peft;

  Trainer trainer(const TrainingArguments& arguments, const std::shared_ptr<const TrainingData>& data) const {
    return peft ? Trainer(peft, arguments, data) : Trainer(model, arguments, data);
  }
};

Subject load(const TrainFlags& flags) {
  at::manual_seed(flags.arguments.seed);  // of a fresh head, then of a fresh adapter
  Subject subject{flags.model.load(), nullptr};
  if (flags.full) {
    for (auto& [name, parameter] : subject.model->unique_parameters()) parameter.set_requires_grad(true);
    return subject;
  }
  if (!flags.adapter_config.empty()) {
    const auto config = AdapterConfig::from_pretrained(flags.adapter_config)
                            .with("base_model_name_or_path", nlohmann::json(flags.model.model).dump());
    subject.peft = get_peft_model(subject.model, config.with("inference_mode", "false"));
  } else {
    subject.peft = std::make_shared<PeftModel>(subject.model);
    load_adapter(*subject.peft, adapter_specs({flags.adapter})[0], flags.model.model, /*trainable=*/true);
  }
  refuse_untrained(*subject.model, subject.peft.get(),
                   "it would never be trained; name its module in the adapter config's modules_to_save");
  return subject;
}

std::shared_ptr<const TrainingData> read_data(const std::string& path, bool tokens, const TrainFlags& flags,
                                              const PreTrainedModel& model) {
  return tokens ? read_tokens(path) : read_jsonl(path, model, flags.model.model, flags.rows);
}

std::shared_ptr<ProcessGroup> connect(const TrainFlags& flags) {
  auto options = ProcessGroupOptions::from_environment();
  options.timeout = std::chrono::seconds(flags.ddp_timeout);
  return ProcessGroup::connect(options);
}

/// Flags that would change nothing without another one.
void refuse_idle(const TrainFlags& flags) {
  const auto& a = flags.arguments;
  const auto idle = [&](std::initializer_list<const char*> names, bool works, const std::string& why) {
    for (const char* name : names)
      if (!works && flags.command->count(name) > 0) throw WrongUsage(std::string(name) + " " + why);
  };
  idle({"--early-stopping-threshold"}, a.early_stopping_patience > 0, "is for --early-stopping-patience");
  idle({"--loraplus-lr-embedding"}, a.loraplus_lr_ratio.has_value(), "is for --loraplus-lr-ratio");
  idle({"--adam-beta1", "--adam-beta2", "--adam-epsilon"}, a.optim.starts_with("adamw"),
       "is for --optim adamw_torch");
  idle({"--load-best-model-at-end", "--early-stopping-patience"},
       a.eval_steps > 0 || (!a.load_best_model_at_end && a.early_stopping_patience == 0),
       "goes by evaluations: give --eval-steps, too");
}

void check(const TrainFlags& flags) {
  if (const int given = !flags.adapter.empty() + !flags.adapter_config.empty() + flags.full; given != 1)
    throw WrongUsage("give one of --adapter, --adapter-config and --full: what is to be trained");
  refuse_overwriting(flags.output, flags.model.model);
  if (flags.arguments.save_strategy != "steps" && flags.command->count("--save-steps") > 0)
    throw WrongUsage("--save-steps is for --save-strategy steps");
  if (flags.eval_data.empty() && flags.arguments.eval_steps > 0)
    throw WrongUsage("--eval-steps needs --eval-data");
  refuse_idle(flags);
  if (flags.eval_data.empty() && flags.eval_on_start) throw WrongUsage("--eval-on-start needs --eval-data");
  if (flags.data.empty() == flags.tokens.empty())
    throw WrongUsage("give one of --data and --tokens: what to train on");
  if (!flags.tokens.empty()) {
    for (const char* flag : {"--per-device-train-batch-size", "--max-length", "--pad-to-multiple-of"})
      if (flags.command->count(flag) > 0 && flags.eval_data.empty())
        throw WrongUsage(std::string(flag) + " is for --data: the batches of --tokens are made already");
  }
}

/// The signal that stopped any of the processes; 0: the run came to its end.
int stopped_by(const TrainOutput& out, int64_t max_steps, ProcessGroup& group) {
  int64_t most = 0;
  for (const auto& each : group.all_gather(at::scalar_tensor(int64_t{StopSignals::seen()}, at::kLong)))
    most = std::max(most, each.item<int64_t>());
  return out.global_step < max_steps ? static_cast<int>(most) : 0;
}

/// The status to end with.
int train(TrainFlags flags, const std::shared_ptr<ProcessGroup>& group) {
  flags.arguments.compile = flags.compile.options();
  flags.arguments.output_dir = flags.output;
  flags.arguments.processes = group;
  flags.rows.batch_size *= group->size();  // each process takes its rows of it
  // One pass: the file's first dimension is called steps.
  if (!flags.tokens.empty() && flags.command->count("--num-train-epochs") == 0)
    flags.arguments.num_train_epochs = 1;
  std::optional<OutputFolder> output;
  if (group->is_main()) {
    output.emplace(flags.output);
    refuse_unwritable({{"--report", flags.report}}, {flags.model.model, flags.adapter, flags.adapter_config,
                                                     flags.data, flags.tokens, flags.eval_data});
  }
  const auto subject = load(flags);
  int64_t skipped = 0;
  flags.rows.seed = flags.arguments.seed;
  if (subject.peft) flags.rows.vocab_size = subject.peft->vocab_size();
  flags.rows.on_skipped = [&](int64_t count) { skipped += count; };
  const auto data = read_data(flags.tokens.empty() ? flags.data : flags.tokens, !flags.tokens.empty(), flags,
                              *subject.model);
  std::shared_ptr<const TrainingData> eval_data;
  if (!flags.eval_data.empty()) {
    auto plain = flags;
    plain.rows.shuffle = false;
    eval_data = read_data(flags.eval_data, flags.eval_data.ends_with(".safetensors"), plain, *subject.model);
  }
  MemoryMeter meter;
  auto trainer = subject.trainer(flags.arguments, data);
  int64_t held = 0;  // of the frozen weights, between steps
  trainer.on_step([&, done = 0](const TrainingStep& step) mutable {
    held = std::max(held, trainer.base_memory().held);
    // The first two steps of a compiled model are its checks, which hold all twice: what counts comes after.
    if (++done == 2 && step.step < step.max_steps) meter.start_again();
  });
  if (group->is_main()) trainer.add_callback(std::make_shared<TrainingLines>(flags.logging_steps));
  trainer.add_callback(std::make_shared<StopOnSignal>());
  trainer.evaluate_on(eval_data);
  std::optional<EvalMetrics> before;
  if (flags.eval_on_start) {
    before = trainer.evaluate(*eval_data);
    if (group->is_main()) print("eval before", to_json(*before));
  }
  TrainOutput out;
  {
    const StopSignals signals(group->is_main());
    out = trainer.train(flags.resume);
    if (const int signal = stopped_by(out, trainer.max_steps(), *group); signal != 0) {
      if (group->is_main()) say_how_to_resume(flags.output, out, trainer.max_steps(), signal);
      return 128 + signal;  // as a shell says it
    }
  }
  const auto peak = meter.peak();
  const auto base = base_memory_of(trainer, held, *group);
  if (output) output->fill([&](const std::filesystem::path& folder) { trainer.save_model(folder); });
  auto report = report_of(out, *subject.model, peak);
  report["skipped_rows"] = skipped;
  if (!base.is_null()) {
    report["base_bytes"] = base;
    // What is here of the frozen weights was taken under the meter.
    report["peak_bytes"] = report["peak_bytes"].get<int64_t>() - base["whole"].get<int64_t>();
  }
  if (before) report["eval_before"] = to_json(*before);
  if (eval_data) report["eval"] = to_json(trainer.evaluate(*eval_data));
  if (!group->is_main()) return 0;
  if (!flags.report.empty()) io::write_file_atomically(flags.report, report.dump(2) + "\n");
  print_end(flags.arguments, out, trainer.max_steps());
  std::cout << "trained " << counted(out.global_step, "step") << ", mean loss " << out.training_loss << "; "
            << (flags.full ? "the model" : "the adapter") << " is in " << flags.output << "\n";
  if (eval_data) print("eval", report["eval"]);
  return 0;
}

void run(const TrainFlags& flags) {
  check(flags);
  const auto group = connect(flags);
  int status = 0;
  try {
    status = train(flags, group);
    group->barrier();  // nobody leaves before all is written
  } catch (const std::exception& error) {
    group->fail(error.what());
    throw;
  }
  if (status != 0) throw Failed(status);
}

/// Numbers from `least`, or above it, and below `below`: unlike in CLI11's own checks NaN is none of them.
CLI::Validator number(double least, bool above = false,
                      double below = std::numeric_limits<double>::infinity()) {
  return {[=](const std::string& text) -> std::string {
            double value = 0;
            const bool is_number = CLI::detail::lexical_cast(text, value);
            if (is_number && (above ? value > least : value >= least) && value < below) return "";
            const auto range = (above ? "above " : "of at least ") + shown(least) +
                               (std::isinf(below) ? std::string() : " and below " + shown(below));
            return text + " is not a number " + range;
          },
          "", ""};
}

void add_arguments(CLI::App& command, TrainingArguments& a) {
  constexpr auto group = "Training (names and defaults are transformers')";
  const auto option = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group)->capture_default_str();
  };
  option("--max-steps", a.max_steps, "Train for N steps of the optimizer, in place of --num-train-epochs");
  option("--num-train-epochs", a.num_train_epochs, "Go over the data so many times (with --tokens: once)")
      ->check(number(0, /*above=*/true));
  option("--learning-rate", a.learning_rate, "Set the highest learning rate")->check(number(0, true));
  option("--lr-scheduler-type", a.lr_scheduler_type, "Choose how the learning rate changes")
      ->check(CLI::IsMember({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
                             "constant_with_warmup", "inverse_sqrt"}));
  option("--warmup-steps", a.warmup_steps,
         "Reach the highest learning rate after N steps; below 1: after this share of all steps")
      ->check(number(0));
  option("--optim", a.optim, "Choose the optimizer")
      ->check(CLI::IsMember({"adamw_torch", "adamw_torch_fused", "sgd", "adafactor"}));
  option("--adam-beta1", a.adam_beta1, "Set AdamW's beta1")->check(number(0, false, /*below=*/1));
  option("--adam-beta2", a.adam_beta2, "Set AdamW's beta2")->check(number(0, false, 1));
  option("--adam-epsilon", a.adam_epsilon, "Set AdamW's epsilon")->check(number(0));
  option("--weight-decay", a.weight_decay, "Decay weights by this; never biases and normalisations")
      ->check(number(0));
  command
      .add_option("--loraplus-lr-ratio", a.loraplus_lr_ratio,
                  "Train B so many times as fast as A, and adapters of embeddings at their own rate (LoRA+)")
      ->check(number(0, true))
      ->group(group);
  option("--loraplus-lr-embedding", a.loraplus_lr_embedding,
         "Set the learning rate for adapters of embeddings (LoRA+)")
      ->check(number(0));
  option("--max-grad-norm", a.max_grad_norm, "Clip gradients to this norm; 0: do not clip")->check(number(0));
  option("--gradient-accumulation-steps", a.gradient_accumulation_steps,
         "Add up the gradients of N batches in each step")
      ->check(number(1));
  command
      .add_flag("--gradient-checkpointing", a.gradient_checkpointing,
                "Compute activations again in the backward pass: less memory, more time")
      ->group(group);
  command.add_flag("--bf16", a.bf16, "Run the forward pass in bfloat16 where autocast allows it")
      ->group(group);
  command.add_flag("--fp16", a.fp16, "Run the forward pass in float16, with the loss scaled")
      ->group(group)
      ->excludes("--bf16");
  option("--save-strategy", a.save_strategy,
         "Save checkpoints never, every --save-steps steps, or after each epoch")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  option("--save-steps", a.save_steps, "Save a checkpoint every N steps, in --output; 0: save none")
      ->check(number(0));
  command.add_option("--save-total-limit", a.save_total_limit, "Keep only the last N checkpoints")
      ->check(number(1))
      ->group(group);
  option("--eval-steps", a.eval_steps, "Evaluate on --eval-data every N steps, too; 0: at the end only")
      ->check(number(0));
  command
      .add_flag("--load-best-model-at-end", a.load_best_model_at_end,
                "Keep the model with the lowest loss on --eval-data")
      ->group(group);
  option("--early-stopping-patience", a.early_stopping_patience,
         "Stop after N evaluations without a lower loss; 0: never")
      ->check(number(0));
  option("--early-stopping-threshold", a.early_stopping_threshold,
         "Count a loss as lower when it is lower by this much")
      ->check(number(0));
  option(
      "--zero-stage", a.zero_stage,
      "Share the optimizer's state among processes (1), and the weights that are not trained (3); see graft "
      "launch")
      ->check(CLI::IsMember({0, 1, 3}));
  option("--seed", a.seed, "Fix the random numbers: a fresh adapter, dropout, the order of the data")
      ->check(number(0));
}

}  // namespace

void add_train(CLI::App& app) {
  auto* command = app.add_subcommand("train", "Fine-tune an adapter, or a whole model");
  auto flags = std::make_shared<TrainFlags>();
  flags->command = command;
  flags->model.add_to(*command);
  flags->model.add_task_to(*command);
  command->add_option("--adapter", flags->adapter, "Go on training this adapter, [NAME=]DIR");
  command->add_option("--adapter-config", flags->adapter_config,
                      "Train a fresh adapter by this adapter_config.json, or the one in this folder");
  command->add_flag("--full", flags->full, "Train all weights of the model");
  command->add_option(
      "--data", flags->data,
      "Train on this JSONL file: rows with input_ids [, labels], text, messages, or prompt and completion; "
      "for a classifier with label");
  command->add_option("--tokens", flags->tokens,
                      "Train on the batches of this safetensors file in order: input_ids [steps, batch, seq] "
                      "[, labels, ...]");
  command->add_option("--eval-data", flags->eval_data,
                      "Measure loss, perplexity and accuracy on this JSONL or safetensors file at the end");
  command->add_flag("--eval-on-start", flags->eval_on_start, "Measure them before the first step, too");
  command->add_flag("--assistant-only-loss,!--no-assistant-only-loss", flags->rows.assistant_only_loss,
                    "Learn what the assistant says in rows with messages (default), or all of it");
  command->add_flag("--skip-bad-rows", flags->rows.skip_bad_rows, "Count bad rows of --data and continue");
  command->add_option("--max-length", flags->rows.max_length, "Cut rows of --data after N tokens")
      ->check(number(1));
  command
      ->add_option("--pad-to-multiple-of", flags->rows.pad_to_multiple_of,
                   "Round the length of batches up: fewer shapes to compile")
      ->check(number(1))
      ->capture_default_str();
  command->add_option("--output", flags->output, "Write the adapter or the model to this folder")->required();
  command->add_option("--report", flags->report, "Write losses, times and counters to this file as JSON");
  command->add_flag("--resume", flags->resume, "Go on from the last checkpoint in --output");
  command
      ->add_option(
          "--logging-steps", flags->logging_steps,
          "Print a line every N steps (default: at a terminal one that changes, else about every ten "
          "seconds)")
      ->check(CLI::PositiveNumber);
  add_arguments(*command, flags->arguments);
  command
      ->add_option("--per-device-train-batch-size", flags->rows.batch_size,
                   "Put N rows of --data into a batch")
      ->check(number(1))
      ->capture_default_str()
      ->group("Training (names and defaults are transformers')");
  command
      ->add_option("--ddp-timeout", flags->ddp_timeout, "Let a call among the processes fail after N seconds")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->group("Training (names and defaults are transformers')");
  flags->compile.add_to(*command);
  command->footer(
      "Example:\n  echo '{\"peft_type\": \"LORA\", \"r\": 8, \"target_modules\": \"all-linear\"}' > "
      "lora.json\n  "
      "graft train --model checkpoints/llama --adapter-config lora.json --tokens tokens.safetensors "
      "--output out\n    --max-steps 50 --learning-rate 1e-4 --compile");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
