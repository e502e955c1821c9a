#include "generation_flags.h"

#include <algorithm>

#include "command.h"
#include "graft/error.h"

namespace graft::cli {
namespace {
using generation::Setting;
using generation::SettingGroup;

constexpr auto kSampling = "Sampling";

std::string flag_of(std::string_view name) {
  // Shorter than transformers' names, as other programs have them.
  if (name == "stop_strings") return "--stop";
  if (name == "prompt_lookup_num_tokens") return "--prompt-lookup";
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

const char* title_of(SettingGroup group) {
  switch (group) {
    case SettingGroup::length:
      return "Length";
    case SettingGroup::tokens:
      return "Where a text ends";
    case SettingGroup::beams:
      return "Several texts, and beam search";
    case SettingGroup::rules:
      return "What may be said";
    case SettingGroup::sampling:
      return kSampling;
    case SettingGroup::guesses:
      return "Guessed tokens, checked several at a time";
  }
  return "";
}

template <class T>
bool is_a(const Setting& setting) {
  return std::holds_alternative<T GenerationConfig::*>(setting.field);
}

}  // namespace

void GenerationFlags::add(CLI::App& app, const Setting& setting) {
  auto& given = given_.emplace_back(Given{.setting = &setting, .flag = flag_of(setting.name)});
  const std::string help(setting.help);
  if (is_a<bool>(setting)) {
    given.option = app.add_flag(given.flag + ",!--no-" + given.flag.substr(2), given.is_on, help);
  } else {
    given.option = app.add_option(given.flag, given.texts, help);
    const bool is_text = is_a<std::vector<std::string>>(setting);
    given.option->type_name(is_text ? "TEXT" : setting.takes())->expected(1)->allow_extra_args(false);
    given.option->multi_option_policy(is_text ? CLI::MultiOptionPolicy::TakeAll
                                              : CLI::MultiOptionPolicy::TakeLast);
  }
  given.option->group(title_of(setting.group));
}

void GenerationFlags::add_to(CLI::App& app) {
  for (const auto& setting : generation::settings()) {
    if (setting.group == SettingGroup::sampling && !samples_) {
      samples_ =
          app.add_flag("--do-sample,!--greedy", do_sample_,
                       "Draw tokens; --greedy: take the likeliest (default: what generation_config.json "
                       "says, else greedy)")
              ->group(kSampling);
      app.add_option("--seed", seed_, "Draw the same tokens each time")->group(kSampling);
    }
    add(app, setting);
  }
  ignores_eos_ = app.add_flag("--ignore-eos", ignore_eos_, "Go on after the end of a text")
                     ->group(title_of(SettingGroup::tokens));
}

bool GenerationFlags::is_given(const std::string& flag) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const Given& each) { return each.flag == flag && each.option->count() > 0; });
}

void GenerationFlags::read(GenerationConfig& config, const Given& given) const {
  const auto& setting = *given.setting;
  nlohmann::json value = given.is_on;
  if (is_a<std::vector<std::string>>(setting))
    value = given.texts;
  else if (!is_a<bool>(setting))
    value = setting.parse(given.texts.back());
  if (!setting.read(config, value))
    throw WrongUsage(given.flag + " takes " + std::string(setting.wanted()) + ", not \"" +
                     given.texts.back() + "\"");
  try {
    setting.check(config);
  } catch (const UsageError& error) {
    throw WrongUsage(given.flag + ": " + error.what());
  }
}

GenerationConfig GenerationFlags::config(const std::string& model) const {
  GenerationConfig values;
  for (const auto& given : given_)  // before any file is opened
    if (given.option->count() > 0) read(values, given);
  auto config = GenerationConfig::from_pretrained(model);
  if (samples_->count() > 0) config.do_sample = do_sample_;
  if (ignore_eos_) config.eos_token_id.clear();
  for (const auto& given : given_) {
    if (given.option->count() == 0) continue;
    if (given.setting->group == SettingGroup::sampling && !config.do_sample)
      throw WrongUsage(given.flag + " says how to draw: give --do-sample too");
    if (ignore_eos_ && given.flag == "--eos-token-id")
      throw WrongUsage("--eos-token-id says where a text ends, and --ignore-eos that it does not: give one");
    read(config, given);
  }
  if (seed_ && !config.do_sample) throw WrongUsage("--seed says how to draw: give --do-sample too");
  if (config.do_sample) config.seed = seed_;
  try {
    config.check();
  } catch (const UsageError& error) {
    throw WrongUsage(error.what());
  }
  return config;
}

}  // namespace graft::cli
