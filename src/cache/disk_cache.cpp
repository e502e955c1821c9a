#include "cache/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "support/env.h"
#include "support/hash.h"
#include "support/log.h"

namespace graft::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".kernel", kTemporary = ".graft-tmp-";
constexpr time_t kStaleAfter = 3600;  // seconds: no writer takes that long
constexpr time_t kTouchAfter = 3600;  // an entry's time of use is kept that exactly

constexpr std::string_view kMagic("graftkc\n", 8);
constexpr uint32_t kVersion = 1;
constexpr size_t kPrefix = 8 + 4 + 4 + 8, kHeader = kPrefix + 16;

void append(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

/// What the entry of a blob so long starts with. The hash follows, then the blob.
std::string prefix_of(size_t length) {
  std::string prefix(kMagic);
  append(prefix, kVersion, 4);
  append(prefix, 0, 4);
  append(prefix, length, 8);
  return prefix;
}

/// Of the key, too, so that an entry under another's name is not taken for it.
std::string hash_of(std::string_view key, std::string_view blob) {
  const auto hash = hash128({key, blob});
  std::string bytes;
  append(bytes, hash.low, 8);
  append(bytes, hash.high, 8);
  return bytes;
}

bool is_key(std::string_view text) {
  return text.size() >= 16 && text.size() <= 128 &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string name_of(std::string_view key) {
  if (!is_key(key)) throw std::invalid_argument("[cache] a key is 16 to 128 lower-case hex digits");
  return std::string(key) + std::string(kEnding);
}

bool is_entry(std::string_view name) {
  return name.ends_with(kEnding) && is_key(name.substr(0, name.size() - kEnding.size()));
}

bool is_safe(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// So that a later change of the working folder changes nothing; empty where that cannot be.
fs::path made_absolute(const fs::path& path) {
  std::error_code error;
  auto made = path.empty() ? path : fs::absolute(path, error);
  return error ? fs::path() : made;
}

std::string message_of(int error) { return std::generic_category().message(error); }

/// Fills all of `bytes`; false at the file's end or an error.
bool read_all(int file, char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t got = ::read(file, bytes, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

/// A name that is taken is found so by O_EXCL: left by a killed process of the same number, or of another
/// machine that shares the folder.
std::string temporary_name() {
  static std::atomic<unsigned> next{0};
  return std::string(kTemporary) + std::to_string(::getpid()) + "-" + std::to_string(next++);
}

/// Calls `visit(name, stat)` for each regular file of ours in the folder.
template <class Visit>
void each_file(int folder, Visit visit) {
  FileDescriptor copy(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const listing = copy ? ::fdopendir(copy.get()) : nullptr;
  if (!listing) return;
  copy.release();  // closedir() closes it
  while (const dirent* const file = ::readdir(listing)) {
    const std::string_view name = file->d_name;
    struct stat info;
    if ((is_entry(name) || name.starts_with(kTemporary)) &&
        ::fstatat(folder, file->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
      visit(name, info);
  }
  ::closedir(listing);
}

}  // namespace

fs::path default_cache_folder() {
  if (const auto chosen = env("GRAFT_CACHE_DIR")) return *chosen;
  const auto folder_in = [](const char* name) -> fs::path {
    const char* const value = std::getenv(name);
    return value && *value == '/' ? value : "";  // the XDG specification wants others ignored
  };
  if (const auto caches = folder_in("XDG_CACHE_HOME"); !caches.empty()) return caches / "graft";
  if (const auto home = folder_in("HOME"); !home.empty()) return home / ".cache" / "graft";
  return {};
}

DiskCache::DiskCache(const fs::path& path, int64_t max_bytes)
    : path_(made_absolute(path)), max_bytes_(max_bytes) {
  if (!path_.empty()) return;
  refused_ = true;
  stop_writing("there is no folder for compiled kernels; set GRAFT_CACHE_DIR or HOME");
}

void DiskCache::stop_writing(const std::string& why) {
  read_only_ = true;
  if (!warned_.exchange(true))
    log_warning("[cache] " + why + ". Without it kernels are compiled again by each process.");
}

std::shared_ptr<FileDescriptor> DiskCache::folder(bool create) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (refused_ || folder_) return folder_;
  if (create) {
    std::error_code ignored;  // the open below says what is wrong
    fs::create_directories(path_.parent_path(), ignored);
    ::mkdir(path_.c_str(), 0700);
  }
  FileDescriptor opened(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info;
  if (!opened || ::fstat(opened.get(), &info) != 0) {
    if (errno != ENOENT || create)
      stop_writing("cannot use the folder " + path_.string() + ": " + message_of(errno));
    return nullptr;
  }
  if (!is_safe(info)) {
    refused_ = true;
    stop_writing("the folder " + path_.string() +
                 " belongs to another user or can be written by others, who could put code into it; "
                 "chmod go-w it, or set GRAFT_CACHE_DIR to one of your own");
    return nullptr;
  }
  folder_ = std::make_shared<FileDescriptor>(std::move(opened));
  return folder_;
}

void DiskCache::close_folder() {
  const std::lock_guard<std::mutex> lock(guard_);
  folder_.reset();
  held_ = -1;
}

std::optional<std::string> DiskCache::get(std::string_view key) {
  const auto name = name_of(key);
  const auto opened = folder(false);
  auto blob = opened ? read(opened->get(), name, key) : std::nullopt;
  ++(blob ? count_.hits : count_.misses);
  if (logs(LogTopic::cache))
    log(LogTopic::cache, (blob ? "hit " : "miss ") + std::string(key) +
                             (blob ? ", " + std::to_string(blob->size()) + " bytes" : ""));
  return blob;
}

std::optional<std::string> DiskCache::read(int folder, const std::string& name, std::string_view key) {
  const auto bad = [&] {
    ++count_.bad;
    log(LogTopic::cache, "corrupt entry removed: " + (path_ / name).string());
    if (::unlinkat(folder, name.c_str(), 0) != 0 && errno == EISDIR)
      ::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
    return std::nullopt;
  };
  // No link out of the folder is followed, and a FIFO is not waited for.
  const FileDescriptor file(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return std::nullopt;  // not the entry's fault
    return bad();
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || !is_safe(info)) return bad();
  // The length that it claims must be the file's before anything is allocated by it.
  const auto length = info.st_size - static_cast<off_t>(kHeader);
  std::string header(kHeader, '\0');
  if (length < 0 || length > max_bytes_ || !read_all(file.get(), header.data(), kHeader) ||
      !header.starts_with(prefix_of(static_cast<size_t>(length))))
    return bad();
  std::string blob(static_cast<size_t>(length), '\0');
  if (!read_all(file.get(), blob.data(), blob.size()) || header.substr(kPrefix) != hash_of(key, blob))
    return bad();

  const auto now = ::time(nullptr);
  if (now - info.st_mtime > kTouchAfter) ::futimens(file.get(), nullptr);  // used: evicted later
  return blob;
}

void DiskCache::put(std::string_view key, std::string_view blob) {
  const auto name = name_of(key);
  if (read_only_ || std::cmp_greater(blob.size() + kHeader, max_bytes_)) return;
  for (const bool again : {false, true}) {
    const auto opened = folder(true);
    if (!opened) {
      ++count_.failed;
      return;
    }
    const int error = write(opened->get(), name, key, blob);
    if (error == 0) {
      ++count_.written;
      if (logs(LogTopic::cache))
        log(LogTopic::cache, "stored " + std::string(key) + ", " + std::to_string(blob.size()) +
                                 " bytes, in " + path_.string());
      make_room(opened->get(), static_cast<int64_t>(blob.size() + kHeader));
      return;
    }
    // Somebody removed the whole folder while we had it open: once more, with a new one.
    close_folder();
    if (error == ENOENT && !again) continue;
    ++count_.failed;
    if (error == EISDIR) return;  // one name is taken by a folder; the others are not
    stop_writing("cannot write into " + path_.string() + ": " + message_of(error));
    return;
  }
}

/// Not forced to disk: should the machine lose power, the hash tells, and speed is what a cache is for.
int DiskCache::write(int folder, const std::string& name, std::string_view key, std::string_view blob) {
  std::string temporary;
  FileDescriptor file;
  for (int attempt = 0; !file; ++attempt) {
    temporary = temporary_name();
    file = FileDescriptor(::openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file && ((errno != EEXIST && errno != EINTR) || attempt == 1000)) return errno;
  }
  const bool written = write_all(file.get(), prefix_of(blob.size()) + hash_of(key, blob)) &&
                       write_all(file.get(), blob) && (::close(file.release()) == 0 || errno == EINTR) &&
                       ::renameat(folder, temporary.c_str(), folder, name.c_str()) == 0;
  if (written) return 0;
  const int error = errno;
  ::unlinkat(folder, temporary.c_str(), 0);
  return error == 0 ? EIO : error;
}

struct DiskCache::Entry {
  std::string name;
  int64_t bytes;
  struct timespec used;
};

/// Counts what is there at the first write, and then from time to time, since other processes write, too.
void DiskCache::make_room(int folder, int64_t written) {
  const std::lock_guard<std::mutex> lock(guard_);
  held_ += held_ < 0 ? 0 : written;
  since_counted_ += written;
  if (held_ >= 0 && held_ <= max_bytes_ && since_counted_ <= max_bytes_ / 16) return;

  std::vector<Entry> entries;
  held_ = since_counted_ = 0;
  const auto now = ::time(nullptr);
  each_file(folder, [&](std::string_view name, const struct stat& info) {
    if (is_entry(name)) {
      entries.push_back({std::string(name), info.st_size, info.st_mtim});
      held_ += info.st_size;
    } else if (now - info.st_mtime > kStaleAfter) {
      ::unlinkat(folder, std::string(name).c_str(), 0);  // its writer was killed
    }
  });
  if (held_ <= max_bytes_) return;
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) < std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
  });
  if (!entries.empty()) entries.pop_back();  // the newest stays, however large
  for (const auto& entry : entries) {
    if (held_ <= max_bytes_ / 4 * 3) break;  // some room, so that the next write need not evict again
    if (::unlinkat(folder, entry.name.c_str(), 0) == 0) {
      ++count_.evicted;
      log(LogTopic::cache, "evicted " + entry.name);
    }
    held_ -= entry.bytes;
  }
}

DiskCache::Counters DiskCache::counters() const {
  return {count_.hits, count_.misses, count_.bad, count_.written, count_.failed, count_.evicted};
}

DiskCache& shared_cache() {
  static DiskCache instance(default_cache_folder(),
                            env_number("GRAFT_CACHE_SIZE").value_or(kDefaultCacheBytes));
  return instance;
}

}  // namespace graft::cache
