// The header of a GGUF file: metadata, and which tensor lies where. All numbers are little-endian.
//
//   "GGUF", u32 version (2 and 3 are laid out alike), u64 number of tensors, u64 number of metadata entries
//   per entry   string key, u32 kind, value        (a string is u64 length, then UTF-8)
//   per tensor  string name, u32 dimensions, u64 each (innermost first), u32 type, u64 offset into the data
//   padding to the alignment, then the data: tensor after tensor, each padded to the alignment
//
// As strict as llama.cpp's reader, which wants tensors in order with nothing but padding between them, and
// stricter: text must be UTF-8, an integer must fit 64 bits with sign, and nothing may follow the last
// tensor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/format/ggml_type.h"

namespace graft::io {

/// Lists of lists, which the format allows and nobody writes, are refused.
using GgufValue = std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  GgmlType type{};
  std::vector<int64_t> shape;      // outermost first, as torch has it
  uint64_t offset = 0, bytes = 0;  // offset from data_start
};

struct GgufHeader {
  uint32_t version = 3;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // in the order of the data
  uint64_t alignment = 32;
  uint64_t data_start = 0;

  // Null where the key is absent; FormatError, naming the key and `label`, where its value is of another
  // kind.
  const std::string* string(std::string_view key, std::string_view label) const;
  const int64_t* integer(std::string_view key, std::string_view label) const;
  const bool* boolean(std::string_view key, std::string_view label) const;
  const std::vector<std::string>* strings(std::string_view key, std::string_view label) const;
  const std::vector<int64_t>* integers(std::string_view key, std::string_view label) const;
  const std::vector<double>* numbers(std::string_view key, std::string_view label) const;
};

/// Throws FormatError, which names `label` and the byte. `file` is the whole file; only its header is read.
GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view label);

}  // namespace graft::io
