#include "io/gguf.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "graft/error.h"
#include "io/format/mapped_file.h"
#include "io/format/quote.h"

namespace graft::io {
namespace fs = std::filesystem;

std::shared_ptr<const GgufFile> GgufFile::open(const fs::path& path) {
  auto file = std::make_shared<GgufFile>();
  file->path_ = path;
  file->label_ = quote_path(path);
  file->file_ = std::make_shared<MappedFile>(path);
  file->header_ = parse_gguf_header(file->file_->bytes(), file->label_);
  return file;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const GgufTensor& each) { return each.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

at::Tensor GgufFile::bytes(const GgufTensor& tensor) const {
  std::vector<int64_t> shape = tensor.shape;
  if (shape.empty()) shape.push_back(1);
  shape.back() = shape.back() / block_elements(tensor.type) * block_bytes(tensor.type);
  if (tensor.bytes == 0) return at::empty({0}, at::kByte).view(shape);
  std::byte* data = file_->bytes().data() + header_.data_start + tensor.offset;
  auto view = at::from_blob(data, shape, [file = file_](void*) {}, at::TensorOptions(at::kByte));
  // A file may ask for an alignment of 1, too little for its floats.
  const bool aligned = reinterpret_cast<uintptr_t>(data) % alignof(float) == 0;
  return aligned ? view : view.clone();
}

at::Tensor dequantized(GgmlType type, const at::Tensor& bytes) {
  const auto packed = bytes.contiguous();
  if (type == GgmlType::F32) return packed.view(at::kFloat);
  if (type == GgmlType::F16) return packed.view(at::kHalf);
  if (type == GgmlType::BF16) return packed.view(at::kBFloat16);
  auto shape = packed.sizes().vec();
  shape.back() = shape.back() / block_bytes(type) * block_elements(type);
  auto values = at::empty(shape, at::kFloat);
  dequantize(type, {static_cast<const std::byte*>(packed.const_data_ptr()), packed.nbytes()},
             {values.mutable_data_ptr<float>(), static_cast<size_t>(values.numel())});
  return values;
}

std::optional<fs::path> gguf_file_at(const fs::path& path) {
  if (path.extension() == ".gguf" && !fs::is_directory(path)) return path;
  std::error_code error;
  if (!fs::is_directory(path, error) || fs::exists(path / "config.json", error)) return std::nullopt;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".gguf") found.push_back(at->path());
  if (error) throw IoError("[gguf] cannot list " + quote_path(path) + ": " + error.message());
  if (found.empty()) return std::nullopt;
  if (found.size() > 1)
    throw FormatError("[gguf] " + quote_path(path) + " has " + std::to_string(found.size()) +
                      " .gguf files and no config.json: name the file that is meant");
  return found.front();
}

}  // namespace graft::io
