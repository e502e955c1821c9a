// A GGUF file, open. Reading and unpacking are two steps: bytes() is what the file holds, tensor() its
// values.
#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/format/gguf_header.h"

namespace graft::io {
class MappedFile;

class GgufFile {
 public:
  /// Reads and checks the whole header, and no data.
  static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// For messages.
  const std::string& label() const { return label_; }
  const GgufHeader& header() const { return header_; }
  const GgufTensor* find(std::string_view name) const;

  /// The stored bytes of a tensor as uint8: the shape with the bytes of a row last. Lies over the mapped
  /// file, which it keeps alive; writing to it never reaches the file.
  at::Tensor bytes(const GgufTensor& tensor) const;

 private:
  std::filesystem::path path_;
  std::string label_;
  std::shared_ptr<const MappedFile> file_;
  GgufHeader header_;
};

/// The values of stored bytes, as float32, float16 or bfloat16 where they are that (then nothing is copied),
/// else as float32.
at::Tensor dequantized(GgmlType type, const at::Tensor& bytes);

/// The file that `path` means: itself if it is a .gguf file, or the only one in a folder that has no
/// config.json. FormatError for a folder with several.
std::optional<std::filesystem::path> gguf_file_at(const std::filesystem::path& path);

}  // namespace graft::io
