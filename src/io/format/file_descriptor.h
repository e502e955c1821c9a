// A file descriptor that closes itself, and the IoError for the system call that just failed.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Hands the descriptor over to one who checks what close() says.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// "[file] cannot open "/x/y": No such file or directory", from errno.
[[noreturn]] inline void throw_io_error(const std::string& action, const std::filesystem::path& path,
                                        int error = errno) {
  throw IoError("[file] cannot " + action + " " + quote_path(path) + ": " +
                std::generic_category().message(error));
}

}  // namespace graft::io
