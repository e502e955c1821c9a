// Reading one safetensors file: tensors over its mapping.
#include "graft/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <bit>
#include <cstring>

#include "graft/error.h"
#include "io/format/mapped_file.h"
#include "io/format/quote.h"
#include "io/format/safetensors_header.h"
#include "io/safetensors_dtype_torch.h"

namespace graft {

static_assert(std::endian::native == std::endian::little,
              "safetensors data are little-endian and used in place");

struct SafetensorsFile::State {
  std::filesystem::path path;
  std::shared_ptr<const io::MappedFile> file;
  io::SafetensorsHeader header;
  std::vector<std::string> names;
  std::map<std::string_view, const io::SafetensorsEntry*> by_name;  // into header

  const io::SafetensorsEntry& find(std::string_view name) const {
    const auto found = by_name.find(name);
    if (found == by_name.end()) fail("there is no tensor " + io::quote(name));
    return *found->second;
  }
  /// Has no bytes in the file to point at. Through view(), since at::empty refuses shapes like [0, 2^40,
  /// 2^40], which the format allows.
  at::Tensor empty_tensor(std::string_view name, at::IntArrayRef shape,
                          const at::TensorOptions& options) const try {
    return at::empty({0}, options).view(shape);
  } catch (const c10::Error&) {
    fail("the tensor " + io::quote(name) + " is empty, but its other dimensions are too large for torch");
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError("[safetensors] " + io::quote_path(path) + ": " + what);
  }
};

SafetensorsFile::SafetensorsFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsFile::~SafetensorsFile() = default;

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->file = std::make_shared<io::MappedFile>(path);
  const auto bytes = state->file->bytes();
  state->header = io::parse_safetensors_header(bytes, bytes.size(), io::quote_path(path));
  for (const auto& entry : state->header.entries) {
    state->names.push_back(entry.name);
    state->by_name.emplace(entry.name, &entry);
  }
  return std::shared_ptr<const SafetensorsFile>(new SafetensorsFile(std::move(state)));
}

const std::filesystem::path& SafetensorsFile::path() const { return state_->path; }
const std::vector<std::string>& SafetensorsFile::names() const { return state_->names; }
bool SafetensorsFile::contains(std::string_view name) const { return state_->by_name.contains(name); }
const FileMetadata& SafetensorsFile::metadata() const { return state_->header.metadata; }

TensorInfo SafetensorsFile::info(std::string_view name) const {
  const auto& entry = state_->find(name);
  return {std::string(io::name_of(entry.dtype)), io::scalar_type_of(entry.dtype), entry.shape, entry.bytes()};
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  const auto& entry = state_->find(name);
  const at::ScalarType type = io::scalar_type_of(entry.dtype);
  if (type == at::ScalarType::Undefined) {
    state_->fail("the tensor " + io::quote(name) + " has dtype " + std::string(io::name_of(entry.dtype)) +
                 ", which torch does not have");
  }
  std::vector<int64_t> shape = entry.shape;
  if (entry.dtype ==
      io::SafetensorsDtype::F4) {  // float4_e2m1fn_x2: one element of torch's is two of the file's
    if (shape.empty() || shape.back() % 2 != 0) {
      state_->fail("the tensor " + io::quote(name) +
                   " has dtype F4 and an odd last dimension; torch packs two elements into one along it");
    }
    shape.back() /= 2;
  }
  const auto options = at::TensorOptions().dtype(type);
  if (entry.bytes() == 0) return state_->empty_tensor(entry.name, shape, options);

  std::byte* data = state_->file->bytes().data() + state_->header.data_start + entry.begin;
  const bool aligned = reinterpret_cast<uintptr_t>(data) % c10::elementSize(type) == 0;
  if (!aligned) {
    at::Tensor copy = at::empty(shape, options);
    std::memcpy(copy.data_ptr(), data, entry.bytes());
    return copy;
  }
  return at::from_blob(data, shape, [file = state_->file](void*) {}, options);
}

}  // namespace graft
