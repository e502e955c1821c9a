// A whole file mapped into memory: pages are read when touched and can be dropped again, so that a file may
// be larger than RAM.
//
// The mapping is private and writable: tensors over it can be changed in place (training does), which copies
// the page and never reaches the file. It stays valid when the file is replaced by rename or removed, as our
// own writer does; a program that truncates the file in place takes the pages away (SIGBUS), which no reader
// by mmap can prevent.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace graft::io {

class MappedFile {
 public:
  /// Throws IoError when `path` cannot be opened or is not a regular file. An empty file has an empty span.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace graft::io
