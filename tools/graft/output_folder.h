// The folder that a command's result goes to: all of the result, or none of it.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "io/format/folder_lock.h"

namespace graft::cli {

/// The result is written into a folder inside of it first. Only when all of it is on disk do its files go to
/// their places, so that a full disk, a limit or a kill leaves what was there before.
class OutputFolder {
 public:
  /// Makes the folder where there is none, and locks it: what cannot be written is found before the work, not
  /// after it. IoError. A folder that was made goes again when nothing came into it.
  explicit OutputFolder(const std::filesystem::path& folder);

  /// `write` puts the result into the folder that it is given. Files of other names stay, but for those of a
  /// checkpoint of which another one takes the place.
  void fill(const std::function<void(const std::filesystem::path&)>& write) const;

 private:
  std::filesystem::path folder_;
  std::shared_ptr<io::FolderLock> lock_;
};

/// IoError when a file of that path could not be written. Nothing for an empty path.
void refuse_unwritable(const std::filesystem::path& file);

}  // namespace graft::cli
