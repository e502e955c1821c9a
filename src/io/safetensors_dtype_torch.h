// safetensors' element types as torch knows them.
#pragma once
#include <c10/core/ScalarType.h>

#include <optional>

#include "io/format/safetensors_dtype.h"

namespace graft::io {

/// Undefined where torch has no such type.
at::ScalarType scalar_type_of(SafetensorsDtype dtype);
/// Nothing where the format has no such type.
std::optional<SafetensorsDtype> safetensors_dtype_of(at::ScalarType type);

}  // namespace graft::io
