#include "io/format/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <optional>
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

/// The descriptor that already writes to what `info` is of: standard output's, or error's.
std::optional<int> own_stream(const struct stat& info) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    if (struct stat own; ::fstat(fd, &own) == 0 && own.st_dev == info.st_dev && own.st_ino == info.st_ino)
      return fd;
  return {};
}

bool is_written_as_it_is(const struct stat& info) {
  return !S_ISDIR(info.st_mode) && (!S_ISREG(info.st_mode) || own_stream(info));
}

/// The file that a chain of links leads to, whether it exists or not.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int most = 40;  // as in Linux
  std::error_code error;
  for (int i = 0; i < most; ++i) {
    const auto target = std::filesystem::read_symlink(path, error);
    if (error) return path;  // is not a link
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

}  // namespace

bool is_replaced_by_writing(const std::filesystem::path& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) != 0 || !is_written_as_it_is(info);
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  if (!path.has_filename()) throw_io_error("write", path, EISDIR);
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    // Said now rather than after gigabytes are written.
    if (S_ISDIR(info.st_mode)) throw_io_error("write", path, EISDIR);
    if (is_written_as_it_is(info)) {
      if (::access(path.c_str(), W_OK) != 0) throw_io_error("write", path);
      return;
    }
  } else if (errno == ELOOP) {
    throw_io_error("write", path);
  }
  const auto target = behind_links(path);
  const auto folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  name_ = target.filename();
  folder_ = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) throw_io_error("write into the folder", folder);
  make_temporary();
}

void AtomicFile::make_temporary() {
  for (int attempt = 0; !file_; ++attempt) {
    std::string name = temporary_name();
    file_ =
        FileDescriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_) {
      temporary_ = std::move(name);
    } else if ((errno != EEXIST && errno != EINTR) || attempt == 100) {
      throw_io_error("create a temporary file beside", path_);
    }
  }
}

void AtomicFile::open_directly() {
  struct stat info;
  if (::stat(path_.c_str(), &info) != 0) fail("write");
  // Not opened again: what was printed into a file before would be written over.
  if (const auto own = own_stream(info))
    file_ = FileDescriptor(::fcntl(*own, F_DUPFD_CLOEXEC, 0));
  else
    file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!file_) fail("write");
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(std::move(other.folder_)),
      file_(std::move(other.file_)),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, {})),
      stage_(std::exchange(other.stage_, Stage::ended)) {}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (!temporary_.empty()) ::unlinkat(folder_.get(), temporary_.c_str(), 0);
  temporary_.clear();
}

/// A file with a piece missing must not be committed by someone who swallowed the exception.
void AtomicFile::fail(const char* action) {
  const int error = errno;
  discard();
  stage_ = Stage::ended;
  throw_io_error(action, path_, error);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (!file_ && !folder_ && stage_ == Stage::writing) open_directly();
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
  if (stage_ != Stage::writing) return;
  if (!file_ && !folder_) open_directly();  // of nothing, too, a pipe's reader is told the end
  if (!sync_to_disk(file_.get())) fail("write");
  // Network file systems report a full disk only here. After EINTR the descriptor is gone all the same.
  if (::close(file_.release()) != 0 && errno != EINTR) fail("write");
  stage_ = Stage::finished;
}

void AtomicFile::commit() {
  finish();
  if (stage_ == Stage::ended)
    throw UsageError("[file] " + quote_path(path_) + " was already committed, or writing it failed");
  if (folder_) {
    if (::renameat(folder_.get(), temporary_.c_str(), folder_.get(), name_.c_str()) != 0) fail("replace");
    temporary_.clear();
    if (!sync_to_disk(folder_.get())) fail("force to disk the folder of");
  }
  stage_ = Stage::ended;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace graft::io
