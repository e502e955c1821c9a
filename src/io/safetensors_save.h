// Writing one safetensors file in two steps, for a caller who publishes several files together.
#pragma once
#include "graft/safetensors.h"
#include "io/format/atomic_file.h"

namespace graft::io {

/// Writes the whole file under a temporary name; commit() on the result gives it its own.
AtomicFile stage_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const FileMetadata& metadata);

/// The size of a tensor's data in a file. Throws UsageError for what cannot be saved.
uint64_t saved_bytes(const std::string& name, const at::Tensor& tensor);

}  // namespace graft::io
