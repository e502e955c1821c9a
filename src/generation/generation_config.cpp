// Reads generation_config.json as transformers does: what is absent or null has its default there.
#include <algorithm>
#include <cmath>

#include "generation/settings.h"
#include "graft/error.h"
#include "io/format/hub_cache.h"
#include "io/format/json.h"
#include "support/log.h"

namespace graft {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

/// `whole_file`: all of it is about generation, so that a field which nobody knows is worth a warning.
GenerationConfig read(const json& values, const fs::path& path, bool whole_file) {
  GenerationConfig config;
  if (!values.is_object()) throw FormatError("[generate] " + path.string() + " is not a JSON object");
  const auto value_of = [&](std::string_view key) {
    const auto found = values.find(key);
    return found == values.end() ? json() : *found;
  };
  for (const auto& [key, value] : values.items()) {
    if (const auto why = generation::why_refused(key, value))
      throw ConfigError("[generate] " + path.string() + " sets \"" + key + "\": " + *why +
                        "; take the field out, or generate without it");
  }
  for (const auto& setting : generation::settings())
    setting.read(config, value_of(setting.name), path.string());
  if (const auto draws = value_of("do_sample"); draws.is_boolean())
    config.do_sample = draws.get<bool>();
  else if (!draws.is_null())
    throw ConfigError("[generate] " + path.string() + ": \"do_sample\" must be true or false, got " +
                      draws.dump());
  if (!whole_file) return config;
  for (const auto& [key, value] : values.items()) {
    const auto is_this = [&](const generation::Setting& setting) { return setting.name == key; };
    const bool known = key == "do_sample" || generation::changes_nothing(key) ||
                       std::any_of(generation::settings().begin(), generation::settings().end(), is_this);
    if (!known && !value.is_null())
      log_warning("[generate] " + path.string() + ": nothing here knows the field \"" + key + "\"");
  }
  return config;
}

}  // namespace

GenerationConfig GenerationConfig::from_pretrained(const fs::path& given) {
  const auto dir = io::local_path(given);
  const auto own = dir / "generation_config.json";
  if (fs::exists(own)) return read(io::read_json_file(own), own, /*whole_file=*/true);
  // A GGUF file's metadata, too, have the ids of tokens.
  const auto model = Config::from_pretrained(dir);
  return read(json::parse(model.dump()), dir / "config.json", /*whole_file=*/false);
}

void GenerationConfig::check() const {
  for (const auto& setting : generation::settings()) {
    if (setting.group == generation::SettingGroup::sampling && !do_sample) continue;
    setting.check(*this);
  }
  for (const auto& words : bad_words_ids)
    if (words.empty()) throw UsageError("[generate] bad_words_ids holds a word without tokens: take it out");
  const bool has_nan =
      std::ranges::any_of(sequence_bias, [](const auto& each) { return std::isnan(each.bias); });
  if (has_nan || (exponential_decay_length_penalty && std::isnan(exponential_decay_length_penalty->factor)))
    throw UsageError("[generate] " +
                     std::string(has_nan ? "a bias of sequence_bias"
                                         : "the factor of "
                                           "exponential_decay_length_penalty") +
                     " is nan, which would choose any token: give a number");
  if (num_return_sequences > num_beams && num_beams > 1)
    throw UsageError("[generate] num_return_sequences is " + std::to_string(num_return_sequences) +
                     " and num_beams " + std::to_string(num_beams) +
                     ": beam search returns at most as many sequences as it has beams");
  if (num_return_sequences > 1 && num_beams == 1 && !do_sample)
    throw UsageError("[generate] num_return_sequences is " + std::to_string(num_return_sequences) +
                     ", and greedy decoding finds one: draw (do_sample) or search with beams (num_beams)");
  if (exponential_decay_length_penalty && eos_token_id.empty())
    throw UsageError(
        "[generate] exponential_decay_length_penalty makes the end likelier, and there is no eos_token_id");
}

}  // namespace graft
