// graft chat: a conversation, line by line.
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "generation_flags.h"
#include "graft/chat_template.h"
#include "graft/error.h"
#include "prompts.h"

namespace graft::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  std::vector<std::string> adapters;
  GenerationFlags generation;
  CompileFlags compile;
  std::string system;
  bool json = false;

  void add_to(CLI::App& app);
};

void ChatFlags::add_to(CLI::App& app) {
  model.add_to(app, /*positional=*/true);
  app.add_option(
      "--adapter", adapters,
      "Adapter folder, [NAME=]DIR; may be given several times. The first is active; `/adapter NAME` "
      "switches");
  app.add_option("--system", system, "The system message");
  generation.add_to(app);
  app.add_flag("--json", json, "Print each answer as a JSON object on a line of its own");
  compile.add_to(app);
}

constexpr auto kHelp =
    "/adapter NAME   switch to that adapter (\"none\": the bare model)\n/adapter        which there are\n"
    "/reset          forget the conversation\n/quit           end (or the end of the input)\n";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        interactive_(isatty(STDIN_FILENO) != 0),
        config_(flags.generation.config(flags.model.model)),
        template_(ChatTemplate::from_pretrained(flags.model.model)),
        tokenizer_(tokenizer_of(flags.model.model)) {
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
    if (flags.compile.compile)
      decoder_ = std::make_unique<Decoder>(peft_ ? Decoder(peft_, options) : Decoder(model_, options));
    reset();
  }

  void run() {
    if (interactive_) std::cerr << "/help lists the commands\n";
    for (std::string line; ask(line);) {
      if (line.empty()) continue;
      try {
        if (line == "/quit") return;
        if (line.front() == '/')
          obey(line);
        else
          answer(line);
      } catch (const Error& error) {
        if (!interactive_) throw;
        std::cerr << "graft: " << error.what() << "\n";
      }
    }
  }

 private:
  bool ask(std::string& line) const {
    if (interactive_) std::cerr << (adapter_.empty() ? "" : adapter_) << "> " << std::flush;
    if (!std::getline(std::cin, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  void reset() {
    messages_.clear();
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  }

  void obey(const std::string& line) {
    const auto space = line.find(' ');
    const auto command = line.substr(0, space);
    const auto argument = space == line.npos ? "" : line.substr(line.find_first_not_of(' ', space));
    if (command == "/reset" && argument.empty())
      reset();
    else if (command == "/help")
      std::cerr << kHelp;
    else if (command == "/adapter")
      argument.empty() ? list_adapters() : switch_adapter(argument);
    else
      throw UsageError("[chat] there is no command " + command + "; /help lists them");
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

  void answer(const std::string& line) {
    auto messages = messages_;
    messages.push_back({"user", line});
    const auto text = template_->render(messages, {.add_generation_prompt = true});
    const auto prompt = encode_prompts(*tokenizer_, {text}, 0, /*special=*/false);
    GrowingText growing(tokenizer_);
    std::string said;
    const auto show = [&](const std::string& piece) {
      said += piece;
      if (!flags_.json) std::cout << piece << std::flush;
    };
    const GenerateCall call{.on_tokens = [&](const std::vector<int64_t>& tokens) {
      show(growing.add(tokens[0]));
      return true;
    }};
    const auto config = config_for(prompt);
    if (decoder_)
      decoder_->generate(prompt, config, call);
    else
      peft_ ? generate(*peft_, prompt, config, call) : generate(*model_, prompt, config, call);
    show(growing.finish());
    if (flags_.json) {
      nlohmann::ordered_json turn{{"role", "assistant"}, {"content", said}};
      if (!adapter_.empty()) turn["adapter"] = adapter_;
      std::cout << turn.dump() << std::endl;  // NOLINT(performance-avoid-endl): read as it comes
    } else {
      std::cout << "\n" << std::flush;
    }
    messages.push_back({"assistant", said});
    messages_ = std::move(messages);
  }

  /// An answer ends by itself: where nobody says how long it may be, it may fill the positions that are left,
  /// up to 512 tokens.
  GenerationConfig config_for(const ModelInputs& prompt) const {
    auto config = config_;
    if (config.max_new_tokens || config.max_length) return config;
    constexpr int64_t most = 512;
    const auto positions = model_->config().optional_integer("max_position_embeddings");
    const int64_t left = positions.value_or(INT64_MAX) - prompt.input_ids.size(1);
    if (left < 1)
      throw UsageError("[chat] the conversation has " + std::to_string(prompt.input_ids.size(1)) +
                       " tokens and the model " + std::to_string(*positions) + " positions: /reset");
    config.max_new_tokens = std::min(most, left);
    return config;
  }

  const ChatFlags& flags_;
  bool interactive_;
  GenerationConfig config_;
  std::shared_ptr<const ChatTemplate> template_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<PreTrainedModel> model_;
  std::shared_ptr<PeftModel> peft_;
  std::unique_ptr<Decoder> decoder_;
  std::string adapter_;
  std::vector<ChatMessage> messages_;
};

}  // namespace

void add_chat(CLI::App& app) {
  auto* command = app.add_subcommand("chat", "Talk with a model, line by line");
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
