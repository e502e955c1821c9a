// Removes folders.
#pragma once
#include <filesystem>
#include <system_error>

namespace graft {

/// A file, or a folder with all that is in it; nothing where there is none. Ends at the first that cannot be
/// removed, with its error.
///
/// Not std::filesystem::remove_all: libtorch exports one of its own, which a program may be given instead of
/// the standard library's. That of torch 2.11 for CUDA crashes.
void remove_folder(const std::filesystem::path& path, std::error_code& error);

}  // namespace graft
