#include "io/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <unordered_map>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/byte_level.h"

namespace graft::io {
using nlohmann::json;

namespace {

constexpr int64_t kControl = 3, kUserDefined = 4;  // kinds of tokens that are cut out of the text as they are

constexpr char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kTekken[] = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                           R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                           R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizer.ggml.pre: how words are found. Null: as GPT-2 does. ("smollm" also sets digits apart, which
// transformers does not do for GGUF files; only runs of spaces before a digit can tell.)
struct Words {
  std::string_view pre;
  const char* regex;
};
constexpr Words kWords[] = {{"default", nullptr}, {"gpt-2", nullptr},           {"smollm", nullptr},
                            {"llama3", kLlama3},  {"llama-v3", kLlama3},        {"llama-bpe", kLlama3},
                            {"falcon3", kLlama3}, {"smaug-bpe", kLlama3},       {"dbrx", kLlama3},
                            {"qwen2", kQwen2},    {"deepseek-r1-qwen", kQwen2}, {"megrez", kQwen2},
                            {"tekken", kTekken}};

json replace_spaces(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

class DocumentMaker {
 public:
  DocumentMaker(const GgufHeader& header, const std::string& label) : header_(header), label_(label) {
    const auto* tokens = header.strings("tokenizer.ggml.tokens", label);
    if (!tokens) fail("has no tokenizer");
    tokens_ = *tokens;
  }

  json make() {
    const std::string* kind = header_.string("tokenizer.ggml.model", label_);
    if (!kind) fail("does not say its tokenizer.ggml.model");
    json document{{"version", "1.0"}};
    if (*kind == "gpt2")
      byte_level(document);
    else if (*kind == "llama")
      sentencepiece(document);
    else
      fail("has a tokenizer of the kind " + quote(*kind) + "; known are gpt2 and llama");
    document["added_tokens"] = added_tokens(*kind == "gpt2");
    document["post_processor"] = special_tokens();
    return document;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("[gguf] " + label_ + " " + what);
  }

  json vocab() const {
    json vocab = json::object();
    for (size_t i = 0; i < tokens_.size(); ++i)
      vocab[tokens_[i]] = i;  // of a token that comes twice, the last
    return vocab;
  }

  void byte_level(json& document) {
    for (auto& token : tokens_)
      if (!is_byte_characters(token)) token = byte_characters(token);
    const auto* merges = header_.strings("tokenizer.ggml.merges", label_);
    if (!merges) fail("has a byte-level tokenizer without merges");
    document["model"] = {{"type", "BPE"}, {"vocab", vocab()}, {"merges", *merges}};
    const std::string* pre = header_.string("tokenizer.ggml.pre", label_);
    const auto* words = std::find_if(std::begin(kWords), std::end(kWords),
                                     [&](const Words& each) { return !pre || each.pre == *pre; });
    if (words == std::end(kWords)) {
      std::string known;
      for (const auto& each : kWords) known += (known.empty() ? "" : ", ") + std::string(each.pre);
      fail("finds words by " + quote(*pre) + " (tokenizer.ggml.pre); known are " + known);
    }
    const bool regex = words->regex != nullptr;
    // With all fields: Python's tokenizers take no file that leaves out one of them.
    const auto step = [](bool space, bool by_words) {
      return json{{"type", "ByteLevel"},
                  {"add_prefix_space", space},
                  {"trim_offsets", true},
                  {"use_regex", by_words}};
    };
    const auto bytes = step(/*space=*/false, /*by_words=*/!regex);
    if (regex) {
      const json split{{"type", "Split"},
                       {"pattern", {{"Regex", words->regex}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
      document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    } else {
      document["pre_tokenizer"] = bytes;
    }
    document["decoder"] = step(/*space=*/true, /*by_words=*/true);
  }

  void sentencepiece(json& document) {
    const std::string* architecture = header_.string("general.architecture", label_);
    const bool gemma = architecture && architecture->starts_with("gemma");
    if (gemma) spell_spaces();
    document["model"] = {{"type", "BPE"},
                         {"fuse_unk", true},
                         {"byte_fallback", true},
                         {"vocab", vocab()},
                         {"merges", merges_of_vocabulary(gemma)}};
    if (const auto* unknown = gguf_special_token(header_, "unknown", label_); unknown && gemma)
      document["model"]["unk_token"] = *unknown;
    json decoders = {replace_spaces("▁", " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (gemma) {
      document["normalizer"] = replace_spaces(" ", "▁");
      document["pre_tokenizer"] = {{"type", "Split"},
                                   {"pattern", {{"String", " "}}},
                                   {"behavior", "MergedWithPrevious"},
                                   {"invert", false}};
    } else {
      document["pre_tokenizer"] = {
          {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  }

  /// Gemma's files have tokens of several spaces as such.
  void spell_spaces() {
    for (auto& token : tokens_) {
      if (token.empty() || token.find_first_not_of(' ') != token.npos) continue;
      std::string marks;
      for (size_t i = 0; i < token.size(); ++i) marks += "▁";
      token = std::move(marks);
    }
  }

  /// The file's merges, or every way to make a token of two others, best first: by the score of what is made,
  /// or, where scores do not tell (Gemma), by its place in the file.
  json merges_of_vocabulary(bool by_place) const {
    if (const auto* merges = header_.strings("tokenizer.ggml.merges", label_)) return *merges;
    const auto* scores = header_.numbers("tokenizer.ggml.scores", label_);
    if (!by_place && (!scores || scores->size() != tokens_.size()))
      fail("has neither merges nor a score for each token");
    std::unordered_map<std::string_view, int64_t> ids;
    for (size_t i = 0; i < tokens_.size(); ++i) ids[tokens_[i]] = static_cast<int64_t>(i);
    struct Merge {
      std::string_view left, right;
      double score;
      size_t left_length, right_length;
      size_t token;  // among equals the order is that of the tokens, then that of the parts' numbers
    };
    std::vector<Merge> merges;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view token = tokens_[i];
      if (ids.at(token) != static_cast<int64_t>(i)) continue;
      const size_t length = count_code_points(token);
      size_t left_length = 0;
      for (size_t pos = 0; pos < token.size();) {
        next_code_point(token, pos);
        ++left_length;
        const auto left = token.substr(0, pos), right = token.substr(pos);
        if (!right.empty() && ids.contains(left) && ids.contains(right))
          merges.push_back({left, right, by_place ? -static_cast<double>(i) : (*scores)[i], left_length,
                            length - left_length, i});
      }
    }
    std::sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) {
      const std::tuple first(a.score, a.left_length, a.right_length),
          second(b.score, b.left_length, b.right_length);
      if (first != second) return first > second;
      return std::tuple(a.token, ids.at(a.left), ids.at(a.right)) <
             std::tuple(b.token, ids.at(b.left), ids.at(b.right));
    });
    json list = json::array();
    for (const auto& merge : merges) list.push_back({merge.left, merge.right});
    return list;
  }

  json added_tokens(bool byte_level) const {
    json added = json::array();
    const auto* kinds = header_.integers("tokenizer.ggml.token_type", label_);
    if (!kinds) return added;
    if (kinds->size() != tokens_.size())
      fail("has " + std::to_string(tokens_.size()) + " tokens, but kinds of " +
           std::to_string(kinds->size()));
    const auto& stored = *header_.strings("tokenizer.ggml.tokens", label_);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool control = (*kinds)[i] == kControl;
      if (!control && (*kinds)[i] != kUserDefined) continue;
      // In such a vocabulary every token is spelled in bytes: another spelling is a mistake of the converter.
      if (byte_level && stored[i] != tokens_[i]) continue;
      added.push_back({{"id", i},
                       {"content", tokens_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", control}});
    }
    return added;
  }

  /// What goes before and after a text, where the file asks for it.
  json special_tokens() const {
    const auto wanted = [&](const char* key) {
      const bool* value = header_.boolean(std::string("tokenizer.ggml.add_") + key + "_token", label_);
      return value && *value;
    };
    json specials = json::object();
    const auto piece = [&](const char* key, int64_t type) -> json {
      const auto* token = gguf_special_token(header_, key, label_);
      if (!token) fail("asks for a token in each text, but has no " + std::string(key) + "_token_id");
      const int64_t id = *header_.integer(std::string("tokenizer.ggml.") + key + "_token_id", label_);
      specials[*token] = {{"id", *token}, {"ids", {id}}, {"tokens", {*token}}};
      return {{"SpecialToken", {{"id", *token}, {"type_id", type}}}};
    };
    json single = json::array(), pair = json::array();
    for (const int64_t type : {0, 1}) {
      json part = json::array();
      if (wanted("bos")) part.push_back(piece("bos", type));
      part.push_back({{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}});
      if (wanted("eos")) part.push_back(piece("eos", type));
      if (type == 0) single = part;
      pair.insert(pair.end(), part.begin(), part.end());
    }
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}};
  }

  const GgufHeader& header_;
  const std::string& label_;
  std::vector<std::string> tokens_;
};

}  // namespace

json gguf_tokenizer_document(const GgufHeader& header, const std::string& label) {
  return DocumentMaker(header, label).make();
}

std::map<std::string, std::string> gguf_special_tokens(const GgufHeader& header, const std::string& label) {
  std::map<std::string, std::string> found;
  for (const auto& [token, gguf] : {std::pair("bos_token", "bos"),
                                    {"eos_token", "eos"},
                                    {"unk_token", "unknown"},
                                    {"sep_token", "seperator"},
                                    {"pad_token", "padding"}})
    if (const auto* text = gguf_special_token(header, gguf, label)) found[token] = *text;
  return found;
}

std::map<std::string, json> gguf_tokenizer_files(const GgufHeader& header, const std::string& label) {
  if (!header.strings("tokenizer.ggml.tokens", label)) return {};
  json config = gguf_special_tokens(header, label);
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  const std::string key = "tokenizer.chat_template";
  json templates = json::array();
  for (auto at = header.metadata.lower_bound(key); at != header.metadata.end() && at->first.starts_with(key);
       ++at) {
    const bool is_default = at->first == key;
    if (!is_default && at->first[key.size()] != '.') continue;  // "tokenizer.chat_templates", their names
    if (const auto* text = std::get_if<std::string>(&at->second))
      templates.push_back(
          {{"name", is_default ? "default" : at->first.substr(key.size() + 1)}, {"template", *text}});
  }
  const bool is_one = templates.size() == 1 && templates[0]["name"] == "default";
  if (!templates.empty()) config["chat_template"] = is_one ? templates[0]["template"] : templates;
  return {{"tokenizer.json", gguf_tokenizer_document(header, label)}, {"tokenizer_config.json", config}};
}

const std::string* gguf_special_token(const GgufHeader& header, const std::string& name,
                                      const std::string& label) {
  const int64_t* id = header.integer("tokenizer.ggml." + name + "_token_id", label);
  const auto* tokens = header.strings("tokenizer.ggml.tokens", label);
  if (!id || !tokens) return nullptr;
  if (*id < 0 || static_cast<size_t>(*id) >= tokens->size())
    throw ConfigError("[gguf] " + label + ": the " + name + " token has the id " + std::to_string(*id) +
                      ", of " + std::to_string(tokens->size()) + " tokens");
  return &(*tokens)[static_cast<size_t>(*id)];
}

}  // namespace graft::io
