// Text from a file, made fit for an error message: quoted, on one line, valid UTF-8, and short. A tensor name
// may hold line breaks or be a hundred megabytes long, and a path need not be UTF-8.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace graft::io {

std::string quote(std::string_view text, size_t max_bytes = 100);
std::string quote_path(const std::filesystem::path& path);

}  // namespace graft::io
