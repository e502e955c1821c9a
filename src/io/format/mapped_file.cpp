#include "io/format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "io/format/io_error.h"
#include "support/file_descriptor.h"

namespace graft::io {

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer before we could refuse it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) throw_io_error("open", path);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) throw_io_error("read the size of", path);
  if (S_ISDIR(info.st_mode)) throw_io_error("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) {
    throw IoError("[file] cannot read " + quote_path(path) +
                  ": it is a pipe, socket or device; give a regular file");
  }
  if (info.st_size == 0) return;  // mmap refuses a length of zero

  // MAP_NORESERVE: else the kernel wants swap space for every page that might be copied, and refuses files
  // larger than RAM.
  const auto size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) throw_io_error("map", path);
  bytes_ = {static_cast<std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace graft::io
