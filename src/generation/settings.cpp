#include "generation/settings.h"

#include <algorithm>
#include <cmath>

#include "graft/error.h"

namespace graft::generation {
namespace {
using nlohmann::json;
using Config = GenerationConfig;
using enum SettingGroup;

constexpr double none = -std::numeric_limits<double>::infinity();
constexpr double tokens_at_most = INT32_MAX;
constexpr double any = std::numeric_limits<double>::infinity();

const Setting table[] = {
    {"max_new_tokens", &Config::max_new_tokens, length, "Add at most N tokens (default: 20)", 1,
     tokens_at_most},
    {"max_length", &Config::max_length, length, "Stop at N tokens, the prompt included", 1, tokens_at_most},
    {"min_new_tokens", &Config::min_new_tokens, length, "Do not end before N new tokens", 0, tokens_at_most},
    {"min_length", &Config::min_length, length, "Do not end before N tokens, the prompt included", 0,
     tokens_at_most},
    {"max_time", &Config::max_time, length, "Begin no further token after this many seconds", 0},

    {"eos_token_id", &Config::eos_token_id, tokens,
     "End a text at any of these token ids (default: the model's)"},
    {"stop_strings", &Config::stop_strings, tokens, "End a text where this string is complete"},
    {"pad_token_id", &Config::pad_token_id, tokens, "Fill rows that have ended with this token id", 0},
    {"decoder_start_token_id", &Config::decoder_start_token_id, tokens,
     "Start the decoder of an encoder-decoder with this token id", 0},

    {"num_beams", &Config::num_beams, beams, "Search with N beams; 1: no search", 1},
    {"length_penalty", &Config::length_penalty, beams,
     "Divide the score of a beam by its length to this power; above 0 favours longer texts"},
    {"early_stopping", &Config::early_stopping, beams,
     "End the search when N beams have ended (true), when better ones are unlikely (false), or only when "
     "they "
     "are impossible (never)"},
    {"num_return_sequences", &Config::num_return_sequences, beams,
     "Return N texts for each prompt: N draws, or the N best beams", 1},

    {"sequence_bias", &Config::sequence_bias, rules,
     "Add to the score of runs of tokens: JSON, [[[IDS], BIAS], ...]"},
    {"encoder_repetition_penalty", &Config::encoder_repetition_penalty, rules,
     "Above 1: make tokens of the prompt more likely", 0, any, true},
    {"repetition_penalty", &Config::repetition_penalty, rules,
     "Above 1: make tokens that are there already less likely", 0, any, true},
    {"no_repeat_ngram_size", &Config::no_repeat_ngram_size, rules, "Say no run of N tokens twice; 0: off", 0},
    {"encoder_no_repeat_ngram_size", &Config::encoder_no_repeat_ngram_size, rules,
     "Say no run of N tokens that is in the prompt; 0: off", 0},
    {"bad_words_ids", &Config::bad_words_ids, rules, "Never say these runs of token ids: JSON, [[IDS], ...]"},
    {"forced_bos_token_id", &Config::forced_bos_token_id, rules,
     "Make this token id the first after a single token (a decoder's start)", 0},
    {"forced_eos_token_id", &Config::forced_eos_token_id, rules,
     "Make one of these token ids the last one of a text of full length"},
    {"remove_invalid_values", &Config::remove_invalid_values, rules, "Replace scores that are not numbers"},
    {"exponential_decay_length_penalty", &Config::exponential_decay_length_penalty, rules,
     "START,FACTOR: after START new tokens make the end likelier with every token"},
    {"suppress_tokens", &Config::suppress_tokens, rules, "Never say these token ids"},
    {"begin_suppress_tokens", &Config::begin_suppress_tokens, rules, "Do not begin with these token ids"},
    {"renormalize_logits", &Config::renormalize_logits, rules,
     "Normalise scores again after all rules (for beams)"},

    {"temperature", &Config::temperature, sampling, "Divide the scores by this; above 1 draws more freely", 0,
     any, true, ": 0 would be greedy decoding, for which do_sample is switched off"},
    {"top_h", &Config::top_h, sampling, "Draw among the likeliest tokens up to this share of the entropy", 0,
     1, true},
    {"top_k", &Config::top_k, sampling, "Draw among the K likeliest tokens; 0: all", 0},
    {"top_p", &Config::top_p, sampling, "Draw among the likeliest tokens that together have this probability",
     0, 1},
    {"min_p", &Config::min_p, sampling, "Leave out tokens less likely than this share of the likeliest", 0,
     1},
    {"typical_p", &Config::typical_p, sampling,
     "Draw among the tokens nearest to the expected surprise that together have this probability", 0, 1,
     true},
    {"epsilon_cutoff", &Config::epsilon_cutoff, sampling, "Leave out tokens less likely than this", 0, 1},
    {"eta_cutoff", &Config::eta_cutoff, sampling, "The same, and less where the model is unsure", 0, 1},

    {"prompt_lookup_num_tokens", &Config::prompt_lookup_num_tokens, guesses,
     "Guess up to N tokens from what followed the last ones before: the same tokens, often sooner. For one "
     "prompt",
     1},
    {"max_matching_ngram_size", &Config::max_matching_ngram_size, guesses,
     "Look up the last N tokens, then fewer, for --prompt-lookup", 1},
    {"num_assistant_tokens", &Config::num_assistant_tokens, guesses, "Guess N tokens at a time with --draft",
     1},
    {"assistant_confidence_threshold", &Config::assistant_confidence_threshold, guesses,
     "Stop guessing after a token that --draft gives less probability", 0, 1},
};

/// Fields that ask for something that is not done, and the value (beside null) that asks for nothing.
struct Refused {
  std::string_view key, what;
  json neutral = nullptr;
};
const Refused refused[] = {
    {"num_beam_groups", "beam search in groups (transformers has moved it out of the library)", 1},
    {"diversity_penalty", "beam search in groups (transformers has moved it out of the library)", 0},
    {"penalty_alpha", "contrastive search (transformers has moved it out of the library)", 0},
    {"dola_layers", "DoLa decoding (transformers has moved it out of the library)"},
    {"constraints", "constrained beam search (transformers has moved it out of the library)"},
    {"force_words_ids", "constrained beam search (transformers has moved it out of the library)"},
    {"low_memory", "beam search one beam at a time (transformers refuses it, too)", false},
    {"guidance_scale", "classifier-free guidance, which needs a second prompt,", 1},
    {"watermarking_config", "watermarking"},
    {"token_healing", "changing the end of the prompt (token healing)", false},
    {"assistant_ensemble_weight", "a mixture of the model and its draft"},
    {"assistant_early_exit", "a draft made of the model's first layers"},
    {"use_mtp", "guesses by layers of the model that are made for it", false},
    {"speculation_type", "another kind of guesses"},
};

constexpr std::string_view without_effect[] = {"transformers_version",
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
                                               "is_assistant",
                                               "num_assistant_tokens_schedule",
                                               "assistant_lookbehind",
                                               "target_lookbehind",
                                               "compile_config",
                                               "disable_compile",
                                               "prefill_chunk_size",
                                               "continuous_batching_config"};

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};

bool is_id(const json& value) {
  return value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
}
bool is_list_of(const json& value, bool (*of)(const json&)) {
  return value.is_array() && std::all_of(value.begin(), value.end(), of);
}
bool is_ids(const json& value) { return is_list_of(value, is_id); }

/// What a value is to the fields that may be absent.
template <class T>
struct Plain {
  using Type = T;
};
template <class T>
struct Plain<std::optional<T>> {
  using Type = T;
};

/// Reads a value of each type there is; false where it is of another.
struct Reader {
  const json& value;

  bool operator()(int64_t& to) const { return is_id(value) && (to = value.get<int64_t>(), true); }
  bool operator()(double& to) const { return value.is_number() && (to = value.get<double>(), true); }
  bool operator()(bool& to) const { return value.is_boolean() && (to = value.get<bool>(), true); }
  bool operator()(std::vector<int64_t>& to) const {
    if (is_id(value)) return to = {value.get<int64_t>()}, true;
    return is_ids(value) && (to = value.get<std::vector<int64_t>>(), true);
  }
  bool operator()(std::vector<std::vector<int64_t>>& to) const {
    return is_list_of(value, is_ids) && (to = value.get<std::vector<std::vector<int64_t>>>(), true);
  }
  bool operator()(std::vector<std::string>& to) const {
    if (value.is_string()) return to = {value.get<std::string>()}, true;
    return is_list_of(value, [](const json& each) { return each.is_string(); }) &&
           (to = value.get<std::vector<std::string>>(), true);
  }
  bool operator()(EarlyStopping& to) const {
    if (value.is_boolean()) return to = value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no, true;
    return value == "never" && (to = EarlyStopping::never, true);
  }
  bool operator()(std::vector<TokenBias>& to) const {
    const auto is_pair = [](const json& each) {
      return each.is_array() && each.size() == 2 && is_ids(each[0]) && !each[0].empty() &&
             each[1].is_number();
    };
    if (!is_list_of(value, is_pair)) return false;
    to.clear();
    for (const auto& each : value) to.push_back({each[0].get<std::vector<int64_t>>(), each[1].get<double>()});
    return true;
  }
  bool operator()(LengthDecay& to) const {
    if (!value.is_array() || value.size() != 2 || !is_id(value[0]) || !value[1].is_number()) return false;
    to = {value[0].get<int64_t>(), value[1].get<double>()};
    return true;
  }
  template <class T>
  bool operator()(std::optional<T>& to) const {
    return (*this)(to.emplace());
  }
};

struct Wanted {
  std::string_view operator()(int64_t) const { return "a whole number"; }
  std::string_view operator()(double) const { return "a number"; }
  std::string_view operator()(bool) const { return "true or false"; }
  std::string_view operator()(const std::vector<int64_t>&) const { return "a token id or a list of them"; }
  std::string_view operator()(const std::vector<std::vector<int64_t>>&) const {
    return "a list of lists of token ids";
  }
  std::string_view operator()(const std::vector<std::string>&) const { return "a text or a list of them"; }
  std::string_view operator()(EarlyStopping) const { return "true, false or \"never\""; }
  std::string_view operator()(const std::vector<TokenBias>&) const {
    return "a list of [[token ids], number]";
  }
  std::string_view operator()(LengthDecay) const { return "a whole number and a number"; }
};

std::string shown(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";  // no JSON
  auto text = json(value).dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::span<const Setting> settings() { return table; }

std::string_view Setting::wanted() const {
  return std::visit([]<class T>(T Config::*) { return Wanted()(typename Plain<T>::Type()); }, field);
}

bool Setting::read(Config& config, const json& value) const {
  return std::visit([&](auto member) { return Reader{value}(config.*member); }, field);
}

std::string Setting::takes() const {
  const auto is = [&]<class T>(T Config::*) { return std::holds_alternative<T Config::*>(field); };
  if (name.ends_with("_token_id") && !is(&Config::suppress_tokens)) return "ID";
  if (is(&Config::num_beams) || is(&Config::max_length)) return name == "top_k" ? "K" : "N";
  if (is(&Config::suppress_tokens)) return "ID,...";
  if (is(&Config::early_stopping)) return "true|false|never";
  if (is(&Config::bad_words_ids) || is(&Config::sequence_bias)) return "JSON";
  if (is(&Config::exponential_decay_length_penalty)) return "START,FACTOR";
  return "X";
}

void Setting::read(Config& config, const json& value, const std::string& label) const {
  if (!value.is_null() && !read(config, value))
    throw ConfigError("[generate] " + label + ": \"" + std::string(name) + "\" must be " +
                      std::string(wanted()) + ", got " + value.dump());
}

json Setting::parse(const std::string& text) const {
  const bool is_text = std::holds_alternative<std::vector<std::string> Config::*>(field);
  const bool is_list = std::holds_alternative<std::vector<int64_t> Config::*>(field) ||
                       std::holds_alternative<std::optional<LengthDecay> Config::*>(field);
  if (is_text) return text;
  auto value = json::parse(is_list && !text.starts_with('[') ? "[" + text + "]" : text, nullptr,
                           /*allow_exceptions=*/false);
  return value.is_discarded() ? json(text) : value;
}

void Setting::check(const Config& config) const {
  const auto check_number = [&](double value) {
    const bool holds = std::isfinite(value) && (above ? value > least : value >= least) && value <= most;
    if (holds) return;
    std::string bounds = "a finite number";
    if (least != none && most != any)
      bounds =
          (above ? "above " : "between ") + shown(least) + (above ? " and at most " : " and ") + shown(most);
    else if (least != none)
      bounds = (above ? "above " : "at least ") + shown(least);
    if (!std::isfinite(value))
      throw UsageError("[generate] " + std::string(name) + " must be " +
                       (least != none ? "finite and " + bounds : bounds) + ", got " + shown(value));
    throw UsageError("[generate] " + std::string(name) + " must be " + bounds + ", got " + shown(value) +
                     std::string(advice));
  };
  std::visit(overloaded{[&](int64_t Config::* member) { check_number(static_cast<double>(config.*member)); },
                        [&](double Config::* member) { check_number(config.*member); },
                        [&](std::optional<int64_t> Config::* member) {
                          if (const auto& value = config.*member) check_number(static_cast<double>(*value));
                        },
                        [&](std::optional<double> Config::* member) {
                          if (const auto& value = config.*member) check_number(*value);
                        },
                        [](auto) {}},
             field);
}

std::optional<std::string> why_refused(std::string_view key, const json& value) {
  const auto found = std::find_if(std::begin(refused), std::end(refused),
                                  [&](const Refused& each) { return each.key == key; });
  if (found == std::end(refused) || value.is_null() || value == found->neutral) return {};
  return std::string(found->what) + " is not supported";
}

bool changes_nothing(std::string_view key) {
  return std::find(std::begin(without_effect), std::end(without_effect), key) != std::end(without_effect) ||
         std::any_of(std::begin(refused), std::end(refused),
                     [&](const Refused& each) { return each.key == key; });
}

}  // namespace graft::generation
