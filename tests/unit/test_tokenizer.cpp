// The tokenizer on a vocabulary of a few words; tests/oracle/test_tokenizer_live.py has the comparison with
// Python on real ones.
#include <graft/error.h>
#include <graft/tokenizer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/format/utf8.h"
#include "temp_dir.h"

namespace {
using graft::Tokenizer;
using nlohmann::json;
using Ids = std::vector<int64_t>;
namespace fs = std::filesystem;

const std::vector<std::string> words = {"[PAD]", "[UNK]", "[CLS]",    "[SEP]", "[MASK]", "hello", "world",
                                        "un",    "##aff", "##able",   "é",     "e",      "##e",   "!",
                                        "中",    "i",     "##\u0307", "σ",     "don",    "'",     "t"};
enum : int64_t {
  pad,
  unk,
  cls,
  sep,
  mask,
  hello,
  world,
  un,
  aff,
  able,
  e_acute,
  e,
  e2,
  bang,
  zhong,
  i_,
  dot2,
  sigma,
  don,
  quote,
  t
};

json added(int64_t id, const std::string& content, const json& change = json::object()) {
  json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  token.update(change);
  return token;
}

json document() {
  json vocab = json::object();
  for (size_t i = 0; i < words.size(); ++i) vocab[words[i]] = i;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {added(pad, "[PAD]"), added(unk, "[UNK]"), added(cls, "[CLS]"), added(sep, "[SEP]"),
            added(mask, "[MASK]")}},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"sep", {"[SEP]", sep}}, {"cls", {"[CLS]", cls}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 10},
            {"vocab", vocab}}}};
}

class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      load();
      fs::remove(folder_ / "tokenizer.json");
    } catch (const graft::Error& error) {
      if (std::string(error.what()).find("built without ICU") == std::string::npos) throw;
      GTEST_SKIP() << error.what();
    }
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::shared_ptr<const Tokenizer> load(const std::function<void(json&)>& change = [](json&) {}) const {
    json doc = document();
    change(doc);
    write("tokenizer.json", doc.dump());
    return Tokenizer::from_pretrained(folder_);
  }
  Ids ids(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text) const {
    return tokenizer->encode(text, {}, false).ids;
  }
  // The message of the ConfigError that loading the changed document must give.
  std::string refused(const std::function<void(json&)>& change) const {
    try {
      load(change);
    } catch (const graft::ConfigError& error) {
      return error.what();
    }
    ADD_FAILURE() << "was not refused";
    return {};
  }

  graft::TempDir temp_;
  const fs::path& folder_ = temp_.path();
};

TEST_F(TokenizerTest, EncodesWordsPiecesAndPairs) {
  const auto tokenizer = load();
  const auto one = tokenizer->encode("Hello, unaffable WORLD!");
  EXPECT_EQ(one.ids, (Ids{cls, hello, unk, un, aff, able, world, bang, sep}));
  EXPECT_EQ(one.type_ids, Ids(9, 0));
  EXPECT_EQ(one.attention_mask, Ids(9, 1));
  const auto two = tokenizer->encode("hello", "world !");
  EXPECT_EQ(two.ids, (Ids{cls, hello, sep, world, bang, sep}));
  EXPECT_EQ(two.type_ids, (Ids{0, 0, 0, 1, 1, 1}));
  const auto bare = tokenizer->encode("hello", "world", false);
  EXPECT_EQ(bare.ids, (Ids{hello, world}));
  EXPECT_EQ(bare.type_ids, (Ids{0, 1}));
}

TEST_F(TokenizerTest, TextThatIsNothingIsOnlySpecialTokens) {
  const auto tokenizer = load();
  for (const char* text : {"", " \t\n\u3000", "\u200b\u00ad", "\u0301"})
    EXPECT_EQ(tokenizer->encode(text).ids, (Ids{cls, sep})) << text;
  EXPECT_EQ(ids(tokenizer, std::string("hello\0world", 11)), (Ids{unk}))
      << "NUL is dropped, so this is one word";
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST_F(TokenizerTest, AWordTooLongIsUnknown) {
  const auto tokenizer = load();
  EXPECT_EQ(ids(tokenizer, "eeeeeeeeee"), (Ids{e, e2, e2, e2, e2, e2, e2, e2, e2, e2}));
  EXPECT_EQ(ids(tokenizer, "eeeeeeeeeee"), (Ids{unk}));
  EXPECT_EQ(ids(tokenizer, "unaffx"), (Ids{unk})) << "a word that cannot be finished is unknown as a whole";
  EXPECT_EQ(ids(tokenizer, std::string(1 << 20, 'e')), (Ids{unk}));
}

TEST_F(TokenizerTest, NormalizesAsBertDoes) {
  EXPECT_EQ(ids(load(), "É中é"), (Ids{e, zhong, e}));
  const auto accents = load([](json& doc) { doc["normalizer"]["strip_accents"] = false; });
  EXPECT_EQ(ids(accents, "É"), (Ids{e_acute}));
  EXPECT_EQ(ids(accents, "İ"), (Ids{i_, dot2})) << "the one letter whose lower case is two characters";
  EXPECT_EQ(ids(accents, "Σ"), (Ids{sigma}));
  EXPECT_EQ(ids(load([](json& doc) { doc["normalizer"]["lowercase"] = false; }), "Hello hello"),
            (Ids{unk, hello}));
  EXPECT_EQ(ids(load([](json& doc) { doc["normalizer"]["handle_chinese_chars"] = false; }), "中中"),
            (Ids{unk}));
  EXPECT_EQ(ids(load([](json& doc) { doc["normalizer"] = nullptr; }), "hello Hello"), (Ids{hello, unk}));
  EXPECT_EQ(ids(load([](json& doc) { doc["pre_tokenizer"] = nullptr; }), "hello!"), (Ids{unk}));
}

TEST_F(TokenizerTest, FindsAddedTokensInTheText) {
  const auto tokenizer = load();
  EXPECT_EQ(ids(tokenizer, "hello[MASK]world [SEP]"), (Ids{hello, mask, world, sep}));
  EXPECT_EQ(ids(tokenizer, "[mask] [MASK"), (Ids{unk, unk, unk, unk, unk})) << "only as it is written";
}

TEST_F(TokenizerTest, AddedTokensOptions) {
  const auto n = static_cast<int64_t>(words.size());
  const auto tokenizer = load([&](json& doc) {
    doc["added_tokens"].push_back(added(n, "<a>", {{"lstrip", true}, {"rstrip", true}}));
    doc["added_tokens"].push_back(added(n + 1, "ob", {{"single_word", true}, {"special", false}}));
    doc["added_tokens"].push_back(added(n + 2, "New York", {{"normalized", true}, {"special", false}}));
    doc["added_tokens"].push_back(added(n + 3, "<a><a>"));
    doc["decoder"] = nullptr;
  });
  EXPECT_EQ(ids(tokenizer, "hello  <a>\t world"), (Ids{hello, n, world}));
  EXPECT_EQ(ids(tokenizer, "ob !ob! bob ob_ ób"), (Ids{n + 1, bang, n + 1, bang, unk, unk, unk, unk}));
  EXPECT_EQ(ids(tokenizer, "new york NEW YORK"), (Ids{n + 2, n + 2}));
  EXPECT_EQ(ids(tokenizer, "<a><a><a>"), (Ids{n + 3, n})) << "the longest one wins";
  EXPECT_EQ(tokenizer->vocab_size(), n + 4);
  EXPECT_EQ(tokenizer->token_to_id("New York"), n + 2);
  EXPECT_EQ(tokenizer->id_to_token(n + 2), "new york") << "as it is looked for: so does Python";
  EXPECT_EQ(tokenizer->decode({n + 1, n, hello}), "ob hello");
  EXPECT_EQ(tokenizer->decode({n + 1, n, hello}, false), "ob <a> hello");
}

TEST_F(TokenizerTest, Decodes) {
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->decode({cls, hello, un, aff, able, world, bang, sep}), "hello unaffable world!");
  EXPECT_EQ(tokenizer->decode({cls, hello, sep}, false), "[CLS] hello [SEP]");
  EXPECT_EQ(tokenizer->decode({able, able}), "##ableable") << "the first token keeps its prefix";
  EXPECT_EQ(tokenizer->decode({hello, 12345, world}), "hello world") << "ids without a token are left out";
  EXPECT_THROW(tokenizer->decode({hello, -100}), graft::UsageError);
  EXPECT_EQ(load([](json& doc) { doc["decoder"]["cleanup"] = false; })->decode({hello, bang}), "hello !");
}

TEST_F(TokenizerTest, TemplateProcessing) {
  const auto tokenizer = load([](json& doc) {
    const auto special = [](const char* id, int type) {
      return json{{"SpecialToken", {{"id", id}, {"type_id", type}}}};
    };
    const auto sequence = [](const char* id, int type) {
      return json{{"Sequence", {{"id", id}, {"type_id", type}}}};
    };
    doc["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {special("start", 5), sequence("A", 2)}},
        {"pair", {sequence("B", 1), special("start", 0), sequence("A", 0)}},
        {"special_tokens",
         {{"start", {{"id", "start"}, {"ids", {cls, mask}}, {"tokens", {"[CLS]", "[MASK]"}}}}}}};
  });
  const auto one = tokenizer->encode("hello");
  EXPECT_EQ(one.ids, (Ids{cls, mask, hello}));
  EXPECT_EQ(one.type_ids, (Ids{5, 5, 2}));
  EXPECT_EQ(tokenizer->encode("hello", "world").ids, (Ids{world, cls, mask, hello}));
  EXPECT_EQ(tokenizer->encode("hello", "world", false).type_ids, (Ids{1, 0}));
}

TEST_F(TokenizerTest, BatchesArePaddedAndCutOnlyAsAsked) {
  const auto tokenizer = load([](json& doc) {
    doc["truncation"] = {{"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
    doc["padding"] = {{"strategy", {{"Fixed", 128}}},
                      {"direction", "Right"},
                      {"pad_to_multiple_of", nullptr},
                      {"pad_id", pad},
                      {"pad_type_id", 0},
                      {"pad_token", "[PAD]"}};
  });
  EXPECT_EQ(tokenizer->encode("hello hello hello").ids.size(), 5u) << "the file's lengths are not applied";
  auto rows = tokenizer->encode_batch({"hello world", "", "hello"});
  EXPECT_EQ(rows[0].ids, (Ids{cls, hello, world, sep}));
  EXPECT_EQ(rows[1].ids, (Ids{cls, sep, pad, pad}));
  EXPECT_EQ(rows[2].attention_mask, (Ids{1, 1, 1, 0}));
  EXPECT_EQ(rows[2].type_ids, Ids(4, 0));
  rows =
      tokenizer->encode_batch({"hello world hello world", "e"}, {.max_length = 5, .pad_to_multiple_of = 8});
  EXPECT_EQ(rows[0].ids, (Ids{cls, hello, world, hello, sep, pad, pad, pad}));
  EXPECT_EQ(rows[1].ids.size(), 8u);
  rows = tokenizer->encode_pairs({"hello hello hello"}, {"e e"}, {.padding = false, .max_length = 7});
  EXPECT_EQ(rows[0].ids, (Ids{cls, hello, hello, sep, e, e, sep}));
  EXPECT_TRUE(tokenizer->encode_batch({}).empty());
  EXPECT_EQ(tokenizer->encode_batch({"hello"}, {.max_length = 2})[0].ids, (Ids{cls, sep}));
  EXPECT_THROW(tokenizer->encode_batch({"hello"}, {.max_length = 1}), graft::UsageError);
  EXPECT_THROW(tokenizer->encode_batch({"hello"}, {.max_length = -1}), graft::UsageError);
  EXPECT_THROW(tokenizer->encode_batch({"hello"}, {.pad_to_multiple_of = 0}), graft::UsageError);
  EXPECT_THROW(tokenizer->encode_pairs({"hello"}, {}), graft::UsageError);
}

TEST_F(TokenizerTest, LeftSideAndPadTokenFromTokenizerConfig) {
  write(
      "tokenizer_config.json",
      R"({"padding_side": "left", "truncation_side": "left", "pad_token": {"content": "[MASK]"}, "any": 1})");
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->pad_token_id(), mask);
  const auto rows = tokenizer->encode_batch({"hello world e", "e"}, {.max_length = 4});
  EXPECT_EQ(rows[0].ids, (Ids{cls, world, e, sep}));
  EXPECT_EQ(rows[1].ids, (Ids{mask, cls, e, sep}));
  EXPECT_EQ(rows[1].attention_mask, (Ids{0, 1, 1, 1}));
  write("tokenizer_config.json", R"({"pad_token": "nothing"})");
  EXPECT_THROW(load()->encode_batch({"hello"}), graft::UsageError);
  EXPECT_EQ(load()->encode_batch({"hello"}, {.padding = false}).size(), 1u);
}

TEST_F(TokenizerTest, ReadsVocabTxt) {
  std::string vocab;
  for (const auto& word : words) vocab += word + "\r\n";
  write("vocab.txt", vocab);
  EXPECT_EQ(Tokenizer::from_pretrained(folder_)->encode("É [MASK]").ids, (Ids{cls, e, mask, sep}));
  write("tokenizer_config.json",
        R"({"do_lower_case": false, "model_max_length": 512, "added_tokens_decoder": {"21": {"content": "<x>",
      "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}})");
  const auto tokenizer = Tokenizer::from_pretrained(folder_);
  EXPECT_EQ(tokenizer->encode("Hello é<x>").ids, (Ids{cls, unk, e_acute, 21, sep}));
  EXPECT_EQ(tokenizer->decode({cls, hello, 21, sep}), "hello");
  for (const char* config :
       {R"({"tokenizer_class": "XLNetTokenizer"})", R"({"word_shape": "round"})",
        R"({"do_basic_tokenize": false})", R"({"mask_token": "<mask>"})", R"({"never_split": ["x"]})"}) {
    write("tokenizer_config.json", config);
    EXPECT_THROW(Tokenizer::from_pretrained(folder_), graft::ConfigError) << config;
  }
}

TEST_F(TokenizerTest, InvalidUtf8IsRefusedWithItsPlace) {
  const auto tokenizer = load();
  try {
    tokenizer->encode("hello \xC3(");
    FAIL();
  } catch (const graft::FormatError& error) {
    EXPECT_STREQ(error.what(), "[tokenizer] the text to encode is not valid UTF-8 at byte 6");
  }
  EXPECT_THROW(tokenizer->encode("", "\x80"), graft::FormatError);
  using graft::io::find_invalid_utf8;
  for (const char* bad :
       {"\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF8", "\xE4\xB8", "\xF0\x9F\x98"})
    EXPECT_EQ(find_invalid_utf8(std::string("é") + bad), 2u) << bad;
  EXPECT_EQ(find_invalid_utf8("aé中😀\U0010FFFF\uD7FF\uE000"), std::string_view::npos);
}

TEST_F(TokenizerTest, WhatIsUnknownOrContradictsItselfIsRefused) {
  for (const char* part : {"normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
    EXPECT_NE(refused([&](json& doc) { doc[part]["type"] = "Fancy"; }).find("Fancy"), std::string::npos);
    const std::string message = refused([&](json& doc) { doc[part]["new_option"] = true; });
    EXPECT_NE(message.find("new_option"), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NO_THROW(load([&](json& doc) { doc[part]["new_option"] = nullptr; })) << "not set";
    refused([&](json& doc) { doc[part] = "text"; });
  }
  EXPECT_NE(refused([](json& doc) { doc["postscript"] = 1; }).find("postscript"), std::string::npos);
  refused([](json& doc) { doc["version"] = "2.0"; });
  refused([](json& doc) { doc.erase("model"); });
  refused([](json& doc) { doc["model"]["unk_token"] = "<unk>"; });
  refused([](json& doc) { doc["model"]["vocab"]["twin"] = hello; });
  refused([](json& doc) { doc["model"]["vocab"]["hello"] = -1; });
  refused([](json& doc) { doc["model"]["vocab"]["hello"] = 1.5; });
  refused([](json& doc) { doc["model"].erase("max_input_chars_per_word"); });
  refused([](json& doc) { doc["added_tokens"][0]["id"] = 7; });
  refused([](json& doc) { doc["added_tokens"].push_back(added(99, "<x>")); });
  refused([](json& doc) { doc["added_tokens"].push_back(added(mask, "[MASK]")); });
  refused([](json& doc) {
    doc["added_tokens"].push_back(added(words.size(), "\u0301", {{"normalized", true}}));
  });
  refused([](json& doc) { doc["added_tokens"][0]["glow"] = true; });
  refused([](json& doc) {
    doc["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", json::array({{{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}}})},
                             {"pair", json::array()},
                             {"special_tokens", json::object()}};
  });
  refused([](json& doc) {
    doc["post_processor"] = {{"type", "TemplateProcessing"},
                             {"single", json::array({{{"Sequence", {{"id", "B"}, {"type_id", 0}}}}})},
                             {"pair", json::array()},
                             {"special_tokens", json::object()}};
  });
}

TEST_F(TokenizerTest, ReadsAModelWithoutTypeAsOldFilesHaveIt) {
  EXPECT_EQ(ids(load([](json& doc) { doc["model"].erase("type"); }), "hello"), (Ids{hello}));
}

TEST_F(TokenizerTest, MissingAndBrokenFiles) {
  EXPECT_THROW(Tokenizer::from_pretrained(folder_), graft::IoError);
  EXPECT_THROW(Tokenizer::from_pretrained(folder_ / "nothing.json"), graft::IoError);
  write("tokenizer.json", R"({"version": "1.0")");
  EXPECT_THROW(Tokenizer::from_pretrained(folder_), graft::FormatError);
  write("tokenizer.json", "[]");
  EXPECT_THROW(Tokenizer::from_pretrained(folder_ / "tokenizer.json"), graft::ConfigError);
}

TEST_F(TokenizerTest, CanBeSharedByThreads) {
  const auto tokenizer = load();
  const auto want = tokenizer->encode("É hello unaffable 中 [MASK]");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) EXPECT_EQ(tokenizer->encode("É hello unaffable 中 [MASK]"), want);
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
