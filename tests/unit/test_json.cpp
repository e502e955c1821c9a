// Strict JSON: what is accepted, and that each refusal says what and where.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "graft/error.h"
#include "io/format/json.h"
#include "temp_dir.h"

namespace graft::io {
namespace {

/// The message of the FormatError that reading `text` gives; empty when it is accepted.
std::string error_of(std::string_view text, JsonLimits limits = {}) {
  try {
    parse_json(text, "x.json", limits);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

void expect_json_error(std::string_view text, std::initializer_list<const char*> words,
                       JsonLimits limits = {}) {
  const std::string what = error_of(text, limits);
  EXPECT_TRUE(what.starts_with("[json] x.json: ")) << text << " -> " << what;
  for (const char* word : words) EXPECT_NE(what.find(word), what.npos) << word << " not in: " << what;
}

TEST(Json, ReadsEveryKindOfValue) {
  const auto value = parse_json(
      " {\"a\": [1, -2, 0.5, 1e3, true, false, null], \"\\u00e9\\ud83d\\ude00\": {\"\": {}}, \"n\": []}\n\t ",
      "x");
  EXPECT_EQ(value["a"], nlohmann::json::parse("[1, -2, 0.5, 1e3, true, false, null]"));
  EXPECT_EQ(value["é😀"][""], nlohmann::json::object());
  EXPECT_EQ(value["n"], nlohmann::json::array());
  EXPECT_EQ(parse_json("7", "x"), 7);
}

TEST(Json, LargeIntegersBecomeDoubles) {  // tokenizer_config.json: "model_max_length"
  EXPECT_DOUBLE_EQ(parse_json("1000000000000000019884624838656", "x").get<double>(), 1e30);
  EXPECT_EQ(parse_json("18446744073709551615", "x").get<uint64_t>(), 18446744073709551615u);
}

TEST(Json, RefusesBrokenSyntaxWithLineAndByte) {
  expect_json_error("{\"a\": 1,\n \"b\" 2}", {"invalid JSON", "line 2", "near byte 16"});
  expect_json_error("", {"invalid JSON", "end of input"});
  expect_json_error("   ", {"invalid JSON"});
  expect_json_error("{\"a\":", {"invalid JSON", "end of input"});
  expect_json_error("{'a': 1}", {"invalid JSON"});
  expect_json_error("[1,]", {"invalid JSON"});
  expect_json_error("[01]", {"invalid JSON"});
  expect_json_error("[1e999]", {"invalid JSON", "overflow"});
  expect_json_error("[NaN]", {"invalid JSON"});
  expect_json_error("[Infinity]", {"invalid JSON"});
  expect_json_error("{} // comment", {"invalid JSON"});
  expect_json_error("\"a\nb\"", {"invalid JSON"});
}

TEST(Json, RefusesDuplicateKeys) {
  expect_json_error("{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}", {"\"a\"", "twice", "near byte 27"});
  expect_json_error("{\"a\": 1, \"\\u0061\": 3}", {"\"a\"", "twice"});
  EXPECT_EQ(error_of("[{\"a\": 1}, {\"a\": 1}]"), "");
}

TEST(Json, RefusesTrailingGarbage) {
  expect_json_error("{} {}", {"invalid JSON", "near byte"});
  expect_json_error("1 2", {"invalid JSON"});
  expect_json_error(std::string_view("{}\0", 3), {"NUL", "near byte 2"});
  expect_json_error(std::string_view("{}\0 garbage", 11), {"NUL"});
}

TEST(Json, RefusesWhatIsNotUtf8) {
  expect_json_error("\"\xff\"", {"invalid JSON", "UTF-8"});
  expect_json_error("\"\xc0\x80\"", {"invalid JSON", "UTF-8"});      // overlong
  expect_json_error("\"\xed\xa0\x80\"", {"invalid JSON", "UTF-8"});  // a surrogate
  expect_json_error("\"\\ud800\"", {"invalid JSON", "surrogate"});
  expect_json_error("\xEF\xBB\xBF{}", {"byte order mark"});
}

TEST(Json, DepthIsCappedWithoutRecursion) {
  expect_json_error(std::string(10'000'000, '['), {"nested too deeply", "64"});
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(64)), "");
  expect_json_error(nested(65), {"nested too deeply"});
  expect_json_error("{\"a\":{\"a\":1}}", {"nested too deeply, more than 1"}, {.max_depth = 1});
}

TEST(Json, SizeIsCapped) {
  expect_json_error("[1, 2, 3]", {"9 bytes", "8 allowed"}, {.max_bytes = 8});
  EXPECT_EQ(error_of("[1, 2, 3]", {.max_bytes = 9}), "");
}

TEST(Json, MessagesAreShortAndOnOneLine) {
  const std::string what = error_of("{\"" + std::string(1'000'000, 'x') + "\n\"}");
  EXPECT_LT(what.size(), 1000u);
  EXPECT_EQ(what.find('\n'), what.npos);
  const std::string key = "\"" + std::string(1'000'000, 'k') + "\\n\"";
  EXPECT_LT(error_of("{" + key + ":1," + key + ":2}").size(), 1000u);
}

TEST(Json, ReadsFiles) {
  const TempDir dir;
  std::ofstream(dir / "a.json") << "{\"a\": [1]}";
  EXPECT_EQ(read_json_file(dir / "a.json")["a"][0], 1);
  std::ofstream(dir / "empty.json");
  std::ofstream(dir / "bad.json") << "{";
  EXPECT_THROW(read_json_file(dir / "empty.json"), FormatError);
  EXPECT_THROW(read_json_file(dir / "a.json", {.max_bytes = 3}), FormatError);
  EXPECT_THROW(read_json_file(dir / "none.json"), IoError);
  EXPECT_THROW(read_json_file(dir.path()), IoError);
  try {
    read_json_file(dir / "bad.json");
    FAIL();
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("bad.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace graft::io
