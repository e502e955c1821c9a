// The element types of the safetensors format. In the order of the reference implementation's enum, which
// decides where a writer puts a tensor (see lay_out in safetensors_header.h). The F6 types have no
// counterpart in torch: such a file opens, and only taking that tensor is an error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace graft::io {

enum class SafetensorsDtype : uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};

/// As spelled in the file, "BF16".
std::string_view name_of(SafetensorsDtype dtype);
unsigned bits_of(SafetensorsDtype dtype);
std::optional<SafetensorsDtype> dtype_named(std::string_view name);
/// "BOOL, F4, ...", for messages.
std::string known_dtypes();

}  // namespace graft::io
