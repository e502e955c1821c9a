#include "io/safetensors_save.h"

#include <ATen/core/Tensor.h>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/safetensors_header.h"
#include "io/safetensors_dtype_torch.h"

namespace graft {
namespace io {
namespace {

SafetensorsEntry describe(const std::string& name, const at::Tensor& tensor) {
  const auto fail = [&](const std::string& what) {
    throw UsageError("[safetensors] cannot save the tensor " + quote(name) + ": " + what);
  };
  if (!tensor.defined()) fail("it is undefined");
  if (tensor.is_nested()) fail("it is nested; save its parts");
  if (tensor.layout() != at::kStrided)
    fail("it is sparse or of another special layout; call to_dense() first");
  if (tensor.is_quantized()) fail("it is quantized; save its int_repr() and scales");
  if (tensor.is_meta()) fail("it is on the meta device and has no data");
  const auto dtype = safetensors_dtype_of(tensor.scalar_type());
  if (!dtype) {
    fail(std::string("the format has no dtype for ") + c10::toString(tensor.scalar_type()) + "; it has " +
         known_dtypes());
  }
  SafetensorsEntry entry{.name = name, .dtype = *dtype, .shape = tensor.sizes().vec()};
  if (*dtype == SafetensorsDtype::F4) {  // the file counts elements, torch counts pairs of them
    if (entry.shape.empty()) fail("F4 needs at least one dimension");
    entry.shape.back() *= 2;
  }
  return entry;
}

/// In the file's form: on the CPU, in order, with lazy conjugation and negation carried out.
at::Tensor plain(const at::Tensor& tensor) {
  at::Tensor data = tensor.detach();
  if (data._is_zerotensor()) data = data.clone();
  return data.resolve_conj().resolve_neg().cpu().contiguous();
}

}  // namespace

uint64_t saved_bytes(const std::string& name, const at::Tensor& tensor) {
  const auto entry = describe(name, tensor);
  return size_in_bits(entry.dtype, entry.shape).value_or(0) / 8;
}

AtomicFile stage_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                             const FileMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back(describe(name, tensor));
    by_name.emplace(name, &tensor);
  }
  lay_out(entries);
  const std::string header = serialize_safetensors_header(entries, metadata);

  AtomicFile file(path);
  file.write(header);
  for (const auto& entry : entries) {
    const at::Tensor data = plain(*by_name.at(entry.name));
    file.write({static_cast<const std::byte*>(data.const_data_ptr()), entry.bytes()});
  }
  file.finish();
  return file;
}

}  // namespace io

void save_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                      const FileMetadata& metadata) {
  io::stage_safetensors(path, tensors, metadata).commit();
}

}  // namespace graft
