#include "io/format/gguf_config.h"

#include <cmath>
#include <set>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {
using nlohmann::json;

namespace {

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .model_type = "llama", .class_name = "LlamaForCausalLM", .permutes_qk = true},
    {.name = "qwen2", .model_type = "qwen2", .class_name = "Qwen2ForCausalLM"},
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
    {.name = "gemma", .model_type = "gemma", .class_name = "GemmaForCausalLM", .norms_plus_one = true},
    {.name = "gemma2",
     .model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .norms_plus_one = true,
     .four_norms = true},
    {.name = "gemma3",
     .model_type = "gemma3_text",
     .class_name = "Gemma3ForCausalLM",
     .norms_plus_one = true,
     .four_norms = true},
};

struct Key {
  std::string_view gguf, config;
};
// Under the architecture's name: "llama.block_count".
constexpr Key kSizes[] = {{"context_length", "max_position_embeddings"},
                          {"block_count", "num_hidden_layers"},
                          {"feed_forward_length", "intermediate_size"},
                          {"embedding_length", "hidden_size"},
                          {"attention.head_count", "num_attention_heads"},
                          {"attention.head_count_kv", "num_key_value_heads"},
                          {"attention.sliding_window", "sliding_window"},
                          {"attention.key_length", "head_dim"},
                          {"vocab_size", "vocab_size"}};
constexpr Key kNumbers[] = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                            {"rope.freq_base", "rope_theta"},
                            {"attn_logit_softcapping", "attn_logit_softcapping"},
                            {"final_logit_softcapping", "final_logit_softcapping"}};
constexpr Key kTokenIds[] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                             {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                             {"tokenizer.ggml.unknown_token_id", "unk_token_id"},
                             {"tokenizer.ggml.padding_token_id", "pad_token_id"}};

class ConfigReader {
 public:
  ConfigReader(const GgufHeader& header, const std::string& label)
      : header_(header), label_(label), architecture_(gguf_architecture(header, label)) {}

  json read() {
    check_whole_file();
    config_["model_type"] = architecture_.model_type;
    config_["architectures"] = {architecture_.class_name};
    config_["dtype"] = "float32";  // transformers' default for such files, whatever they hold
    for (const auto& [gguf, name] : kSizes)
      if (const json* value = find(gguf)) config_[name] = integer(gguf, *value);
    for (const auto& [gguf, name] : kNumbers)
      if (const json* value = find(gguf)) config_[name] = number(gguf, *value);
    for (const auto& [gguf, name] : kTokenIds)
      if (const int64_t* id = header_.integer(gguf, label_)) config_[name] = *id;
    for (const char* needed :
         {"num_hidden_layers", "intermediate_size", "hidden_size", "num_attention_heads"})
      if (!config_.contains(needed)) fail("has no metadata for " + quote(needed));
    read_head_dim();
    read_rope_scaling();
    read_vocab_size();
    // llama.cpp writes the output's weight only where it is not the embedding's.
    config_["tie_word_embeddings"] = !tensor("output.weight");
    refuse_experts();
    keep_unknown();
    return std::move(config_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("[gguf] " + label_ + " " + what);
  }

  const GgufTensor* tensor(std::string_view name) const {
    for (const auto& each : header_.tensors)
      if (each.name == name) return &each;
    return nullptr;
  }

  /// The architecture's setting as JSON; lists and strings are null.
  const json* find(std::string_view name) {
    const auto key = std::string(architecture_.name) + "." + std::string(name);
    const auto found = header_.metadata.find(key);
    if (found == header_.metadata.end()) return nullptr;
    read_.insert(key);
    value_ = nullptr;
    if (const auto* whole = std::get_if<int64_t>(&found->second)) value_ = *whole;
    if (const auto* real = std::get_if<double>(&found->second)) value_ = *real;
    if (const auto* flag = std::get_if<bool>(&found->second)) value_ = *flag;
    if (const auto* text = std::get_if<std::string>(&found->second)) value_ = *text;
    return &value_;
  }

  int64_t integer(std::string_view name, const json& value) const {
    if (!value.is_number_integer()) fail("must have one integer as " + quote(name));
    return value.get<int64_t>();
  }
  double number(std::string_view name, const json& value) const {
    if (!value.is_number()) fail("must have one number as " + quote(name));
    const auto read = value.get<double>();
    if (!std::isfinite(read)) fail("has a " + quote(name) + " that is not a finite number");
    return read;
  }

  void check_whole_file() const {
    const int64_t* parts = header_.integer("split.count", label_);
    if (parts && *parts > 1)
      fail("is one of " + std::to_string(*parts) +
           " files of a model; join them with llama-gguf-split --merge");
  }

  // Llama's files do not say head_dim but the number of dimensions that rotate, which are all of them.
  void read_head_dim() {
    const json* rotated = find("rope.dimension_count");
    if (rotated) {
      const int64_t count = integer("rope.dimension_count", *rotated);
      const int64_t heads = config_["num_attention_heads"].get<int64_t>();
      const int64_t plain = heads > 0 ? config_["hidden_size"].get<int64_t>() / heads : 0;
      const int64_t head_dim = config_.value("head_dim", architecture_.model_type == "llama" ? count : plain);
      if (count != head_dim)
        fail("rotates " + std::to_string(count) + " of " + std::to_string(head_dim) +
             " dimensions of a head, which is not supported");
      if (architecture_.model_type == "llama") config_["head_dim"] = count;
    }
    if (const json* length = find("attention.value_length");
        length && config_.contains("head_dim") && *length != config_["head_dim"])
      fail("has keys and values of different lengths, which is not supported");
  }

  void read_rope_scaling() {
    json scaling;
    if (const json* type = find("rope.scaling.type"); type && *type != "none") {
      if (!type->is_string()) fail("must have text as \"rope.scaling.type\"");
      scaling["rope_type"] = *type;
    }
    if (const json* factor = find("rope.scaling.factor"); factor && !scaling.is_null())
      scaling["factor"] = number("rope.scaling.factor", *factor);
    if (const json* length = find("rope.scaling.original_context_length"); length && !scaling.is_null())
      scaling["original_max_position_embeddings"] = integer("rope.scaling.original_context_length", *length);
    if (!scaling.is_null()) config_["rope_scaling"] = scaling;
  }

  void read_vocab_size() {
    if (config_.contains("vocab_size")) return;
    if (const auto* tokens = header_.strings("tokenizer.ggml.tokens", label_))
      config_["vocab_size"] = tokens->size();
    else if (const auto* embedding = tensor("token_embd.weight"); embedding && !embedding->shape.empty())
      config_["vocab_size"] = embedding->shape.front();
    else
      fail("says nowhere how many tokens there are");
  }

  void refuse_experts() {
    const json* count = find("expert_count");
    if (count && *count != 0) fail("holds a mixture of experts, which is not supported");
    find("expert_used_count");
  }

  void keep_unknown() {
    const std::string prefix = std::string(architecture_.name) + ".";
    for (auto at = header_.metadata.lower_bound(prefix);
         at != header_.metadata.end() && at->first.starts_with(prefix); ++at)
      if (!read_.contains(at->first)) {
        const json* value = find(at->first.substr(prefix.size()));
        config_[at->first] = value->is_null() ? json("a list") : *value;
      }
  }

  const GgufHeader& header_;
  const std::string& label_;
  const GgufArchitecture& architecture_;
  std::set<std::string> read_;
  json value_;
  json config_ = json::object();
};

}  // namespace

const GgufArchitecture& gguf_architecture(const GgufHeader& header, const std::string& label) {
  const std::string* name = header.string("general.architecture", label);
  if (!name) throw ConfigError("[gguf] " + label + " does not say its general.architecture");
  std::string known;
  for (const auto& each : kArchitectures) {
    if (each.name == *name) return each;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  throw ConfigError("[gguf] " + label + " is of the architecture " + quote(*name) + "; known are " + known);
}

json gguf_config(const GgufHeader& header, const std::string& label) {
  return ConfigReader(header, label).read();
}

}  // namespace graft::io
