// Reads generation_config.json as transformers does: what is absent or null has its default there.
#include <cmath>

#include "graft/error.h"
#include "graft/generate.h"
#include "io/format/json.h"
#include "support/log.h"

namespace graft {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

/// Fields that change the result in a way that is not implemented, with the value at which they do not.
struct Refused {
  std::string_view key, what;
  double neutral;
};
constexpr Refused refused_numbers[] = {
    {"num_beams", "beam search", 1},
    {"num_beam_groups", "beam search in groups", 1},
    {"num_return_sequences", "several sequences for one prompt", 1},
    {"penalty_alpha", "contrastive search", 0},
    {"diversity_penalty", "beam search in groups", 0},
    {"typical_p", "locally typical sampling", 1},
    {"epsilon_cutoff", "epsilon sampling", 0},
    {"eta_cutoff", "eta sampling", 0},
    {"encoder_repetition_penalty", "a repetition penalty over the prompt alone", 1},
    {"encoder_no_repeat_ngram_size", "forbidding what the prompt says", 0},
    {"guidance_scale", "classifier-free guidance", 1},
};
constexpr std::pair<std::string_view, std::string_view> refused_values[] = {
    {"top_h", "top-h sampling"},
    {"bad_words_ids", "banned words"},
    {"sequence_bias", "a bias on sequences"},
    {"forced_bos_token_id", "a forced first token"},
    {"forced_eos_token_id", "a forced last token"},
    {"exponential_decay_length_penalty", "a length penalty that decays"},
    {"watermarking_config", "watermarking"},
    {"stop_strings", "stop strings"},
    {"max_time", "a time limit"},
    {"dola_layers", "DoLa decoding"},
    {"constraints", "constrained beam search"},
    {"force_words_ids", "constrained beam search"},
};
constexpr std::string_view refused_flags[] = {"token_healing", "remove_invalid_values"};

[[noreturn]] void refuse(const std::string& label, std::string_view key, std::string_view what) {
  throw ConfigError("[generate] " + label + " sets \"" + std::string(key) + "\": " + std::string(what) +
                    " is not supported; take the field out, or generate without it");
}

void refuse_unsupported(const Config& fields, const std::string& label) {
  for (const auto& [key, what, neutral] : refused_numbers)
    if (fields.number(key, neutral) != neutral) refuse(label, key, what);
  for (const auto& [key, what] : refused_values)
    if (fields.has(key)) refuse(label, key, what);
  for (const auto key : refused_flags)
    if (fields.boolean(key, false)) refuse(label, key, "it");
}

/// Fields that change no token: bookkeeping, what is returned beside the tokens, which cache is used, beam
/// search's own, how guesses speed things up, and logits that are normalised before a softmax does so.
void acknowledge(const Config& fields) {
  fields.acknowledge({"transformers_version",
                      "_from_model_config",
                      "_commit_hash",
                      "bos_token_id",
                      "use_cache",
                      "cache_implementation",
                      "cache_config",
                      "max_cache_len",
                      "output_attentions",
                      "output_hidden_states",
                      "output_scores",
                      "output_logits",
                      "return_dict_in_generate",
                      "early_stopping",
                      "length_penalty",
                      "renormalize_logits",
                      "low_memory",
                      "use_mtp",
                      "is_assistant",
                      "num_assistant_tokens_schedule",
                      "assistant_early_exit",
                      "assistant_lookbehind",
                      "target_lookbehind",
                      "speculation_type",
                      "compile_config",
                      "disable_compile",
                      "prefill_chunk_size",
                      "continuous_batching_config"});
}

/// One id or a list of them.
std::vector<int64_t> token_ids(const Config& fields, const json& values, std::string_view key) {
  const auto found = values.find(key);
  if (found != values.end() && found->is_array()) return fields.integers(key);
  if (const auto one = fields.optional_integer(key)) return {*one};
  return {};
}

GenerationConfig read(const json& values, const fs::path& path, bool whole_file) {
  const auto fields = Config::from_json(values.dump(), path.string());
  refuse_unsupported(fields, path.string());
  const GenerationConfig defaults;
  GenerationConfig config{
      .max_new_tokens = fields.optional_integer("max_new_tokens"),
      .max_length = fields.optional_integer("max_length"),
      .min_new_tokens = fields.optional_integer("min_new_tokens"),
      .min_length = fields.integer("min_length", defaults.min_length),
      .eos_token_id = token_ids(fields, values, "eos_token_id"),
      .pad_token_id = fields.optional_integer("pad_token_id"),
      .decoder_start_token_id = fields.optional_integer("decoder_start_token_id"),
      .repetition_penalty = fields.number("repetition_penalty", defaults.repetition_penalty),
      .no_repeat_ngram_size = fields.integer("no_repeat_ngram_size", defaults.no_repeat_ngram_size),
      .suppress_tokens = fields.integers("suppress_tokens", defaults.suppress_tokens),
      .begin_suppress_tokens = fields.integers("begin_suppress_tokens", defaults.begin_suppress_tokens),
      .do_sample = fields.boolean("do_sample", defaults.do_sample),
      .temperature = fields.number("temperature", defaults.temperature),
      .top_k = fields.integer("top_k", defaults.top_k),
      .top_p = fields.number("top_p", defaults.top_p),
      .prompt_lookup_num_tokens = fields.optional_integer("prompt_lookup_num_tokens"),
      .max_matching_ngram_size = fields.integer("max_matching_ngram_size", defaults.max_matching_ngram_size),
      .num_assistant_tokens = fields.integer("num_assistant_tokens", defaults.num_assistant_tokens),
      .assistant_confidence_threshold =
          fields.number("assistant_confidence_threshold", defaults.assistant_confidence_threshold),
  };
  if (fields.has("min_p")) config.min_p = fields.number("min_p");
  acknowledge(fields);
  if (whole_file)
    for (const auto& key : fields.unread())
      log_warning("[generate] " + path.string() + ": nothing here knows the field \"" + key + "\"");
  return config;
}

}  // namespace

GenerationConfig GenerationConfig::from_pretrained(const fs::path& dir) {
  const auto own = dir / "generation_config.json";
  if (fs::exists(own)) return read(io::read_json_file(own), own, /*whole_file=*/true);
  // A GGUF file's metadata, too, have the ids of tokens.
  const auto model = Config::from_pretrained(dir);
  return read(json::parse(model.dump()), dir / "config.json", /*whole_file=*/false);
}

void GenerationConfig::check() const {
  const auto need = [](bool holds, const std::string& what, auto value) {
    if (!holds) throw UsageError("[generate] " + what + ", got " + std::to_string(value));
  };
  if (max_new_tokens) need(*max_new_tokens > 0, "max_new_tokens must be above 0", *max_new_tokens);
  need(min_length >= 0, "min_length must be at least 0", min_length);
  if (min_new_tokens) need(*min_new_tokens >= 0, "min_new_tokens must be at least 0", *min_new_tokens);
  need(repetition_penalty > 0 && std::isfinite(repetition_penalty), "repetition_penalty must be above 0",
       repetition_penalty);
  need(no_repeat_ngram_size >= 0, "no_repeat_ngram_size must be at least 0", no_repeat_ngram_size);
  if (prompt_lookup_num_tokens)
    need(*prompt_lookup_num_tokens > 0, "prompt_lookup_num_tokens must be above 0",
         *prompt_lookup_num_tokens);
  need(max_matching_ngram_size > 0, "max_matching_ngram_size must be above 0", max_matching_ngram_size);
  need(num_assistant_tokens > 0, "num_assistant_tokens must be above 0", num_assistant_tokens);
  need(assistant_confidence_threshold >= 0 && assistant_confidence_threshold <= 1,
       "assistant_confidence_threshold must be between 0 and 1", assistant_confidence_threshold);
  if (!do_sample) return;
  if (temperature == 0)
    throw UsageError("[generate] temperature 0 is greedy decoding: switch do_sample off instead");
  need(temperature > 0 && std::isfinite(temperature), "temperature must be above 0", temperature);
  need(top_k >= 0, "top_k must be at least 0, and 0 keeps all tokens", top_k);
  need(top_p >= 0 && top_p <= 1, "top_p must be between 0 and 1", top_p);
  if (min_p) need(*min_p >= 0 && *min_p <= 1, "min_p must be between 0 and 1", *min_p);
}

}  // namespace graft
