// A tokenizer from SentencePiece's file.
#include <algorithm>
#include <charconv>
#include <map>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/tokenizer/bert_text.h"
#include "io/tokenizer/bert_vocab.h"
#include "io/tokenizer/document.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/registry.h"
#include "io/tokenizer/sentencepiece.h"

namespace graft::io {
using nlohmann::json;

namespace {

/// A special token of tokenizer_config.json, or where it names none what such files usually have.
std::string special_token(Fields& config, const char* key, const char* usual) {
  const json* value = config.find(key);
  return value ? special_token_content(*value, config.label() + ", " + quote(key)) : usual;
}

/// Text that stands for a token: the file's control symbols and the unknown token, and what
/// tokenizer_config.json adds.
json sentencepiece_added_tokens(const SentencePieceFile& file, Fields& config) {
  json added = json::array();
  const auto add = [&](int64_t id, const std::string& content, bool special, const json& options) {
    const auto option = [&](const char* key) { return options.contains(key) && options[key] == true; };
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", option("single_word")},
                     {"lstrip", option("lstrip")},
                     {"rstrip", option("rstrip")},
                     {"normalized", option("normalized")},
                     {"special", special}});
  };
  const json* more = config.find("added_tokens_decoder");
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& piece = file.pieces[id];
    if (piece.kind == SentencePiece::Kind::control || piece.kind == SentencePiece::Kind::unknown)
      add(static_cast<int64_t>(id), piece.text, true, json());
  }
  if (!more) return added;
  if (!more->is_object()) config.fail("has \"added_tokens_decoder\" that is not an object");
  std::map<int64_t, const json*> by_id;
  for (const auto& [key, value] : more->items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || !value.is_object())
      config.fail("has in \"added_tokens_decoder\" the entry " + quote(key) +
                  ", which is not an id with a token");
    by_id[id] = &value;
  }
  for (const auto& [id, value] : by_id) {
    const std::string content = special_token_content(*value, config.label() + ", added_tokens_decoder");
    const bool listed = std::any_of(added.begin(), added.end(),
                                    [&](const json& token) { return token["content"] == content; });
    if (!listed) add(id, content, value->contains("special") && (*value)["special"] == true, *value);
  }
  return added;
}

}  // namespace

TokenizerPipeline build_sentencepiece(std::string_view bytes, const std::string& label,
                                      const json* config_json, const std::string& config_label) {
  const auto file = parse_sentencepiece(bytes, label);
  const bool has_config = config_json != nullptr;
  const json none = json::object();
  Fields config(has_config ? *config_json : none, config_label);
  auto own = file;
  own.add_dummy_prefix = config.boolean("add_prefix_space", file.add_dummy_prefix);
  auto pieces = make_sentencepiece(own, label, has_config);
  TokenizerPipeline parts;
  parts.normalizer = std::move(pieces.normalizer);
  parts.pre_tokenizer = std::move(pieces.pre_tokenizer);
  parts.model = std::move(pieces.model);
  const json tokens = sentencepiece_added_tokens(file, config);
  parts.added = std::make_unique<AddedTokens>(read_added_tokens(&tokens, label, parts), is_word);
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (own.add_dummy_prefix)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const json decoder{{"type", "Sequence"}, {"decoders", decoders}};
  parts.decoder = make_decoder(&decoder, label);

  json single = json::array(), specials = json::object();
  const auto piece = [&](const char* flag, const char* key, const char* usual, bool by_default) {
    if (!config.boolean(flag, by_default)) return;
    const std::string token = special_token(config, key, usual);
    const AddedToken* added = parts.added->find(token);
    const auto id = added ? std::optional(added->id) : parts.model->token_to_id(token);
    if (!id) config.fail("asks for " + quote(token) + " in each text, which is not a token");
    specials[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
  };
  piece("add_bos_token", "bos_token", "<s>", has_config);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  piece("add_eos_token", "eos_token", "</s>", false);
  json pair = single;
  for (json each : single) {
    each.begin().value()["type_id"] = 1;
    if (each.contains("Sequence")) each["Sequence"]["id"] = "B";
    pair.push_back(std::move(each));
  }
  const json processor{
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
  parts.post_processor = make_post_processor(&processor, label);
  apply_tokenizer_config(json::object(), has_config ? *config_json : none, config_label, parts);
  return parts;
}

}  // namespace graft::io
