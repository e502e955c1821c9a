// The kinds of tokenizers beside WordPiece on vocabularies of a few tokens, by hand;
// tests/oracle/test_tokenizer_kinds.py has the comparison with Python on real ones.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graft/error.h"
#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/document.h"
#include "io/tokenizer/token_regex.h"

namespace graft::io {
namespace {
using nlohmann::json;
using Ids = std::vector<int64_t>;

TokenizerPipeline tokenizer(const json& parts) {
  json document{{"version", "1.0"}};
  document.update(parts);
  return build_tokenizer(document, "f");
}

Ids ids_of(const json& parts, const std::string& text) {
  return tokenizer(parts).encode(text, {}, false, {}).ids;
}

std::string text_of(const json& parts, const Ids& ids) {
  const auto built = tokenizer(parts);
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) tokens.push_back(*built.token_of(id));
  built.decoder->decode(tokens);
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

std::string what_of(const json& parts, const std::string& text = "") {
  try {
    ids_of(parts, text);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

json bpe(json options = json::object()) {
  json model{{"type", "BPE"},
             {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"bc", 4}, {"abc", 5}, {"<unk>", 6}}},
             {"merges", {"b c", "a b", "a bc"}}};
  model.update(options);
  return {{"model", model}};
}

TEST(Bpe, JoinsTheEarliestLearnedPairFirst) {
  EXPECT_EQ(ids_of(bpe(), "abc"), (Ids{5}));  // b c, then a bc
  EXPECT_EQ(ids_of(bpe(), "abab"), (Ids{3, 3}));
  EXPECT_EQ(ids_of(bpe(), "bcab"), (Ids{4, 3}));
  EXPECT_EQ(ids_of(bpe(), ""), Ids{});
}

TEST(Bpe, UnknownCharacters) {
  EXPECT_EQ(ids_of(bpe(), "a?b"), (Ids{3}));  // without an unknown token it is as if it were not there
  EXPECT_EQ(ids_of(bpe({{"unk_token", "<unk>"}}), "a??b"), (Ids{0, 6, 6, 1}));
  EXPECT_EQ(ids_of(bpe({{"unk_token", "<unk>"}, {"fuse_unk", true}}), "a??b"), (Ids{0, 6, 1}));
}

TEST(Bpe, FallsBackOnBytesIfItHasAll) {
  json parts = bpe({{"unk_token", "<unk>"}, {"byte_fallback", true}});
  parts["model"]["vocab"].update({{"<0xC3>", 7}, {"<0xA4>", 8}});
  EXPECT_EQ(ids_of(parts, "aäb"), (Ids{0, 7, 8, 1}));
  EXPECT_EQ(ids_of(parts, "aöb"), (Ids{0, 6, 1}));
  parts["decoder"] = {{"type", "ByteFallback"}};
  EXPECT_EQ(text_of(parts, {7, 8, 0}), "äa");
  EXPECT_EQ(text_of(parts, {8, 7}), "\uFFFD\uFFFD");
}

TEST(Bpe, MalformedModelsAreNamed) {
  for (const auto& [options, said] : {std::pair(json{{"merges", {"a"}}}, "not two tokens"),
                                      {json{{"merges", {"a b c"}}}, "not two tokens"},
                                      {json{{"merges", {"a x"}}}, "merge of \"a\" and \"x\", but no token"},
                                      {json{{"merges", {"c a"}}}, "no token \"ca\""},
                                      {json{{"merges", "a b"}}, "not a list"},
                                      {json{{"dropout", 0.1}}, "dropout"},
                                      {json{{"unk_token", "?"}}, "not in its vocabulary"},
                                      {json{{"vocab", {{"a", 0}, {"b", 0}}}}, "to both"},
                                      {json{{"vocab", {{"a", -1}}}}, "whole number"}}) {
    const auto what = what_of(bpe(options));
    EXPECT_NE(what.find(said), what.npos) << what;
  }
}

json unigram() {
  json vocab = json::array();
  for (const auto& [piece, score] :
       {std::pair("<unk>", 0.0), {"a", -4.0}, {"b", -4.0}, {"ab", -5.0}, {"bb", -3.0}, {"▁", -1.0}})
    vocab.push_back(json::array({piece, score}));
  return {{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}}}};
}

TEST(Unigram, TakesTheLikeliestCut) {
  EXPECT_EQ(ids_of(unigram(), "abb"), (Ids{1, 4}));  // a bb: -7; ab b: -9
  EXPECT_EQ(ids_of(unigram(), "ab"), (Ids{3}));
  EXPECT_EQ(ids_of(unigram(), "a??b"), (Ids{1, 0, 2}));
  auto without = unigram();
  without["model"].erase("unk_id");
  EXPECT_NE(what_of(without, "?").find("in no piece"), std::string::npos);
}

TEST(WordLevel, AWordIsATokenOrUnknown) {
  const json parts{
      {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}, {"<unk>", 1}}}, {"unk_token", "<unk>"}}},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
  EXPECT_EQ(ids_of(parts, " a b\ta "), (Ids{0, 1, 0}));
}

TEST(Metaspace, MarksSpacesAndTheStart) {
  auto parts = unigram();
  parts["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  parts["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}};
  EXPECT_EQ(ids_of(parts, "a b"), (Ids{5, 1, 5, 2}));
  EXPECT_EQ(text_of(parts, {5, 1, 5, 2}), "a b");
  parts["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(ids_of(parts, "a b"), (Ids{1, 5, 2}));
  parts["pre_tokenizer"]["replacement"] = "xy";
  EXPECT_NE(what_of(parts).find("one character"), std::string::npos);
}

TEST(ByteLevel, SpellsBytesAsCharacters) {
  EXPECT_EQ(byte_characters(" a\n"), "ĠaĊ");
  EXPECT_TRUE(is_byte_characters("ĠaĊ"));
  EXPECT_FALSE(is_byte_characters("a b"));
  EXPECT_EQ(lossy_utf8("a\xE2\x82z\xFF"), "a\uFFFDz\uFFFD");
}

TEST(TokenRegex, CutsTextAtMatches) {
  const TokenRegex regex(R"('s|\p{L}+|\s+)", "f");
  std::string shown;
  for (const auto& stretch : regex.stretches("it's 5ä"))
    shown += std::to_string(stretch.begin) + (stretch.matched ? "+" : "-");
  EXPECT_EQ(shown, "0+2+4+5-6+");
  EXPECT_EQ(regex.replaced("a 1", "_"), "__1");
  EXPECT_EQ(TokenRegex::literal("a.", "f").replaced("ab a.", "x"), "ab x");
}

}  // namespace
}  // namespace graft::io
