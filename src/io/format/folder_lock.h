// One run writes into a folder at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "support/file_descriptor.h"

namespace graft::io {

/// Held from the first look at the folder to the last file in it. The system takes the lock away
/// when the process ends, however it ends; a file `.graft-lock` that a killed run leaves stops nobody.
class FolderLock {
 public:
  /// Makes the folder where there is none. IoError when another process has the lock, or nothing can be
  /// written there. Whoever asks again in this process shares the lock.
  static std::shared_ptr<FolderLock> take(const std::filesystem::path& folder);
  /// Removes the lock's file, and the folders that were made for it where nothing else came into them.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(const std::filesystem::path& folder);
  void open_and_lock();
  void remove_made();

  std::filesystem::path folder_, path_;
  std::vector<std::filesystem::path> made_;  // the outermost first
  FileDescriptor file_;
};

}  // namespace graft::io
