// graft's half of test_tokenizer_live.py: `tokenize_lines TOKENIZER`, one JSON object a line on stdin, one on
// stdout.
//
//   {"text": ..., "pair": ..., "add_special_tokens": true}                    -> {"ids", "type_ids",
//   "decoded", "decoded_all"}
//   {"texts": [...], "pairs": [...], "max_length": N, "padding": true, ...}   -> {"rows": [{"ids",
//   "type_ids", "attention_mask"}]}
//   {"vocab": [tokens]}                                                       -> {"size", "ids", "tokens"}
// What graft throws comes back as {"error": message}.
#include <graft/error.h>
#include <graft/tokenizer.h>

#include <iostream>
#include <nlohmann/json.hpp>

using nlohmann::json;

static json encode_one(const graft::Tokenizer& tokenizer, const json& in) {
  const std::string text = in.at("text");
  const bool special = in.value("add_special_tokens", true);
  std::optional<std::string> pair;
  if (in.contains("pair") && !in["pair"].is_null()) pair = in["pair"].get<std::string>();
  const auto out = tokenizer.encode(text, pair, special);
  return {{"ids", out.ids},
          {"type_ids", out.type_ids},
          {"decoded", tokenizer.decode(out.ids)},
          {"decoded_all", tokenizer.decode(out.ids, false)}};
}

static json encode_batch(const graft::Tokenizer& tokenizer, const json& in) {
  graft::BatchEncodeOptions options;
  options.padding = in.value("padding", true);
  if (in.contains("max_length")) options.max_length = in["max_length"].get<int64_t>();
  options.pad_to_multiple_of = in.value("pad_to_multiple_of", int64_t{1});
  options.add_special_tokens = in.value("add_special_tokens", true);
  const std::vector<std::string> texts = in.at("texts");
  const auto rows = in.contains("pairs") ? tokenizer.encode_pairs(texts, in["pairs"], options)
                                         : tokenizer.encode_batch(texts, options);
  json out = json::array();
  for (const auto& row : rows)
    out.push_back({{"ids", row.ids}, {"type_ids", row.type_ids}, {"attention_mask", row.attention_mask}});
  return {{"rows", out}};
}

static json look_up(const graft::Tokenizer& tokenizer, const json& in) {
  json ids = json::array(), tokens = json::array();
  for (const std::string token : in.at("vocab")) {
    const auto id = tokenizer.token_to_id(token);
    ids.push_back(id ? json(*id) : json());
    tokens.push_back(id ? json(tokenizer.id_to_token(*id).value_or("")) : json());
  }
  return {{"size", tokenizer.vocab_size()}, {"ids", ids}, {"tokens", tokens}};
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenize_lines TOKENIZER < lines.jsonl\n";
    return 2;
  }
  std::ios::sync_with_stdio(false);
  try {
    const auto tokenizer = graft::Tokenizer::from_pretrained(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const json in = json::parse(line);
      json out;
      try {
        out = in.contains("vocab")   ? look_up(*tokenizer, in)
              : in.contains("texts") ? encode_batch(*tokenizer, in)
                                     : encode_one(*tokenizer, in);
      } catch (const graft::Error& error) {
        out = {{"error", error.what()}};
      }
      std::cout << out.dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
