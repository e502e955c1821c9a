// Weights on disk: single safetensors files, and checkpoints as Hugging Face keeps them (one file, or shards
// with an index).
//
// Reading maps the file: a tensor is a view of the mapping, nothing is copied and a checkpoint may be larger
// than RAM. Writing replaces a file in one step or not at all. Malformed files throw FormatError, what the
// system refuses IoError, wrong arguments UsageError.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graft {

using FileMetadata = std::map<std::string, std::string>;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What the header says of a tensor.
struct TensorInfo {
  std::string dtype;           // as spelled in the file: "F32", "BF16", ...
  at::ScalarType scalar_type;  // Undefined for what torch does not have (F6_E2M3, F6_E3M2)
  std::vector<int64_t> shape;  // as in the file; for F4 in elements, of which torch packs two into one along
                               // the last dimension
  uint64_t bytes;
};

/// One open file. Safe to read from several threads.
class SafetensorsFile {
 public:
  /// Reads and checks the whole header, and no data.
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const;
  /// In the order of the data, the best to read them in.
  const std::vector<std::string>& names() const;
  bool contains(std::string_view name) const;
  /// Throws FormatError for a name that is not there, as tensor() does.
  TensorInfo info(std::string_view name) const;
  const FileMetadata& metadata() const;

  /// A CPU tensor over the mapped file, which it keeps alive; a copy only where the file does not align the
  /// data to its dtype. Writing to it never reaches the file, but is seen by the other tensors taken from
  /// this object under the same name.
  at::Tensor tensor(std::string_view name) const;

 private:
  struct State;
  explicit SafetensorsFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The tensors of a checkpoint, whatever number of files holds them.
class Checkpoint {
 public:
  /// `path` is a .safetensors file, a .safetensors.index.json, or a folder with STEM.safetensors or
  /// STEM.safetensors.index.json (the first wins, as in transformers); "adapter_model" is the stem of PEFT's
  /// adapters. Every tensor must be where the index says and nowhere else, and in the index. Pickle files
  /// (.bin, .pt, .pth, .ckpt) are refused: they can run code.
  static Checkpoint open(const std::filesystem::path& path, std::string_view stem = "model");

  /// File by file, in the order of the data.
  const std::vector<std::string>& names() const { return names_; }
  bool contains(std::string_view name) const { return where_.contains(name); }
  TensorInfo info(std::string_view name) const { return file_of(name).info(name); }
  at::Tensor tensor(std::string_view name) const { return file_of(name).tensor(name); }

  std::vector<std::filesystem::path> files() const;
  /// Of the tensors' data.
  uint64_t total_bytes() const { return total_bytes_; }
  /// Of the first file; shards repeat it.
  const FileMetadata& metadata() const { return files_.front()->metadata(); }

 private:
  void add(std::shared_ptr<const SafetensorsFile> file);
  const SafetensorsFile& file_of(std::string_view name) const;

  std::filesystem::path path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;  // at least one
  std::vector<std::string> names_;
  std::map<std::string, size_t, std::less<>> where_;  // name -> index in files_
  uint64_t total_bytes_ = 0;
};

/// Writes a file byte for byte as Python's safetensors.torch.save_file does. Tensors may be anywhere and of
/// any stride; they are brought to the CPU one at a time. UsageError: a name twice, a tensor that is
/// undefined, sparse, quantized, nested or on the meta device, a dtype the format does not have. Tensors that
/// share memory are written once each. Empty metadata are left out.
void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const FileMetadata& metadata = {});

/// Writes a checkpoint as transformers 5's save_pretrained does: STEM.safetensors, or when that would have
/// more than `max_shard_bytes` of data, STEM-00001-of-00003.safetensors and so on with
/// STEM.safetensors.index.json. Tensors are dealt to shards in the order given. `dir` is created if need be.
/// A checkpoint of that stem already there is replaced, its left-over files removed, once all new files are
/// complete on disk.
void save_checkpoint(const std::filesystem::path& dir, const NamedTensors& tensors,
                     const FileMetadata& metadata = {{"format", "pt"}},
                     uint64_t max_shard_bytes = 50'000'000'000, std::string_view stem = "model");

}  // namespace graft
