// dtypes by the names that config files and command lines use: "float32", "bfloat16", ...
#pragma once
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

namespace graft::io {

/// A dtype that a model's weights can have; ConfigError naming `key` for any other word. "torch.float16" is
/// accepted, as old files say it.
at::ScalarType floating_dtype(std::string_view name, std::string_view key);
std::string dtype_name(at::ScalarType dtype);

}  // namespace graft::io
