// JSON as Python's json.dumps writes it.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace graft::io {

struct PythonJsonOptions {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<int64_t> indent = {};
  std::optional<std::string> item_separator = {}, key_separator = {};  ///< ", " (or "," with indent) and ": "
};

std::string python_json(const nlohmann::ordered_json& value, const PythonJsonOptions& options);

}  // namespace graft::io
