#include "io/tokenizer/document.h"

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/tokenizer/bert_text.h"
#include "io/tokenizer/bert_vocab.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/registry.h"
#include "io/tokenizer/template_processor.h"

namespace graft::io {
using nlohmann::json;

namespace {

Side read_side(Fields& fields, std::string_view key, const std::string& fallback) {
  const std::string side = fields.string(key, fallback);
  if (side == "Right" || side == "right") return Side::right;
  if (side == "Left" || side == "left") return Side::left;
  fields.fail("has the " + std::string(key) + " " + quote(side) + "; known are right and left");
}

// Lengths (max_length, stride, Fixed, pad_to_multiple_of) are read past on purpose: see BatchEncodeOptions.
Truncation read_truncation(const json& value, const std::string& label) {
  Fields fields(value, label);
  Truncation truncation;
  truncation.side = read_side(fields, "direction", "Right");
  const std::string strategy = fields.string("strategy");
  using Strategy = Truncation::Strategy;
  if (strategy == "LongestFirst")
    truncation.strategy = Strategy::longest_first;
  else if (strategy == "OnlyFirst")
    truncation.strategy = Strategy::only_first;
  else if (strategy == "OnlySecond")
    truncation.strategy = Strategy::only_second;
  else
    fields.fail("has the strategy " + quote(strategy) + "; known are LongestFirst, OnlyFirst, OnlySecond");
  fields.ignore({"max_length", "stride"});
  fields.finish();
  return truncation;
}

Padding read_padding(const json& value, const std::string& label) {
  Fields fields(value, label);
  Padding padding;
  padding.side = read_side(fields, "direction", "Right");
  padding.id = fields.number("pad_id");
  padding.type_id = fields.number("pad_type_id");
  fields.ignore({"strategy", "pad_to_multiple_of", "pad_token"});
  fields.finish();
  return padding;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const json* list, const std::string& label,
                                          const TokenizerPipeline& parts) {
  std::vector<AddedToken> tokens;
  if (!list) return tokens;
  if (!list->is_array()) throw ConfigError("[tokenizer] " + label + " must be a list");
  // A token that the model does not have gets the next free id, whatever the file says: so does the Rust
  // library. A file that says otherwise would mean one thing there and another to its reader, so it is
  // refused.
  int64_t next_id = parts.model->vocab_size();
  for (const json& entry : *list) {
    Fields fields(entry, label);
    AddedToken token = {.id = fields.number("id"),
                        .content = fields.string("content"),
                        .single_word = fields.boolean("single_word"),
                        .lstrip = fields.boolean("lstrip"),
                        .rstrip = fields.boolean("rstrip"),
                        .normalized = fields.boolean("normalized"),
                        .special = fields.boolean("special")};
    fields.finish();
    const auto known = parts.model->token_to_id(token.content);
    const int64_t id = known ? *known : next_id++;
    if (id != token.id)
      fields.fail("gives " + quote(token.content) + " the id " + std::to_string(token.id) + ", but " +
                  (known ? "the vocabulary has it at " : "the next free id is ") + std::to_string(id));
    token.pattern =
        token.normalized && parts.normalizer ? parts.normalizer->normalize(token.content) : token.content;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenizerPipeline build_tokenizer(const json& document, const std::string& label) {
  Fields fields(document, label);
  if (const std::string version = fields.string("version", "1.0"); version != "1.0")
    fields.fail("is of version " + quote(version) + "; known is 1.0");
  TokenizerPipeline parts;
  parts.normalizer = make_normalizer(fields.find("normalizer"), label);
  parts.pre_tokenizer = make_pre_tokenizer(fields.find("pre_tokenizer"), label);
  parts.model = make_token_model(fields.find("model"), label);
  parts.post_processor = make_post_processor(fields.find("post_processor"), label);
  if (!parts.post_processor)
    parts.post_processor = std::make_unique<TemplateProcessor>(TemplateProcessor::plain());
  parts.decoder = make_decoder(fields.find("decoder"), label);
  parts.added = std::make_unique<AddedTokens>(
      read_added_tokens(fields.find("added_tokens"), label + ", added_tokens", parts), is_word);
  if (const json* value = fields.find("truncation"))
    parts.truncation = read_truncation(*value, label + ", truncation");
  if (const json* value = fields.find("padding")) parts.padding = read_padding(*value, label + ", padding");
  fields.finish();
  return parts;
}

void apply_tokenizer_config(const json& document, const json& config_json, const std::string& label,
                            TokenizerPipeline& parts) {
  Fields config(config_json, label);
  const auto open = [&](const char* key) { return !document.contains(key) || document[key].is_null(); };
  if (open("truncation")) parts.truncation.side = read_side(config, "truncation_side", "right");
  if (!open("padding")) return;
  parts.padding.side = read_side(config, "padding_side", "right");
  const json* value = config.find("pad_token");
  const std::string token = value ? special_token_content(*value, label + ", \"pad_token\"") : "[PAD]";
  if (const AddedToken* added = parts.added->find(token))
    parts.padding.id = added->id;
  else
    parts.padding.id = parts.model->token_to_id(token);
}

}  // namespace graft::io
