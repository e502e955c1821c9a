#include "io/dtype_names.h"

#include "graft/error.h"

namespace graft::io {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kNames[] = {
    {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}, {"float64", at::kDouble}};

}  // namespace

at::ScalarType floating_dtype(std::string_view name, std::string_view key) {
  const auto bare = name.starts_with("torch.") ? name.substr(6) : name;
  for (const auto& [known, dtype] : kNames)
    if (bare == known) return dtype;
  throw ConfigError("[config] \"" + std::string(key) + "\" is \"" + std::string(name) +
                    "\"; known: float32, float16, bfloat16, float64");
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [name, known] : kNames)
    if (dtype == known) return std::string(name);
  return c10::toString(dtype);
}

}  // namespace graft::io
