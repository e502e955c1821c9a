// A GGUF file under transformers' parameter names: llama.cpp's names translated, and what its converter did
// to the values undone.
//
// A weight may be taken as it is stored, for a layer that multiplies by blocks: the order of q's and k's rows
// is put right there too, since a row is a whole number of blocks.
#pragma once
#include <map>

#include "io/format/gguf_config.h"
#include "io/gguf.h"
#include "models/weights.h"

namespace graft {

/// A weight before it is unpacked.
struct StoredWeight {
  io::GgmlType type{};
  at::Tensor bytes;  ///< uint8, the bytes of a row last; rows in transformers' order
  double shift = 0;  ///< to be added to the values
};

class GgufWeights final : public Weights {
 public:
  /// FormatError for a tensor without a name in transformers, and for one whose shape cannot be put right.
  explicit GgufWeights(std::shared_ptr<const io::GgufFile> file);

  const std::vector<std::string>& names() const override { return names_; }
  bool contains(std::string_view name) const override { return tensors_.contains(name); }
  at::Tensor tensor(std::string_view name) const override;
  uint64_t total_bytes() const override { return total_bytes_; }
  std::optional<at::ScalarType> dtype() const override { return at::kFloat; }

  StoredWeight stored(std::string_view name) const;

 private:
  std::shared_ptr<const io::GgufFile> file_;
  const io::GgufArchitecture& architecture_;
  int64_t heads_ = 0, kv_heads_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, const io::GgufTensor*, std::less<>> tensors_;
  uint64_t total_bytes_ = 0;
};

/// transformers' name of a tensor; empty where there is none.
std::string transformers_name(const io::GgufArchitecture& architecture, std::string_view gguf_name);

}  // namespace graft
