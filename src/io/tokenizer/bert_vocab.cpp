#include "io/tokenizer/bert_vocab.h"

#include <algorithm>
#include <charconv>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"

namespace graft::io {
using nlohmann::json;

namespace {

json read_vocab(std::string_view text) {
  check_utf8(text, "vocab.txt");
  json vocab = json::object();
  int64_t id = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    // A token that comes twice keeps its last id, and white space at a line's end is no part of it: so it is
    // in the Rust library.
    vocab[std::string(trim_end(text.substr(0, end)))] = id++;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return vocab;
}

json added_token(int64_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

int64_t id_of(const json& vocab, const std::string& token) {
  const auto it = vocab.find(token);
  if (it == vocab.end())
    throw ConfigError("[tokenizer] the special token " + quote(token) + " is not in vocab.txt");
  return it->get<int64_t>();
}

void check_tokenizer_class(Fields& config) {
  const std::string name = config.string("tokenizer_class", "BertTokenizer");
  if (name != "BertTokenizer" && name != "BertTokenizerFast")
    config.fail("has tokenizer_class " + quote(name) +
                "; without a tokenizer.json only BertTokenizer is known (save_pretrained of a fast "
                "tokenizer writes one)");
  if (!config.boolean("do_basic_tokenize", true))
    config.fail("has do_basic_tokenize = false, which is not supported");
  for (const char* list : {"never_split", "additional_special_tokens", "extra_special_tokens"})
    if (const json* values = config.find(list); values && !values->empty())
      config.fail("has a non-empty \"" + std::string(list) +
                  "\", which is not supported without a tokenizer.json");
}

// tokenizer_config.json's added_tokens_decoder: {"100": {"content": "[UNK]", ...}}.
void add_decoder_entries(const json& entries, const std::string& label, json& added) {
  for (const auto& [key, entry] : entries.items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || !entry.is_object())
      throw ConfigError("[tokenizer] " + label +
                        ": \"added_tokens_decoder\" must map ids to tokens, got the key " + quote(key));
    json token = entry;
    token["id"] = id;
    token.erase("__type");
    added[std::to_string(id)] = std::move(token);
  }
}

}  // namespace

std::string special_token_content(const json& value, const std::string& label) {
  if (value.is_string()) return value.get<std::string>();
  Fields token(value, label);
  return token.string("content");
}

json bert_tokenizer_document(std::string_view vocab_txt, const json& config_json,
                             const std::string& config_label) {
  Fields config(config_json, config_label);
  check_tokenizer_class(config);
  json vocab = read_vocab(vocab_txt);

  const auto special = [&](const char* key, const char* fallback) {
    const json* value = config.find(key);
    return value ? special_token_content(*value, config_label + ", \"" + key + "\"") : fallback;
  };
  const std::string unk = special("unk_token", "[UNK]"), sep = special("sep_token", "[SEP]"),
                    cls = special("cls_token", "[CLS]"), pad = special("pad_token", "[PAD]"),
                    mask = special("mask_token", "[MASK]");
  json added_by_id = json::object();
  for (const auto& token : {pad, unk, cls, sep, mask}) {
    const int64_t id = id_of(vocab, token);
    added_by_id[std::to_string(id)] = added_token(id, token);
  }
  if (const json* entries = config.find("added_tokens_decoder"))
    add_decoder_entries(*entries, config_label, added_by_id);
  json added = json::array();
  for (auto& [id, token] : added_by_id.items()) added.push_back(std::move(token));
  // Tokens outside the vocabulary get their ids by position, so the order counts.
  std::sort(added.begin(), added.end(), [](const json& a, const json& b) { return a["id"] < b["id"]; });

  const json* strip_accents = config.find("strip_accents");
  json document = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", config.boolean("tokenize_chinese_chars", true)},
        {"strip_accents", strip_accents ? *strip_accents : json()},
        {"lowercase", config.boolean("do_lower_case", true)}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "BertProcessing"},
        {"sep", json::array({sep, id_of(vocab, sep)})},
        {"cls", json::array({cls, id_of(vocab, cls)})}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", unk},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100}}},
  };
  document["model"]["vocab"] = std::move(vocab);
  // Bookkeeping, lengths that the caller gives here, and the two sides, which the loader reads.
  config.ignore({"model_max_length", "max_len", "name_or_path", "special_tokens_map_file", "tokenizer_file",
                 "padding_side", "truncation_side", "clean_up_tokenization_spaces", "backend", "is_local",
                 "model_input_names", "transformers_version"});
  config.finish();
  return document;
}

}  // namespace graft::io
