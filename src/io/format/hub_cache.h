// The Hugging Face cache on this machine, as huggingface_hub fills it: models--ORG--NAME/ with refs/main,
// which names a folder in snapshots/. Nothing is fetched.
#pragma once
#include <filesystem>
#include <string>

namespace graft::io {

/// The folder or file that `given` means: a path as it is, a cache entry's snapshot where it is the entry
/// itself or where there is no such path and "org/name" is in the cache. IoError that says where it was
/// looked for.
std::filesystem::path local_path(const std::filesystem::path& given);

/// "name" of "org/name", of a folder of that name, of a cache entry and of what is in it.
std::string model_name(const std::filesystem::path& given);

}  // namespace graft::io
