// Strict JSON: config.json, shard indexes, tokenizer files. These files come from strangers.
//
// An error, never a guess: a key twice in one object (parsers differ in which one they take), anything after
// the value, bytes that are not UTF-8, comments, NaN and Infinity, nesting or size over the caps. An integer
// too large for 64 bits becomes a double, since tokenizer_config.json has 1e30 written out in digits.
#pragma once
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace graft::io {

struct JsonLimits {
  size_t max_bytes = size_t{256} << 20;  // the largest tokenizer.json seen are about 35 MB
  size_t max_depth = 64;
};

/// Throws FormatError, which names `label` and the place in the text.
nlohmann::json parse_json(std::string_view text, std::string_view label, JsonLimits limits = {});

/// The same, with the keys of objects in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view label,
                                          JsonLimits limits = {});

/// Throws IoError when the file cannot be read, else as parse_json with the path as label.
nlohmann::json read_json_file(const std::filesystem::path& path, JsonLimits limits = {});
nlohmann::ordered_json read_ordered_json_file(const std::filesystem::path& path, JsonLimits limits = {});

}  // namespace graft::io
