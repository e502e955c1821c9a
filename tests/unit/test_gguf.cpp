// The GGUF header: one test per malformation, each with its own message. tests/oracle/test_gguf_live.py has
// the comparison with the reference.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "graft/error.h"
#include "io/format/gguf_config.h"
#include "models/gguf_weights.h"

namespace graft::io {
namespace {

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text_of(const std::string& text) { return bytes_of(uint64_t{text.size()}) + text; }

std::string entry(const std::string& key, uint32_t kind, const std::string& value) {
  return text_of(key) + bytes_of(kind) + value;
}
std::string number(const std::string& key, uint32_t value) { return entry(key, 4, bytes_of(value)); }
std::string string(const std::string& key, const std::string& value) { return entry(key, 8, text_of(value)); }

/// Dimensions innermost first, as in the file.
std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                   uint64_t offset) {
  std::string bytes = text_of(name) + bytes_of(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) bytes += bytes_of(dim);
  return bytes + bytes_of(type) + bytes_of(offset);
}

std::string head(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
  return "GGUF" + bytes_of(version) + bytes_of(tensors) + bytes_of(entries);
}
std::string with_data(std::string file, size_t data, size_t alignment = 32) {
  file.resize((file.size() + alignment - 1) / alignment * alignment);
  return file + std::string(data, 'd');
}

GgufHeader parse(const std::string& file) {
  return parse_gguf_header(std::as_bytes(std::span(file)), "x.gguf");
}

void expect_gguf_error(const std::string& file, std::initializer_list<const char*> words) {
  try {
    parse(file);
    ADD_FAILURE() << "accepted, should say " << *words.begin();
  } catch (const FormatError& error) {
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with("[gguf] x.gguf: ")) << what;
    EXPECT_LT(what.size(), 1000u);
    for (const char* word : words) EXPECT_NE(what.find(word), what.npos) << word << " not in: " << what;
  }
}

TEST(Gguf, ReadsEveryKindOfValue) {
  const auto header = parse(head(0, 9) + entry("a", 0, "\xff") + entry("b", 1, "\xff") +
                            entry("c", 6, bytes_of(0.5f)) + entry("d", 7, "\x01") + string("e", "é") +
                            entry("f", 9, bytes_of(8u) + bytes_of(uint64_t{2}) + text_of("x") + text_of("")) +
                            entry("g", 9, bytes_of(5u) + bytes_of(uint64_t{2}) + bytes_of(-1) + bytes_of(7)) +
                            entry("h", 11, bytes_of(int64_t{-5})) + entry("i", 12, bytes_of(0.1)));
  EXPECT_EQ(*header.integer("a", ""), 255);
  EXPECT_EQ(*header.integer("b", ""), -1);
  EXPECT_EQ(std::get<double>(header.metadata.at("c")), 0.5);
  EXPECT_EQ(*header.boolean("d", ""), true);
  EXPECT_EQ(*header.string("e", ""), "é");
  EXPECT_EQ(*header.strings("f", ""), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(*header.integers("g", ""), (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(*header.integer("h", ""), -5);
  EXPECT_EQ(std::get<double>(header.metadata.at("i")), 0.1);
  EXPECT_EQ(header.integer("z", ""), nullptr);
  EXPECT_THROW(header.integer("e", ""), FormatError);
}

TEST(Gguf, ReadsTensorsOutermostDimensionFirst) {
  const auto header = parse(with_data(
      head(2, 1) + number("general.alignment", 8) + tensor("a", {32, 3}, 8, 0) + tensor("b", {5}, 0, 104),
      124, 8));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{3, 32}));
  EXPECT_EQ(header.tensors[0].bytes, 102u);
  EXPECT_EQ(header.tensors[1].bytes, 20u);
  EXPECT_EQ(header.alignment, 8u);
}

TEST(Gguf, RefusesWhatIsNoGguf) {
  expect_gguf_error("", {"at byte 0", "not a GGUF file"});
  expect_gguf_error("version https://git-lfs", {"git lfs pull"});
  expect_gguf_error(head(0, 0, 1), {"version 1", "2 and 3"});
  expect_gguf_error(head(0, 0, 0x03000000), {"big-endian"});
  expect_gguf_error(head(0, 0).substr(0, 20), {"metadata entries", "truncated"});
}

TEST(Gguf, RefusesCountsBeyondTheFile) {
  expect_gguf_error(head(~uint64_t{0}, 0), {"18446744073709551615 tensors", "more than"});
  expect_gguf_error(head(0, 1000), {"1000 metadata entries", "more than the 0 bytes"});
  expect_gguf_error(
      head(0, 1) + entry("a", 9, bytes_of(8u) + bytes_of(uint64_t{1} << 60) + std::string(50, 'x')),
      {"\"a\"", "more than the 50 bytes"});
  expect_gguf_error(head(0, 1) + bytes_of(~uint64_t{0}) + std::string(20, 'x'), {"a metadata key", "needs"});
}

TEST(Gguf, RefusesBadMetadata) {
  expect_gguf_error(head(0, 2) + number("a", 1) + number("a", 1), {"\"a\" appears twice"});
  expect_gguf_error(head(0, 1) + entry("abc", 13, "12345678"), {"\"abc\"", "unknown kind 13"});
  expect_gguf_error(head(0, 1) + entry("a", 9, bytes_of(9u) + bytes_of(uint64_t{0})), {"list of lists"});
  expect_gguf_error(head(0, 1) + entry("a", 9, bytes_of(77u) + bytes_of(uint64_t{0})),
                    {"list of the unknown kind 77"});
  expect_gguf_error(head(0, 1) + entry("abc", 7, "\x02"), {"true or false", "2"});
  expect_gguf_error(head(0, 1) + string("abc", "\xff"), {"\"abc\" is not UTF-8"});
  expect_gguf_error(head(0, 1) + entry("", 4, bytes_of(1u)), {"key of 0 bytes"});
  expect_gguf_error(head(0, 1) + entry("a", 10, bytes_of(~uint64_t{0})), {"too large for 64 bits with sign"});
  for (const uint32_t alignment : {0u, 3u, 48u})
    expect_gguf_error(head(0, 1) + number("general.alignment", alignment), {"power of two"});
  expect_gguf_error(head(0, 1) + string("general.alignment", "x"), {"must be an integer"});
}

TEST(Gguf, RefusesBadTensors) {
  const auto one = [](const std::string& entry, size_t data = 64) {
    return with_data(head(1, 0) + entry, data);
  };
  expect_gguf_error(one(tensor("a", {1, 1, 1, 1, 1}, 0, 0)), {"\"a\"", "5 dimensions"});
  expect_gguf_error(one(tensor("a", {4}, 10, 0)), {"type 10 (Q2_K)", "known are F32"});
  expect_gguf_error(one(tensor("a", {4}, 99, 0)), {"type 99 (of an unknown kind)"});
  expect_gguf_error(one(tensor("a", {33}, 8, 0)), {"rows of 33", "blocks of 32", "Q8_0"});
  expect_gguf_error(one(tensor("a", {}, 8, 0)), {"blocks of 32"});
  expect_gguf_error(one(tensor("a", {uint64_t{1} << 40, uint64_t{1} << 40}, 0, 0)), {"overflows 64 bits"});
  expect_gguf_error(one(tensor("a", {uint64_t{1} << 62}, 0, 0)), {"overflows 64 bits"});
  expect_gguf_error(one(tensor("a", {~uint64_t{0}}, 0, 0)), {"too large for 64 bits with sign"});
  expect_gguf_error(one(tensor("", {4}, 0, 0)), {"name of 0 bytes"});
  expect_gguf_error(one(tensor(std::string(65, 'n'), {4}, 0, 0)), {"name of 65 bytes"});
}

TEST(Gguf, RefusesTensorsThatDoNotFollowEachOther) {
  const auto two = [](uint64_t first, uint64_t second, size_t data) {
    return with_data(head(2, 0) + tensor("a", {4}, 0, first) + tensor("b", {4}, 0, second), data);
  };
  EXPECT_EQ(parse(two(0, 32, 48)).tensors.size(), 2u);
  EXPECT_EQ(parse(two(0, 32, 64)).tensors.size(), 2u);
  expect_gguf_error(two(0, 16, 64), {"\"b\" has offset 16 where 32 is next"});
  expect_gguf_error(two(0, 0, 64), {"\"b\" has offset 0"});
  expect_gguf_error(two(0, 64, 96), {"\"b\" has offset 64"});
  expect_gguf_error(two(32, 0, 96), {"\"a\" has offset 32"});
  expect_gguf_error(two(0, 32, 47), {"\"b\"", "beyond the data", "47"});
  expect_gguf_error(two(0, 32, 65), {"1 bytes after the last tensor"});
  expect_gguf_error(with_data(head(2, 0) + tensor("a", {4}, 0, 0) + tensor("a", {4}, 0, 32), 48),
                    {"\"a\" appears twice"});
  expect_gguf_error(with_data(head(0, 0), 8), {"no tensors"});
}

/// Metadata of a Llama, with changes.
GgufHeader llama(std::initializer_list<std::pair<std::string, GgufValue>> changes = {}) {
  GgufHeader header;
  header.metadata = {{"general.architecture", std::string("llama")},
                     {"llama.block_count", int64_t{2}},
                     {"llama.embedding_length", int64_t{64}},
                     {"llama.feed_forward_length", int64_t{96}},
                     {"llama.attention.head_count", int64_t{4}},
                     {"llama.rope.dimension_count", int64_t{16}},
                     {"llama.vocab_size", int64_t{9}}};
  for (const auto& [key, value] : changes) header.metadata.insert_or_assign(key, value);
  return header;
}

void expect_config_error(const GgufHeader& header, const char* word) {
  try {
    gguf_config(header, "x.gguf");
    ADD_FAILURE() << "accepted, should say " << word;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(Gguf, ConfigRefusesWhatItCannotHonour) {
  EXPECT_EQ(gguf_config(llama(), "x")["head_dim"], 16);
  expect_config_error(GgufHeader{}, "general.architecture");
  expect_config_error(llama({{"general.architecture", std::string("mamba")}}), "known are llama");
  expect_config_error(llama({{"llama.block_count", std::string("two")}}), "one integer as \"block_count\"");
  expect_config_error(llama({{"llama.attention.head_count_kv", std::vector<int64_t>{1, 2}}}), "one integer");
  expect_config_error(llama({{"llama.attention.key_length", int64_t{32}}}), "rotates 16 of 32");
  expect_config_error(llama({{"llama.attention.value_length", int64_t{32}}}), "different lengths");
  expect_config_error(llama({{"llama.expert_count", int64_t{8}}}), "mixture of experts");
  expect_config_error(llama({{"split.count", int64_t{3}}}), "one of 3 files");
  auto missing = llama();
  missing.metadata.erase("llama.embedding_length");
  expect_config_error(missing, "hidden_size");
}

TEST(Gguf, NamesOfTensors) {
  const GgufArchitecture two{.name = "llama"}, four{.name = "gemma2", .four_norms = true};
  EXPECT_EQ(transformers_name(two, "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(transformers_name(two, "output.weight"), "lm_head.weight");
  EXPECT_EQ(transformers_name(two, "blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(transformers_name(two, "blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(transformers_name(four, "blk.0.ffn_norm.weight"),
            "model.layers.0.pre_feedforward_layernorm.weight");
  for (const char* name : {"blk.x.attn_q.weight", "blk..attn_q.weight", "blk.0.weight", "blk.0.new.weight",
                           "rope_freqs.weight", "output", "output.scale", "blk.0.post_ffw_norm.weight"})
    EXPECT_EQ(transformers_name(two, name), "") << name;
}

}  // namespace
}  // namespace graft::io
