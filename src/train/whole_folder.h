// A folder that is there whole or not at all.
#pragma once
#include <filesystem>
#include <functional>

namespace graft::train {

/// `write` fills the folder `unfinished`, which is then forced to disk and called `whole`; what had that name
/// is there until then. Both have to be in one folder. When `write` throws nothing is left of it.
void write_whole_folder(const std::filesystem::path& unfinished, const std::filesystem::path& whole,
                        const std::function<void(const std::filesystem::path&)>& write);

}  // namespace graft::train
