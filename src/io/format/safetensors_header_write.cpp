// Writing a header, as the reference implementation writes it.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/safetensors_header.h"

namespace graft::io {
namespace {

/// With the escapes of Rust's serde_json, which are nlohmann's too.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError("[safetensors] " + quote(text) + " is not UTF-8; rename it before saving");
  }
}

std::string json_entry(const SafetensorsEntry& entry) {
  std::string shape;
  for (const int64_t dim : entry.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(dim));
  return json_string(entry.name) + ":{\"dtype\":\"" + std::string(name_of(entry.dtype)) + "\",\"shape\":[" +
         shape + "],\"data_offsets\":[" + std::to_string(entry.begin) + "," + std::to_string(entry.end) +
         "]}";
}

void check(const SafetensorsEntry& entry) {
  const auto fail = [&](const std::string& what) {
    throw UsageError("[safetensors] cannot save the tensor " + quote(entry.name) + ": " + what);
  };
  if (entry.name == "__metadata__") fail("the format keeps that name for its metadata");
  if (entry.shape.size() > kMaxDims) fail("it has more than " + std::to_string(kMaxDims) + " dimensions");
  for (const int64_t dim : entry.shape) {
    if (dim < 0) fail("a dimension is negative");
  }
  const auto bits = size_in_bits(entry.dtype, entry.shape);
  if (!bits) fail("its size overflows 64 bits");
  if (*bits % 8 != 0) fail("its elements do not fill whole bytes");
}

}  // namespace

void lay_out(std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  std::vector<std::string_view> names;
  uint64_t offset = 0;
  for (auto& entry : entries) {
    check(entry);
    names.push_back(entry.name);
    entry.begin = offset;
    if (__builtin_add_overflow(offset, *size_in_bits(entry.dtype, entry.shape) / 8, &offset)) {
      throw UsageError("[safetensors] the tensors are too large for one file together");
    }
    entry.end = offset;
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    throw UsageError("[safetensors] cannot save two tensors of one name, " + quote(*twice));
  }
}

std::string serialize_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                         const std::map<std::string, std::string>& metadata) {
  std::string json;
  if (!metadata.empty()) {
    std::string pairs;
    for (const auto& [key, value] : metadata) {
      pairs.append(pairs.empty() ? "" : ",").append(json_string(key)).append(":").append(json_string(value));
    }
    json = "\"__metadata__\":{" + pairs + "}";
  }
  for (const auto& entry : entries) json.append(json.empty() ? "" : ",").append(json_entry(entry));
  json = "{" + json + "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    throw UsageError("[safetensors] the names and metadata need a header of " + std::to_string(json.size()) +
                     " bytes, over the format's limit of " + std::to_string(kMaxSafetensorsHeader) +
                     "; save to several files");
  }
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return length + json;
}

}  // namespace graft::io
