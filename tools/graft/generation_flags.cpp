#include "generation_flags.h"

#include "command.h"
#include "graft/error.h"

namespace graft::cli {

void GenerationFlags::add_to(CLI::App& app) {
  command_ = &app;
  app.add_option("--max-new-tokens", max_new_tokens, "Tokens to add at most")->check(CLI::PositiveNumber);
  app.add_option("--min-new-tokens", min_new_tokens, "No end before so many")->check(CLI::NonNegativeNumber);
  app.add_flag("--ignore-eos", ignore_eos, "Go on after the end of a sequence");
  app.add_option("--repetition-penalty", repetition_penalty,
                 "Above 1: tokens that are there become less likely");
  app.add_option("--prompt-lookup", prompt_lookup,
                 "Guess up to N tokens from what followed the last ones before, and check them in one call: "
                 "the same tokens, often sooner. For one prompt")
      ->check(CLI::PositiveNumber);
  constexpr auto group = "Sampling";
  app.add_flag("--do-sample,!--greedy", do_sample,
               "Draw tokens; --greedy: take the likeliest (default: what generation_config.json says, else "
               "greedy)")
      ->group(group);
  app.add_option("--temperature", temperature, "Divides the logits")->group(group);
  app.add_option("--top-k", top_k, "Draw among the K likeliest; 0: all")->group(group);
  app.add_option("--top-p", top_p, "Draw among the likeliest that together have this probability")
      ->group(group);
  app.add_option("--min-p", min_p, "Leave out what is less likely than this share of the likeliest")
      ->group(group);
  app.add_option("--seed", seed, "The same seed draws the same tokens")->group(group);
}

GenerationConfig GenerationFlags::config(const std::string& model) const {
  auto config = GenerationConfig::from_pretrained(model);
  if (command_->count("--do-sample") > 0) config.do_sample = do_sample;
  for (const char* flag : {"--temperature", "--top-k", "--top-p", "--min-p", "--seed"})
    if (!config.do_sample && command_->count(flag) > 0)
      throw WrongUsage(std::string(flag) + " says how to draw: give --do-sample too");
  if (max_new_tokens) config.max_new_tokens = max_new_tokens;
  if (min_new_tokens) config.min_new_tokens = min_new_tokens;
  if (temperature) config.temperature = *temperature;
  if (top_k) config.top_k = *top_k;
  if (top_p) config.top_p = *top_p;
  if (min_p) config.min_p = min_p;
  if (prompt_lookup) config.prompt_lookup_num_tokens = prompt_lookup;
  if (repetition_penalty) config.repetition_penalty = *repetition_penalty;
  if (ignore_eos) config.eos_token_id.clear();
  if (config.do_sample) config.seed = seed;
  try {
    config.check();
  } catch (const UsageError& error) {
    throw WrongUsage(error.what());
  }
  return config;
}

}  // namespace graft::cli
