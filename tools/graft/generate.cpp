// graft generate: more tokens for a prompt.
#include "graft/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "generation_flags.h"
#include "graft/chat_template.h"
#include "graft/error.h"
#include "graft/safetensors.h"
#include "inputs.h"
#include "io/format/atomic_file.h"
#include "output_folder.h"
#include "prompts.h"
#include "report.h"
#include "terminal_text.h"

namespace graft::cli {
namespace {
using Clock = std::chrono::steady_clock;

struct GenerateFlags {
  ModelFlags model;
  AdapterFlags adapter;
  CompileFlags compile;
  GenerationFlags generation;
  std::vector<std::string> prompts, prompt_files;
  std::string input, output, report;
  std::string system, draft;
  bool chat = false, json = false, logprobs = false, speculative_sampling = false;

  void add_to(CLI::App& app);
  void check() const;
};

void GenerateFlags::add_to(CLI::App& app) {
  model.add_to(app);
  take_as_they_are(app.add_option("--prompt", prompts, "Continue this text; several are one batch"));
  take_as_they_are(
      app.add_option("--prompt-file", prompt_files,
                     "Read a prompt from this file, - for the standard input; several are one batch"));
  app.add_flag("--chat", chat,
               "Take each prompt as a user's message, and put it through the model's chat template");
  app.add_option("--system", system, "Begin with this system message (with --chat)");
  app.add_option(
      "--input", input,
      "Read token ids from this safetensors file: input_ids [, attention_mask], padding on the left");
  app.add_option("--output", output,
                 "Write this safetensors file: sequences, the prompt included [, logprobs]");
  app.add_flag("--logprobs", logprobs, "Give the logarithm of each new token's probability, too");
  generation.add_to(app);
  app.add_option("--draft", draft,
                 "Guess tokens by a smaller model with the same vocabulary (a checkpoint), and check several "
                 "in one call: "
                 "the same tokens, often sooner. For one prompt");
  app.add_flag(
      "--speculative-sampling", speculative_sampling,
      "Draw the guesses, too (with --draft and --do-sample); more of them are kept, the probabilities "
      "are the same, the tokens of a seed are not");
  app.add_option("--report", report, "Write times and counters to this file as JSON");
  app.add_flag("--json", json, "Print sequences, texts, logprobs and the report as JSON");
  adapter.add_to(app);
  compile.add_to(app);
}

void GenerateFlags::check() const {
  const bool has_text = !prompts.empty() || !prompt_files.empty();
  if (has_text == !input.empty())
    throw WrongUsage(
        "give the prompt as text (--prompt, --prompt-file) or as token ids (--input), one of them");
  if (std::count(prompt_files.begin(), prompt_files.end(), "-") > 1)
    throw WrongUsage("--prompt-file - reads the standard input to its end: give it once");
  if (chat && !has_text) throw WrongUsage("--chat needs a --prompt or a --prompt-file");
  if (!chat && !system.empty()) throw WrongUsage("--system is for --chat");
  if (speculative_sampling && draft.empty()) throw WrongUsage("--speculative-sampling needs a --draft");
}

/// When tokens came.
class StepTimes {
 public:
  /// The first two steps of a program are checked against eager, and compiling is part of the first: what is
  /// measured comes after them.
  static constexpr size_t warm = 4;

  void tick() { at_.push_back(Clock::now()); }

  void add_to(nlohmann::ordered_json& report, int64_t batch) const {
    const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
    report["first_token_s"] = at_.empty() ? 0 : seconds(at_.front() - start_);
    report["first_call_s"] = report["first_token_s"];
    std::vector<double> steps;
    for (size_t i = warm; i < at_.size(); ++i) steps.push_back(1e3 * seconds(at_[i] - at_[i - 1]));
    std::sort(steps.begin(), steps.end());
    for (const char* key : {"median_ms", "min_ms", "tokens_per_s"}) report[key] = nullptr;
    if (steps.empty()) return;
    report["median_ms"] = steps[steps.size() / 2];
    report["min_ms"] = steps.front();
    report["tokens_per_s"] = 1e3 * static_cast<double>(batch) / steps[steps.size() / 2];
  }

  /// With guesses, tokens come several at once: what counts is how many came in how long.
  void add_assisted_to(nlohmann::ordered_json& report) const {
    add_to(report, 1);
    if (at_.size() <= warm) return;
    const double seconds = std::chrono::duration<double>(at_.back() - at_[warm - 1]).count();
    const auto tokens = static_cast<double>(at_.size() - warm);
    report["tokens_per_s"] = tokens / seconds;
    report["median_ms"] = 1e3 * seconds / tokens;
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::vector<Clock::time_point> at_;
};

std::vector<int64_t> row_of(const at::Tensor& sequences, int64_t row, int64_t from) {
  const auto host = sequences[row].slice(0, from).cpu().contiguous();
  const auto* values = host.const_data_ptr<int64_t>();
  return {values, values + host.numel()};
}

std::vector<float> numbers_of(const at::Tensor& values) {
  const auto host = values.cpu().contiguous();
  return {host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel()};
}

/// Everything about one run of the command.
class Generation {
 public:
  explicit Generation(const GenerateFlags& flags)
      : flags_(flags), config_(flags.generation.config(flags.model.model)) {
    flags.compile.options();  // wrong ones before anything is loaded
    auto read = flags.adapter.read_with({flags.model.model, flags.draft, flags.input});
    read.insert(read.end(), flags.prompt_files.begin(), flags.prompt_files.end());
    refuse_unwritable({{"--output", flags.output}, {"--report", flags.report}}, read);
    config_.speculative_sampling = flags.speculative_sampling;
    if (flags.speculative_sampling && !config_.do_sample)
      throw WrongUsage("--speculative-sampling says how to draw: give --do-sample too");
    if (!flags.draft.empty() && flags.generation.is_given("--prompt-lookup"))
      throw WrongUsage("--draft and --prompt-lookup both guess tokens: give one of them");
    auto prompts = flags.prompts;
    for (const auto& path : flags.prompt_files) prompts.push_back(prompt_from(path));
    if (!prompts.empty()) tokenizer_ = tokenizer_of(flags.model.model);
    stop_reader_ = tokenizer_;
    if (!config_.stop_strings.empty() && !stop_reader_)
      stop_reader_ = Tokenizer::from_pretrained(flags.model.model);
    if (flags.chat) put_through_template(prompts);
    model_ = flags.model.load_generator();
    if (!flags.draft.empty()) {
      auto draft = flags.model;  // in its dtype and on its device
      draft.model = flags.draft;
      draft_ = draft.load_generator();
      config_.prompt_lookup_num_tokens.reset();  // the file's: a flag goes before it
    }
    peft_ = flags.adapter.load(model_, flags.model.model, /*trainable=*/false);
    prompt_ = tokenizer_ ? encode_prompts(*tokenizer_, prompts, pad(), !flags.chat)
                         : read_inputs(flags.input, *model_);
  }

  void run() {
    StepTimes times;
    // One row is printed as it comes; several would be mixed up.
    const bool streams = tokenizer_ && !flags_.json && !flags_.logprobs && rows() == 1;
    GrowingText text(tokenizer_);
    int64_t calls = 0, guesses = 0, right = 0;
    const GenerateCall call{.adapter_names = flags_.adapter.names,
                            .on_tokens =
                                [&](const std::vector<int64_t>& tokens) {
                                  times.tick();
                                  if (streams) std::cout << for_output(text.add(tokens[0])) << std::flush;
                                  return true;
                                },
                            .assistant_model = draft_,
                            .on_candidates =
                                [&](int64_t guessed, int64_t kept) {
                                  ++calls;
                                  guesses += guessed;
                                  right += kept;
                                },
                            .tokenizer = stop_reader_};
    const auto made = generated(call);
    const auto& sequences = made.sequences;
    if (streams) std::cout << for_output(text.finish()) << "\n";
    if (!flags_.output.empty()) save_safetensors(flags_.output, tensors_of(made));
    if (!flags_.json && !streams) print(made);

    nlohmann::ordered_json report{{"architecture", model_->architecture()},
                                  {"new_tokens", sequences.size(1) - given()}};
    if (draft_ || config_.prompt_lookup_num_tokens) {
      times.add_assisted_to(report);
      report["assisted"] = {{"calls", calls}, {"guessed", guesses}, {"right", right}};
    } else {
      times.add_to(report, sequences.size(0));
    }
    const auto counted = counters();
    report["compile_s"] = counted.compile_seconds;
    add_counters(report);
    if (!flags_.report.empty()) io::write_file_atomically(flags_.report, report.dump(2) + "\n");
    if (flags_.json) print_json(made, std::move(report));
  }

 private:
  void put_through_template(std::vector<std::string>& prompts) const {
    const auto chat = ChatTemplate::from_pretrained(flags_.model.model);
    for (auto& prompt : prompts) {
      std::vector<ChatMessage> messages;
      if (!flags_.system.empty()) messages.push_back({"system", flags_.system});
      messages.push_back({"user", prompt});
      prompt = chat->render(messages, {.add_generation_prompt = true});
    }
  }

  int64_t pad() const {
    return config_.pad_token_id.value_or(tokenizer_ ? tokenizer_->pad_token_id().value_or(0) : 0);
  }

  /// How many tokens of a sequence are not the model's: the prompt, or an encoder-decoder's start token.
  int64_t given() const {
    return model_->config().boolean("is_encoder_decoder", false) ? 1 : prompt_.input_ids.size(1);
  }

  int64_t copies() const { return std::max<int64_t>(1, config_.num_return_sequences); }
  int64_t rows() const { return prompt_.input_ids.size(0) * std::max(config_.num_beams, copies()); }

  GenerateOutput generated(const GenerateCall& call) {
    const auto by = [&](auto& model) -> GenerateOutput {
      if (flags_.logprobs) return generate_with_scores(model, prompt_, config_, call);
      return {.sequences = generate(model, prompt_, config_, call)};
    };
    if (!flags_.compile.compile) return peft_ ? by(*peft_) : by(*model_);
    const auto options = flags_.compile.options();
    Decoder decoder = peft_ ? Decoder(peft_, options) : Decoder(model_, options);
    if (flags_.logprobs) return decoder.generate_with_scores(prompt_, config_, call);
    return {.sequences = decoder.generate(prompt_, config_, call)};
  }

  static NamedTensors tensors_of(const GenerateOutput& made) {
    NamedTensors tensors{{"sequences", made.sequences.cpu()}};
    if (made.logprobs.defined()) tensors.emplace_back("logprobs", made.logprobs.cpu());
    if (made.sequences_scores.defined())
      tensors.emplace_back("sequences_scores", made.sequences_scores.cpu());
    return tensors;
  }

  /// The new tokens of a row as text.
  std::string text_of(const at::Tensor& sequences, int64_t row) const {
    return tokenizer_->decode(row_of(sequences, row, given()));
  }

  /// "[2] ", or "[2.0] " where a prompt has several texts.
  std::string label(int64_t row) const {
    const auto prompt = std::to_string(row / copies());
    return "[" + (copies() > 1 ? prompt + "." + std::to_string(row % copies()) : prompt) + "] ";
  }

  void print(const GenerateOutput& made) const {
    const auto& sequences = made.sequences;
    if (!tokenizer_ && !flags_.output.empty()) return;
    for (int64_t row = 0; row < sequences.size(0); ++row) {
      if (tokenizer_) {
        std::cout << label(row) << for_output(text_of(sequences, row)) << "\n";
      } else {
        const char* gap = "";
        for (const int64_t id : row_of(sequences, row, 0)) std::cout << std::exchange(gap, " ") << id;
        std::cout << "\n";
      }
      if (made.logprobs.defined()) print_logprobs(made, row);
    }
  }

  /// A line for each new token: its logarithm, its id and what it is spelled as.
  void print_logprobs(const GenerateOutput& made, int64_t row) const {
    const auto ids = row_of(made.sequences, row, given());
    const auto values = numbers_of(made.logprobs[row]);
    for (size_t i = 0; i < ids.size(); ++i) {
      std::cout << "  " << values[i] << "\t" << ids[i];
      if (tokenizer_) std::cout << "\t" << for_output(tokenizer_->id_to_token(ids[i]).value_or(""));
      std::cout << "\n";
    }
  }

  void print_json(const GenerateOutput& made, nlohmann::ordered_json report) const {
    nlohmann::ordered_json all;
    for (int64_t row = 0; row < made.sequences.size(0); ++row) {
      all["sequences"].push_back(row_of(made.sequences, row, 0));
      if (tokenizer_) all["texts"].push_back(text_of(made.sequences, row));
      if (made.logprobs.defined()) all["logprobs"].push_back(numbers_of(made.logprobs[row]));
    }
    if (made.sequences_scores.defined()) all["sequences_scores"] = numbers_of(made.sequences_scores);
    all["report"] = std::move(report);
    std::cout << all.dump() << "\n";
  }

  const GenerateFlags& flags_;
  GenerationConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;    ///< none: ids in, ids out
  std::shared_ptr<const Tokenizer> stop_reader_;  ///< of stop strings
  std::shared_ptr<PreTrainedModel> model_, draft_;
  std::shared_ptr<PeftModel> peft_;
  ModelInputs prompt_;
};

}  // namespace

void add_generate(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "Generate text from a prompt");
  auto flags = std::make_shared<GenerateFlags>();
  flags->add_to(*command);
  command->footer(
      "Example:\n  graft generate --model checkpoints/llama --input ids.safetensors --max-new-tokens 40 "
      "--output out.safetensors --compile\n  graft generate --model checkpoints/llama --adapter "
      "de=adapters/de "
      "--prompt \"Once upon a time\" --do-sample --temperature 0.8 --seed 1");
  command->callback([flags] {
    flags->check();
    Generation(*flags).run();
  });
}

}  // namespace graft::cli
