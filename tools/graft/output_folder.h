// The folder that a command's result goes to: all of the result, or none of it.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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

/// A path with the flag that it was given by.
using GivenPath = std::pair<const char*, std::filesystem::path>;

/// What can be said of a command's results before the work: IoError where one of these files could not be
/// written, Error where two of them are one, or one is what the command reads: a file, or a checkpoint's file
/// in a folder. Empty paths are not looked at.
void refuse_unwritable(const std::vector<GivenPath>& results,
                       const std::vector<std::filesystem::path>& read = {});

}  // namespace graft::cli
