// graft chat: a conversation, line by line.
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "conversation.h"
#include "flags.h"
#include "generation_flags.h"
#include "graft/error.h"
#include "interrupt.h"
#include "io/format/atomic_file.h"
#include "output_folder.h"
#include "prompts.h"
#include "support/counted.h"
#include "terminal_text.h"

namespace graft::cli {
namespace {
using Clock = std::chrono::steady_clock;

struct ChatFlags {
  ModelFlags model;
  std::vector<std::string> adapters;
  GenerationFlags generation;
  CompileFlags compile;
  std::string system, report;
  bool json = false;

  void add_to(CLI::App& app);
};

void ChatFlags::add_to(CLI::App& app) {
  model.add_to(app, /*positional=*/true);
  app.add_option("--adapter", adapters,
                 "Load this adapter folder, [NAME=]DIR; several may be given. The first is active; "
                 "`/adapter NAME` switches");
  app.add_option("--system", system, "Begin with this system message");
  app.add_flag("--json", json, "Print each answer as a JSON object on a line of its own");
  app.add_option("--report", report, "Write what each turn cost as JSON, at the end");
  generation.add_to(app);
  compile.add_to(app);
}

constexpr auto kHelp =
    "/adapter NAME   switch to that adapter (\"none\": the bare model)\n"
    "/adapter        list the adapters\n"
    "/reset          forget the conversation\n"
    "/help           show this\n"
    "/quit           end the program (or Ctrl-D)\n"
    "//...           a message that begins with a slash\n"
    "Ctrl-C          stop the answer\n";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        interactive_(isatty(STDIN_FILENO) != 0),
        config_(flags.generation.config(flags.model.model)),
        form_(ChatTemplate::from_pretrained(flags.model.model)),
        tokenizer_(Tokenizer::from_pretrained(flags.model.model)),
        conversation_(form_, tokenizer_, flags.system) {
    refuse_unwritable({{"--report", flags.report}},
                      AdapterFlags{flags.adapters}.read_with({flags.model.model}));
    if (config_.num_beams > 1 || config_.num_return_sequences > 1)
      throw WrongUsage(
          "an answer comes token by token: num_beams and num_return_sequences are for `graft generate`");
    const auto options = flags.compile.options();
    model_ = flags.model.load_causal_lm();
    const auto specs = adapter_specs(flags.adapters);
    if (!specs.empty()) {
      peft_ = std::make_shared<PeftModel>(model_);
      for (const auto& spec : specs) load_adapter(*peft_, spec, flags.model.model, /*trainable=*/false);
      peft_->set_adapter(specs.front().name);
      peft_->eval();
      adapter_ = specs.front().name;
    }
    const auto compiled = flags.compile.compile ? std::optional(options) : std::nullopt;
    session_ = std::make_unique<Session>(peft_ ? Session(peft_, compiled) : Session(model_, compiled));
  }

  void run() {
    if (interactive_) {
      catch_interrupts();
      std::cerr << "/help lists the commands\n";
    }
    for (std::string line; ask(line);) {
      if (line.empty()) continue;
      try {
        if (line == "/quit") break;
        if (line.starts_with("//"))
          answer(line.substr(1));
        else if (line.front() == '/')
          obey(line);
        else
          answer(line);
      } catch (const Error& error) {
        if (!interactive_) throw;
        std::cerr << "graft: " << error.what() << "\n";
      }
    }
    if (!flags_.report.empty())
      io::write_file_atomically(flags_.report, nlohmann::ordered_json{{"turns", turns_}}.dump(2) + "\n");
  }

 private:
  /// False at the end of the input. Ctrl-C takes back the line that was begun.
  bool ask(std::string& line) const {
    const auto prompt = [&] {
      if (interactive_) std::cerr << adapter_ << "> " << std::flush;
    };
    prompt();
    while (interactive_ && !wait_for_input()) {
      std::cerr << "\n/quit or Ctrl-D ends the program\n";
      prompt();
    }
    if (!std::getline(std::cin, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  void obey(const std::string& line) {
    const auto space = line.find(' ');
    const auto command = line.substr(0, space);
    const auto word = space == line.npos ? line.npos : line.find_first_not_of(' ', space);
    const auto argument = word == line.npos ? "" : line.substr(word);
    if (command == "/reset" && argument.empty())
      conversation_.reset();
    else if (command == "/help")
      std::cerr << kHelp;
    else if (command == "/adapter")
      argument.empty() ? list_adapters() : switch_adapter(argument);
    else
      throw UsageError("[chat] there is no command " + command +
                       "; /help lists them, and // begins a message with a slash");
  }

  void list_adapters() const {
    if (!peft_) std::cerr << "no adapters are loaded\n";
    for (const auto& name : peft_ ? peft_->adapter_names() : std::vector<std::string>{})
      std::cerr << (name == adapter_ ? "* " : "  ") << name << "\n";
  }

  /// In place: nothing is loaded or compiled again.
  void switch_adapter(const std::string& name) {
    const auto names = peft_ ? peft_->adapter_names() : std::vector<std::string>{};
    if (name == "none" && peft_) {
      peft_->disable_adapters();
      adapter_ = "none";
      return;
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      std::string known;
      for (const auto& each : names) known += (known.empty() ? "" : ", ") + each;
      throw UsageError("[chat] there is no adapter \"" + name + "\"; " +
                       (known.empty() ? "none are loaded" : "known are " + known));
    }
    peft_->enable_adapters();
    peft_->set_adapter(name);
    adapter_ = name;
  }

  /// Tokens that a conversation may have; none where the model goes on for ever.
  std::optional<int64_t> room() const {
    auto positions = model_->position_limit();
    if (!positions) positions = model_->config().optional_integer("max_position_embeddings");
    if (positions && peft_) positions = *positions - peft_->num_virtual_tokens();
    if (config_.max_length && !config_.max_new_tokens)
      positions = std::min(*config_.max_length, positions.value_or(INT64_MAX));
    return positions;
  }

  Conversation::Prompt prompt_for(const std::string& message) {
    constexpr int64_t by_default = 512;  // an answer ends by itself
    const auto limit = room();
    const auto answer = config_.max_new_tokens.value_or(std::min(by_default, limit.value_or(INT64_MAX) / 4));
    auto prompt = conversation_.with(message, limit, answer);
    if (prompt.forgotten > 0)
      std::cerr << "graft: the conversation is longer than the " << *limit
                << " tokens the model has room for: "
                << "the oldest " << counted(prompt.forgotten, "turn")
                << (prompt.forgotten == 1 ? " has" : " have") << " left it\n";
    prompt.left = std::min(prompt.left.value_or(INT64_MAX), config_.max_new_tokens.value_or(by_default));
    return prompt;
  }

  void answer(const std::string& message) {
    const auto prompt = prompt_for(message);
    auto config = config_;
    config.max_new_tokens = prompt.left;
    GrowingText growing(tokenizer_);
    std::string said;
    bool stopped = false;
    interrupted();  // one that came before the question is not meant
    const auto show = [&](const std::string& piece) {
      said += piece;
      if (!flags_.json) std::cout << for_output(piece) << std::flush;
    };
    const auto start = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    double first = 0;
    int64_t made = 0;
    const GenerateCall call{.on_tokens =
                                [&](const std::vector<int64_t>& tokens) {
                                  if (made++ == 0) first = seconds();
                                  show(growing.add(tokens[0]));
                                  stopped = interrupted();
                                  return !stopped;
                                },
                            .tokenizer = tokenizer_};
    session_->generate(prompt.inputs, config, call);
    show(growing.finish());
    turns_.push_back({{"adapter", adapter_},
                      {"conversation_tokens", prompt.inputs.input_ids.size(1)},
                      {"read_tokens", session_->tokens_read()},
                      {"new_tokens", made},
                      {"first_token_s", first},
                      {"seconds", seconds()},
                      {"turns_forgotten", prompt.forgotten},
                      {"stopped", stopped}});
    if (flags_.json) {
      nlohmann::ordered_json turn{{"role", "assistant"}, {"content", said}};
      if (!adapter_.empty()) turn["adapter"] = adapter_;
      if (stopped) turn["stopped"] = true;
      std::cout << turn.dump() << std::endl;  // NOLINT(performance-avoid-endl): read as it comes
    } else {
      std::cout << "\n" << std::flush;
    }
    if (stopped && interactive_) std::cerr << "(stopped)\n";
    conversation_.add(message, said);
  }

  const ChatFlags& flags_;
  bool interactive_;
  GenerationConfig config_;
  std::shared_ptr<const ChatTemplate> form_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Conversation conversation_;
  std::shared_ptr<PreTrainedModel> model_;
  std::shared_ptr<PeftModel> peft_;
  std::unique_ptr<Session> session_;
  std::string adapter_;
  std::vector<nlohmann::ordered_json> turns_;
};

}  // namespace

void add_chat(CLI::App& app) {
  auto* command = app.add_subcommand("chat", "Chat with a model");
  auto flags = std::make_shared<ChatFlags>();
  flags->add_to(*command);
  command->footer(
      std::string("Lines of the standard input are messages; those that start with / are commands:\n") +
      kHelp +
      "\nExample:\n  graft chat SmolLM2-135M-Instruct.gguf --system \"Be brief.\" --adapter "
      "de=adapters/de --do-sample --temperature 0.7");
  command->callback([flags] { Chat(*flags).run(); });
}

}  // namespace graft::cli
