// The safetensors header: one test per malformation, each with its own message, and write -> read as a
// property.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "graft/error.h"
#include "io/format/safetensors_header.h"

namespace graft::io {
namespace {

std::string file_of(const std::string& json, size_t data_bytes, uint64_t length) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
  return file + json + std::string(data_bytes, 'd');
}
std::string file_of(const std::string& json, size_t data_bytes) {
  return file_of(json, data_bytes, json.size());
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "x.safetensors");
}

void expect_error(const std::string& file, std::initializer_list<const char*> words) {
  try {
    parse(file);
    ADD_FAILURE() << "accepted: " << file.substr(0, 200);
  } catch (const FormatError& error) {
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with("[safetensors] x.safetensors: ")) << what;
    EXPECT_LT(what.size(), 1000u);
    EXPECT_EQ(what.find('\n'), what.npos);
    for (const char* word : words) EXPECT_NE(what.find(word), what.npos) << word << " not in: " << what;
  }
}

/// A header of one tensor "a" of four bytes whose entry has these fields.
std::string with_fields(const std::string& fields, size_t data_bytes = 4) {
  return file_of("{\"a\":{" + fields + "}}", data_bytes);
}
std::string with_shape(const std::string& shape) {
  return with_fields("\"dtype\":\"U8\",\"shape\":" + shape + ",\"data_offsets\":[0,4]");
}
std::string with_offsets(const std::string& offsets, size_t data_bytes = 4) {
  return with_fields("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + offsets, data_bytes);
}
std::string entry(const std::string& begin, const std::string& end, const std::string& shape = "4") {
  return "{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[" + begin + "," + end + "]}";
}
const std::string kEntry = entry("0", "4");

TEST(SafetensorsHeader, Accepts) {
  const auto header =
      parse(file_of("{\"b\":{\"shape\":[2,1],\"data_offsets\":[8,16],\"dtype\":\"F32\"},\"__metadata__\":{"
                    "\"format\":\"pt\"},"
                    "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}} \n\t ",
                    16));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0], (SafetensorsEntry{"a", SafetensorsDtype::F64, {}, 0, 8}));
  EXPECT_EQ(header.entries[1], (SafetensorsEntry{"b", SafetensorsDtype::F32, {2, 1}, 8, 16}));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(SafetensorsHeader, AcceptsTheEdges) {
  EXPECT_TRUE(parse(file_of("{}", 0)).entries.empty());
  EXPECT_TRUE(parse(file_of("{\"__metadata__\":null}", 0)).metadata.empty());
  EXPECT_TRUE(parse(file_of("{\"__metadata__\":{}}", 0)).metadata.empty());
  EXPECT_EQ(parse(file_of("{\"\":" + kEntry + "}", 4)).entries[0].name, "");
  EXPECT_EQ(parse(file_of("{\"a\\u0000\":" + kEntry + "}", 4)).entries[0].name, std::string("a\0", 2));
  EXPECT_EQ(parse(with_shape("[1,1,1,1,1,1,1,1,4]")).entries[0].shape.size(), 9u);
  // Empty tensors may lie at any border between others.
  const auto header = parse(file_of(
      "{\"z\":" + entry("4", "4", "0") + ",\"a\":" + kEntry + ",\"y\":" + entry("0", "0", "3,0") + "}", 4));
  EXPECT_EQ(header.entries[0].name, "y");
  EXPECT_EQ(header.entries[1].name, "a");
  EXPECT_EQ(header.entries[2].name, "z");
  // As in the reference implementation, a zero saves the dimensions that follow it from overflow.
  EXPECT_EQ(
      parse(file_of("{\"a\":" + entry("0", "0", "0,1099511627776,1099511627776") + "}", 0)).entries.size(),
      1u);
}

TEST(SafetensorsHeader, AcceptsEveryDtype) {
  for (const std::string name :
       {"BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
        "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
        "U32",     "F32",         "C64",         "F64",     "I64", "U64"}) {
    const auto dtype = dtype_named(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(name_of(*dtype), name);
    const std::string bytes = std::to_string(4 * bits_of(*dtype) / 8);
    const auto header = parse(with_fields(
        "\"dtype\":\"" + name + "\",\"shape\":[4],\"data_offsets\":[0," + bytes + "]", std::stoul(bytes)));
    EXPECT_EQ(header.entries[0].dtype, *dtype);
  }
}

TEST(SafetensorsHeader, RefusesShortFiles) {
  expect_error("", {"0 bytes", "too few"});
  expect_error("1234567", {"7 bytes", "too few"});
}

TEST(SafetensorsHeader, RefusesLengthsOverTheCap) {
  expect_error(file_of("{}", 0, 100'000'001), {"header length", "100000001", "over the limit"});
  expect_error(file_of("{}", 0, ~uint64_t{0}), {"18446744073709551615", "over the limit"});
}

TEST(SafetensorsHeader, RefusesLengthsBeyondTheFile) {
  expect_error(file_of("{}", 0, 3), {"header length", "3 bytes", "beyond the end", "truncated"});
  expect_error(file_of("{}", 0, 100'000'000), {"beyond the end"});
}

TEST(SafetensorsHeader, SaysWhatItIsInstead) {
  expect_error("version https://git-lfs.github.com/spec/v1\noid sha256:",
               {"Git LFS pointer", "git lfs pull"});
  expect_error(std::string("PK\x03\x04\0\0\x08\x08\0\0", 10), {"pickle"});
  expect_error("GGUF\3\1\1\1\1\1\1\1", {"GGUF"});
  expect_error("<!DOCTYPE html>", {"web page"});
  expect_error("{\"a\": [1, 2]}", {"JSON file"});
}

TEST(SafetensorsHeader, RefusesWhatDoesNotStartWithABrace) {
  expect_error(file_of(" {}", 0), {"does not start with '{'"});
  expect_error(file_of("[]", 0), {"does not start with '{'"});
  expect_error(file_of("", 0), {"header is empty"});
}

TEST(SafetensorsHeader, RefusesInvalidJson) {
  expect_error(file_of("{", 0), {"invalid JSON", "near byte 9"});
  expect_error(file_of("{\"a\":" + kEntry + ",}", 4), {"invalid JSON"});
  expect_error(file_of("{} {}", 0), {"invalid JSON"});
  expect_error(file_of(std::string("{}\0", 3), 0), {"invalid JSON", "NUL", "near byte 10"});
  expect_error(file_of("{\"a\":1e999}", 0), {"invalid JSON", "overflow"});
}

TEST(SafetensorsHeader, RefusesDeepNesting) {
  expect_error(with_shape("[[4]]"), {"nested too deeply"});
  // More than the stack could bear, were anything recursive.
  expect_error(file_of("{\"a\":{\"shape\":" + std::string(10'000'000, '['), 0), {"nested too deeply"});
}

TEST(SafetensorsHeader, RefusesDuplicates) {
  expect_error(file_of("{\"a\":" + kEntry + ",\"a\":" + kEntry + "}", 4), {"tensor name \"a\"", "twice"});
  expect_error(file_of("{\"a\":" + kEntry + ",\"\\u0061\":" + entry("4", "8") + "}", 8),
               {"tensor name \"a\"", "twice"});
  expect_error(with_fields("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]"),
               {"field dtype", "twice"});
  expect_error(with_fields("\"dtype\":\"U8\",\"shape\":[4],\"shape\":[4],\"data_offsets\":[0,4]"),
               {"field shape", "twice"});
  expect_error(file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0), {"metadata key \"k\"", "twice"});
  expect_error(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), {"__metadata__ appears twice"});
}

TEST(SafetensorsHeader, RefusesNamesThatAreNotUtf8) {
  expect_error(file_of("{\"\xff\":" + kEntry + "}", 4), {"invalid JSON", "UTF-8"});
  expect_error(file_of("{\"\\ud800\":" + kEntry + "}", 4), {"invalid JSON", "surrogate"});
}

TEST(SafetensorsHeader, RefusesUnknownDtypes) {
  expect_error(with_fields("\"dtype\":\"C128\",\"shape\":[4],\"data_offsets\":[0,4]"),
               {"tensor \"a\"", "unknown dtype \"C128\"", "known are", "BOOL", "BF16", "U64"});
  expect_error(with_fields("\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]"), {"unknown dtype"});
}

TEST(SafetensorsHeader, RefusesMissingAndUnknownFields) {
  expect_error(with_fields("\"shape\":[4],\"data_offsets\":[0,4]"), {"\"a\"", "field dtype is missing"});
  expect_error(with_fields("\"dtype\":\"U8\",\"data_offsets\":[0,4]"), {"field shape is missing"});
  expect_error(with_fields("\"dtype\":\"U8\",\"shape\":[4]"), {"field data_offsets is missing"});
  expect_error(with_fields(""), {"field dtype is missing"});
  expect_error(with_fields("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"extra\":1"),
               {"unknown field \"extra\"", "known are"});
}

TEST(SafetensorsHeader, RefusesMistypedFields) {
  for (const std::string value : {"1", "-1", "1.5", "true", "null", "\"x\"", "[]"}) {
    expect_error(file_of("{\"a\":" + value + "}", 0), {"tensor \"a\"", "must be an object with dtype"});
  }
  for (const std::string value : {"1", "-1", "1.5", "true", "null", "{}", "[]"}) {
    expect_error(with_fields("\"dtype\":" + value), {"dtype must be a string, not"});
  }
  for (const std::string value : {"1", "-1", "1.5", "true", "null", "{}", "\"4\""}) {
    expect_error(with_shape(value), {"shape must be a list of non-negative integers, not"});
    expect_error(with_offsets(value), {"data_offsets must be a list of non-negative integers, not"});
  }
  for (const std::string value : {"true", "null", "\"4\""}) {
    expect_error(with_shape("[" + value + "]"), {"shape must be a list of non-negative integers, and has"});
    expect_error(with_offsets("[0," + value + "]"), {"data_offsets must be a list", "and has"});
  }
}

TEST(SafetensorsHeader, RefusesBadNumbers) {
  expect_error(with_shape("[-4]"), {"shape has the negative number -4"});
  expect_error(with_shape("[-0]"), {"shape has the negative number"});
  expect_error(with_shape("[4.0]"), {"shape has \"4.0\"", "not an integer"});
  expect_error(with_shape("[4e0]"), {"not an integer"});
  expect_error(with_shape("[18446744073709551616]"), {"too large for 64 bits"});
  expect_error(with_shape("[0,9223372036854775808]"), {"dimension 9223372036854775808", "too large"});
  expect_error(with_offsets("[-1,3]"), {"data_offsets has the negative number -1"});
  expect_error(with_offsets("[0.0,4]"), {"data_offsets has \"0.0\"", "not an integer"});
  expect_error(with_offsets("[0,18446744073709551616]"), {"too large for 64 bits"});
}

TEST(SafetensorsHeader, RefusesShapesThatOverflow) {
  expect_error(with_shape("[4294967296,4294967296]"), {"size of the shape overflows"});
  expect_error(with_shape("[1099511627776,1099511627776,0]"), {"size of the shape overflows"});
  expect_error(with_shape("[4611686018427387904]"), {"size of the shape overflows"});  // in bits
}

TEST(SafetensorsHeader, RefusesTooManyDimensions) {
  std::string dims = "4";
  for (int i = 1; i < 64; ++i) dims += ",1";
  EXPECT_EQ(parse(with_shape("[" + dims + "]")).entries[0].shape.size(), 64u);
  expect_error(with_shape("[" + dims + ",1]"), {"more than 64 dimensions"});
}

TEST(SafetensorsHeader, RefusesBadOffsets) {
  expect_error(with_offsets("[4,0]"), {"data_offsets [4, 0]", "end before they begin"});
  expect_error(with_offsets("[0,5]"), {"data_offsets [0, 5]", "beyond the data", "4 bytes", "truncated"});
  expect_error(with_offsets("[0,18446744073709551615]"), {"beyond the data"});
  expect_error(with_offsets("[0]"), {"data_offsets must have two numbers"});
  expect_error(with_offsets("[]"), {"data_offsets must have two numbers"});
  expect_error(with_offsets("[0,4,4]"), {"data_offsets must have two numbers", "more"});
}

TEST(SafetensorsHeader, RefusesSizesThatDoNotMatch) {
  expect_error(with_offsets("[0,3]"), {"hold 3 bytes", "dtype U8", "need 4"});
  expect_error(with_fields("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]", 2),
               {"12 bits", "whole bytes"});
  expect_error(with_fields("\"dtype\":\"F6_E3M2\",\"shape\":[],\"data_offsets\":[0,1]", 1),
               {"6 bits", "whole bytes"});
}

TEST(SafetensorsHeader, RefusesOverlapsHolesAndTrailingBytes) {
  expect_error(file_of("{\"a\":" + kEntry + ",\"b\":" + kEntry + "}", 4), {"\"b\" overlaps \"a\""});
  expect_error(file_of("{\"a\":" + kEntry + ",\"b\":" + entry("2", "6") + "}", 6),
               {"\"b\" overlaps \"a\"", "byte 2"});
  expect_error(file_of("{\"a\":" + kEntry + ",\"z\":" + entry("2", "2", "0") + "}", 4),
               {"\"z\" overlaps \"a\""});
  expect_error(file_of("{\"a\":" + kEntry + ",\"b\":" + entry("6", "10") + "}", 10),
               {"hole", "\"b\"", "bytes 4 to 6"});
  expect_error(file_of("{\"a\":" + entry("1", "5") + "}", 5), {"hole", "\"a\"", "bytes 0 to 1"});
  expect_error(file_of("{\"a\":" + kEntry + "}", 7), {"3 trailing bytes"});
  expect_error(file_of("{}", 1), {"1 trailing bytes"});
}

TEST(SafetensorsHeader, RefusesMetadataThatAreNotStrings) {
  for (const std::string value : {"1", "-1", "1.5", "true", "\"x\"", "[]"}) {
    expect_error(file_of("{\"__metadata__\":" + value + "}", 0),
                 {"__metadata__ must map strings to strings", "instead"});
  }
  for (const std::string value : {"1", "-1", "1.5", "true", "null", "{}", "[]"}) {
    expect_error(file_of("{\"__metadata__\":{\"k\":" + value + "}}", 0),
                 {"__metadata__ must map strings to strings", "as a value"});
  }
  expect_error(file_of("{\"__metadata__\":" + kEntry + "}", 4), {"__metadata__ must map strings to strings"});
}

TEST(SafetensorsHeader, MessagesStayShort) {
  const std::string name(1'000'000, 'n');
  expect_error(file_of("{\"" + name + "\\n\":1}", 0), {"nnn"});
  expect_error(with_fields("\"dtype\":\"" + name + "\""), {"unknown dtype"});
}

TEST(SafetensorsHeader, LayOutFollowsTheReference) {
  std::vector<SafetensorsEntry> entries{{.name = "b", .dtype = SafetensorsDtype::F32, .shape = {2}},
                                        {.name = "a", .dtype = SafetensorsDtype::F32, .shape = {}},
                                        {.name = "z", .dtype = SafetensorsDtype::I64, .shape = {1}},
                                        {.name = "0", .dtype = SafetensorsDtype::BOOL, .shape = {3}}};
  lay_out(entries);
  EXPECT_EQ(
      serialize_safetensors_header(entries, {{"format", "pt"}}).substr(8),
      "{\"__metadata__\":{\"format\":\"pt\"},\"z\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
      "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
      "\"data_offsets\":[12,20]},\"0\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[20,23]}}       ");
  EXPECT_EQ(serialize_safetensors_header({}, {}), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(SafetensorsHeader, LayOutRefusesWhatTheFormatCannotHold) {
  const auto error_of = [](std::vector<SafetensorsEntry> entries) -> std::string {
    try {
      lay_out(entries);
      serialize_safetensors_header(entries, {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const auto u8 = SafetensorsDtype::U8;
  EXPECT_NE(error_of({{"a", u8, {1}}, {"a", SafetensorsDtype::F32, {1}}}).find("two tensors of one name"),
            std::string::npos);
  EXPECT_NE(error_of({{"__metadata__", u8, {1}}}).find("keeps that name"), std::string::npos);
  EXPECT_NE(error_of({{"a", u8, {-1}}}).find("negative"), std::string::npos);
  EXPECT_NE(error_of({{"a", u8, {INT64_MAX, 4}}}).find("overflows"), std::string::npos);
  EXPECT_NE(error_of({{"a", SafetensorsDtype::F4, {3}}}).find("whole bytes"), std::string::npos);
  EXPECT_NE(error_of({{"a", u8, std::vector<int64_t>(65, 1)}}).find("64 dimensions"), std::string::npos);
  EXPECT_NE(error_of({{"\xff", u8, {1}}}).find("not UTF-8"), std::string::npos);
  EXPECT_THROW(serialize_safetensors_header({}, {{"k", "\xff"}}), UsageError);
  EXPECT_THROW(serialize_safetensors_header({}, {{"k", std::string(100'000'000, 'x')}}), UsageError);
}

/// Any code points but surrogates, in UTF-8.
rc::Gen<std::string> any_text() {
  const auto code_point =
      rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>(0x80, 0xd800),
                     rc::gen::inRange<uint32_t>(0xe000, 0x110000));
  return rc::gen::map(
      rc::gen::container<std::vector<uint32_t>>(code_point), [](const std::vector<uint32_t>& points) {
        std::string text;
        for (const uint32_t c : points) {
          const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
          if (c < 0x80) {
            text += static_cast<char>(c);
          } else if (c < 0x800) {
            text += static_cast<char>(0xc0 | c >> 6), tail(0);
          } else if (c < 0x10000) {
            text += static_cast<char>(0xe0 | c >> 12), tail(6), tail(0);
          } else {
            text += static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0);
          }
        }
        return text;
      });
}

RC_GTEST_PROP(SafetensorsHeaderProperty, WhatIsWrittenIsRead, ()) {
  const auto names = *rc::gen::unique<std::vector<std::string>>(any_text());
  std::vector<SafetensorsEntry> entries;
  for (const auto& name : names) {
    SafetensorsEntry entry{.name = name};
    entry.dtype =
        static_cast<SafetensorsDtype>(*rc::gen::inRange(0, static_cast<int>(SafetensorsDtype::U64) + 1));
    entry.shape = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5));
    if (*size_in_bits(entry.dtype, entry.shape) % 8 != 0) entry.shape.push_back(4);
    if (name != "__metadata__" && entry.shape.size() <= kMaxDims) entries.push_back(entry);
  }
  const auto metadata = *rc::gen::container<std::map<std::string, std::string>>(any_text(), any_text());

  lay_out(entries);
  const std::string text = serialize_safetensors_header(entries, metadata);
  const uint64_t data = entries.empty() ? 0 : entries.back().end;
  const auto header = parse_safetensors_header(std::as_bytes(std::span(text)), text.size() + data, "x");

  // Equal but for the order of empty tensors, which share an offset.
  const auto by_offset = [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  };
  std::sort(entries.begin(), entries.end(), by_offset);
  RC_ASSERT(header.entries == entries);
  RC_ASSERT(header.metadata == metadata);
  RC_ASSERT(header.data_start == text.size() && text.size() % 8 == 0);
}

}  // namespace
}  // namespace graft::io
