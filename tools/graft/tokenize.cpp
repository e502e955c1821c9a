// graft tokenize: text to token ids, and back.
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "flags.h"
#include "graft/error.h"
#include "graft/tokenizer.h"

namespace graft::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  std::vector<std::string> texts;
  bool decode = false, no_special_tokens = false, json = false;
};

/// Ids with spaces or commas between them.
std::vector<int64_t> ids_of(std::string_view line) {
  std::vector<int64_t> ids;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == ' ' || line[at] == ',' || line[at] == '\t') {
      ++at;
      continue;
    }
    int64_t id = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), id);
    const bool ends = end == line.data() + line.size() || *end == ' ' || *end == ',' || *end == '\t';
    if (error != std::errc() || !ends || id < 0)
      throw UsageError("[tokenize] no list of token ids: \"" + std::string(line) + "\"");
    ids.push_back(id);
    at = static_cast<size_t>(end - line.data());
  }
  return ids;
}

void encode(const Tokenizer& tokenizer, const TokenizeFlags& flags, const std::string& text) {
  const auto ids = tokenizer.encode(text, {}, !flags.no_special_tokens).ids;
  if (flags.json) {
    nlohmann::ordered_json line{{"ids", ids}, {"tokens", nlohmann::json::array()}};
    for (const int64_t id : ids) line["tokens"].push_back(tokenizer.id_to_token(id).value_or(""));
    std::cout << line.dump() << "\n";
    return;
  }
  const char* gap = "";
  for (const int64_t id : ids) std::cout << std::exchange(gap, " ") << id;
  std::cout << "\n";
}

void decode(const Tokenizer& tokenizer, const TokenizeFlags& flags, const std::string& line) {
  const auto text = tokenizer.decode(ids_of(line), flags.no_special_tokens);
  if (flags.json)
    std::cout << nlohmann::ordered_json{{"text", text}}.dump() << "\n";
  else
    std::cout << text << "\n";
}

void run(const TokenizeFlags& flags) {
  const auto tokenizer = Tokenizer::from_pretrained(flags.model);
  const auto one = [&](const std::string& text) {
    (flags.decode ? decode : encode)(*tokenizer, flags, text);
  };
  for (const auto& text : flags.texts) one(text);
  if (flags.texts.empty())
    for (std::string line; std::getline(std::cin, line);) one(line);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto* command = app.add_subcommand("tokenize", "Convert text to token ids, or ids to text");
  auto flags = std::make_shared<TokenizeFlags>();
  command->add_option("model", flags->model, "A checkpoint folder, tokenizer.json or .gguf file")->required();
  take_as_they_are(command->add_option(
      "text", flags->texts, "The texts, or ids with --decode (default: lines of the standard input)"));
  command->add_flag("--decode", flags->decode, "Convert ids to text");
  command->add_flag("--no-special-tokens", flags->no_special_tokens,
                    "Add no special tokens to ids, and leave them out of text");
  command->add_flag("--json", flags->json, "Print a JSON object on each line, with the tokens");
  command->footer(
      "Example:\n  graft tokenize model.gguf \"Hello world\"\n  graft tokenize model.gguf --decode \"19556 "
      "905\"");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
