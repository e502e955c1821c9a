#include "io/format/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "io/format/io_error.h"

namespace graft::io {
namespace {

/// Does not contain the final name, which may already be as long as a name can be.
std::string temporary_name() {
  std::random_device random;
  char name[64];
  std::snprintf(name, sizeof name, ".graft-%08x%08x.tmp", unsigned{random()}, unsigned{random()});
  return name;
}

bool sync_to_disk(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return true;  // a file system that has no such thing
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  if (!path.has_filename()) throw_io_error("write", path, EISDIR);
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  folder_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw_io_error("write into the folder", folder);
  struct stat info;
  if (::fstatat(folder_.get(), path.filename().c_str(), &info, 0) == 0 && S_ISDIR(info.st_mode)) {
    throw_io_error("write", path, EISDIR);  // said now rather than after gigabytes are written
  }
  for (int attempt = 0; !file_; ++attempt) {
    std::string name = temporary_name();
    file_ =
        FileDescriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_) {
      temporary_ = std::move(name);
    } else if ((errno != EEXIST && errno != EINTR) || attempt == 100) {
      throw_io_error("create a temporary file beside", path);
    }
  }
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})) {}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
  temporary_.clear();
}

/// A file with a piece missing must not be committed by someone who swallowed the exception.
void AtomicFile::fail(const char* action) {
  const int error = errno;
  discard();
  throw_io_error(action, path_, error);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::finish() {
  if (!file_) return;
  if (!sync_to_disk(file_.get())) fail("write");
  // Network file systems report a full disk only here. After EINTR the descriptor is gone all the same.
  if (::close(file_.release()) != 0 && errno != EINTR) fail("write");
}

void AtomicFile::commit() {
  finish();
  if (temporary_.empty())
    throw UsageError("[file] " + quote_path(path_) + " was already committed, or writing it failed");
  if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), path_.filename().c_str()) != 0) {
    fail("replace");
  }
  temporary_.clear();
  if (!sync_to_disk(folder_.get())) fail("force to disk the folder of");
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace graft::io
