// A file that grows by whole records: what is added is there as a whole or not at all.
#pragma once
#include <filesystem>
#include <string_view>

#include "support/file_descriptor.h"

namespace graft::io {

class AppendFile {
 public:
  AppendFile() = default;
  /// Opens it at its end, and makes it where there is none. IoError when that cannot be.
  explicit AppendFile(const std::filesystem::path& path);
  /// When the disk is full (or the file as large as it may be) the file is as it was before: IoError.
  void add(std::string_view record);

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace graft::io
