// The header of a safetensors file: which tensor lies where.
//
//   8 bytes   N, little-endian
//   N bytes   JSON, padded with white space: {"__metadata__": {string: string},
//             NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...}
//             where offsets count from the end of the header
//   the rest  the data, which the tensors cover exactly: no hole, no overlap, nothing after the last
//
// What the reference implementation (Rust, huggingface/safetensors) rejects is rejected here, and what it
// writes is accepted. On purpose stricter than its reader: a name or metadata key twice, an unknown field, an
// entry or dtype in one of serde's alternative spellings, white space before '{', more than 64 dimensions, a
// dimension beyond int64.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/format/safetensors_dtype.h"

namespace graft::io {

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;  // the reference implementation's cap
constexpr size_t kMaxDims = 64;

struct SafetensorsEntry {
  std::string name;
  SafetensorsDtype dtype{};
  std::vector<int64_t> shape;   // in elements; two F4 elements share a byte
  uint64_t begin = 0, end = 0;  // bytes, from data_start
  uint64_t bytes() const { return end - begin; }
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset; empty tensors at one offset by name
  std::map<std::string, std::string> metadata;
  uint64_t data_start = 0;  // where in the file the data begin
  bool operator==(const SafetensorsHeader&) const = default;
};

/// Reads the header at the start of a file of `file_size` bytes, of which `head` holds at least the header
/// (or all there is). Throws FormatError, which names `label`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, uint64_t file_size,
                                           std::string_view label);

/// Puts the entries in the order the reference implementation writes them, by dtype from wide to narrow and
/// then by name, so that all data are aligned, and sets their offsets. Throws UsageError for what the format
/// cannot hold: a name twice, a bad shape, half a byte.
void lay_out(std::vector<SafetensorsEntry>& entries);

/// The file's bytes up to data_start, for entries as lay_out leaves them; byte for byte what the reference
/// implementation writes (which puts several metadata keys in random order, where this sorts them). Throws
/// UsageError for names that are not UTF-8 and for headers over the cap.
std::string serialize_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                         const std::map<std::string, std::string>& metadata);

/// Nothing when it overflows. Not always a whole number of bytes.
std::optional<uint64_t> size_in_bits(SafetensorsDtype dtype, const std::vector<int64_t>& shape);

}  // namespace graft::io
