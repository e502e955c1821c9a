// The parts of the reader of tokenizer.model: one test per malformation, and segmentations small enough to do
// by hand.
#include <gtest/gtest.h>

#include "graft/error.h"
#include "io/format/protobuf.h"
#include "io/tokenizer/charsmap.h"
#include "io/tokenizer/sentencepiece.h"

namespace graft::io {
namespace {
using namespace std::string_literals;
using Kind = SentencePiece::Kind;

std::string what_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Protobuf, ReadsEachWireType) {
  const auto bytes = "\x08\xac\x02\x15\0\0\xc0\x3f\x1a\x02hi\x21\1\2\3\4\5\6\7\x08"s;
  ProtoReader in(bytes, "f");
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.field(), 1U);
  EXPECT_EQ(in.varint(), 300U);
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.number(), 1.5F);
  ASSERT_TRUE(in.next());
  EXPECT_EQ(in.text(), "hi");
  ASSERT_TRUE(in.next());  // nobody asks for it
  EXPECT_EQ(in.field(), 4U);
  EXPECT_FALSE(in.next());
}

TEST(Protobuf, EachMalformationHasItsMessage) {
  const std::pair<std::string, const char*> cases[] = {
      {"\x08"s, "ends inside a number"},
      {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"s, "more than 64 bits"},
      {"\x1a\x05hi"s, "has 5 bytes, and 2 are left"},
      {"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7fhi"s, "are left"},
      {"\x0b"s, "unknown wire type 3"},
      {"\x00\x01"s, "number 0"},
      {"\x1d\x01\x02"s, "4 bytes, and 2 are left"}};
  for (const auto& [bytes, said] : cases) {
    const auto what = what_of([&] {
      for (ProtoReader in(bytes, "f"); in.next();) {
      }
    });
    EXPECT_NE(what.find(said), what.npos) << what;
  }
  const auto wrong = what_of([] {
    ProtoReader in("\x08\x01", "f");
    in.next();
    in.text();
  });
  EXPECT_NE(wrong.find("field 1 is not a text"), wrong.npos) << wrong;
}

TEST(Charsmap, IsCheckedBeforeItIsUsed) {
  for (const auto& [bytes, said] : {std::pair("\x01"s, "cut off"),
                                    {"\xff\xff\xff\x7f\0\0\0\0"s, "wrong size"},
                                    {"\x04\0\0\0\0\0\0\0"s, "without an end"},
                                    {"\x04\0\0\0\0\0\0\0\xff\0"s, "not UTF-8"}}) {
    const auto what = what_of([&, bytes = bytes] { Charsmap(bytes, "f"); });
    EXPECT_NE(what.find(said), what.npos) << what;
  }
  // A trie whose only unit points far away finds nothing, and reads nothing.
  const Charsmap wild("\x04\0\0\0\xff\xff\xff\x7f"s + "x\0"s, "f");
  EXPECT_FALSE(wild.find("abc", 0));
}

SentencePieceFile file_of(SentencePieceFile::Model model, std::vector<SentencePiece> pieces) {
  pieces.insert(pieces.begin(), {"<unk>", 0, Kind::unknown});
  return {.pieces = std::move(pieces), .model = model};
}

std::vector<int64_t> ids_of(const SentencePieceFile& file, const std::string& text) {
  const auto parts = make_sentencepiece(file, "f");
  std::vector<Word> words;
  const auto normal = parts.normalizer->normalize(text);
  if (!normal.empty()) parts.pre_tokenizer->split({normal, true}, words);
  std::vector<int64_t> ids;
  for (const auto& word : words) parts.model->tokenize(word.text, ids);
  return ids;
}

TEST(SentencePiece, BpeJoinsTheBestScoreFirst) {
  const auto file = file_of(SentencePieceFile::Model::bpe,
                            {{"▁", -9}, {"a", -9}, {"b", -9}, {"c", -9}, {"ab", -2}, {"bc", -1}, {"▁a", -3}});
  EXPECT_EQ(ids_of(file, "abc"), (std::vector<int64_t>{7, 6}));  // "bc" goes before "ab", then "▁a"
  EXPECT_EQ(ids_of(file, "  ab  "), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(ids_of(file, "zzz a"), (std::vector<int64_t>{1, 0, 7}));  // unknown ones are one
  EXPECT_TRUE(ids_of(file, "   ").empty());
}

TEST(SentencePiece, BpeTakesUnusedPiecesApartAgain) {
  auto file =
      file_of(SentencePieceFile::Model::bpe, {{"a", -9}, {"b", -9}, {"ab", -1, Kind::unused}, {"aba", -2}});
  file.add_dummy_prefix = false;
  EXPECT_EQ(ids_of(file, "ab"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ids_of(file, "aba"), (std::vector<int64_t>{4}));
}

TEST(SentencePiece, UnigramTakesTheBestSum) {
  auto file =
      file_of(SentencePieceFile::Model::unigram,
              {{"a", -4}, {"b", -4}, {"c", -4}, {"ab", -5}, {"bc", -3}, {"x y", 0, Kind::user_defined}});
  file.add_dummy_prefix = false;
  EXPECT_EQ(ids_of(file, "abc"), (std::vector<int64_t>{1, 5}));  // -4-3 against -5-4
  EXPECT_EQ(ids_of(file, "a?!c"), (std::vector<int64_t>{1, 0, 3}));
}

TEST(SentencePiece, SymbolsOfTheUserStayWhole) {
  for (const auto model : {SentencePieceFile::Model::unigram, SentencePieceFile::Model::bpe}) {
    auto file = file_of(model, {{"a", -1}, {"b", -1}, {"ab", -1}, {"ba", -9, Kind::user_defined}});
    file.add_dummy_prefix = false;
    EXPECT_EQ(ids_of(file, "abab"), (std::vector<int64_t>{1, 4, 2}));
  }
}

TEST(SentencePiece, FallsBackOnBytes) {
  auto file = file_of(SentencePieceFile::Model::bpe, {{"a", -1}});
  for (const char* byte : {"<0xC3>", "<0xA4>"}) file.pieces.push_back({byte, 0, Kind::byte});
  file.byte_fallback = true;
  file.add_dummy_prefix = false;
  EXPECT_EQ(ids_of(file, "aä?"), (std::vector<int64_t>{1, 2, 3, 0}));
}

TEST(SentencePiece, FilesThatMakeNoSenseAreRefused) {
  // Pieces as messages: field 1 of the file, with the text as field 1 and the kind as field 3.
  const auto piece = [](const std::string& text, char kind) {
    const auto body = "\x0a"s + static_cast<char>(text.size()) + text + "\x18"s + kind;
    return "\x0a"s + static_cast<char>(body.size()) + body;
  };
  const auto unknown = piece("<unk>", 2);
  for (const auto& [bytes, said] : {std::pair(""s, "no unknown token"),
                                    {unknown + piece("<u>", 2), "two unknown tokens"},
                                    {unknown + piece("a", 1) + piece("a", 1), "twice"},
                                    {unknown + piece("", 1), "empty piece"},
                                    {unknown + piece("a", 9), "unknown kind 9"},
                                    {unknown + "\x12\x02\x18\x03"s, "type 3"},
                                    {unknown + "\x1a\x02\x28\0"s, "escape_whitespaces"}}) {
    const auto what = what_of([&, bytes = bytes] { parse_sentencepiece(bytes, "f"); });
    EXPECT_NE(what.find(said), what.npos) << what;
  }
}

}  // namespace
}  // namespace graft::io
