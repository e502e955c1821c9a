// Compiled kernels on disk, so that a second process starts without generating code. docs/disk-cache.md has
// the format.
//
// A cache may only ever cost time. Whatever is wrong with the disk or an entry (full, read-only, truncated,
// changed, half-written by a killed process) is a miss, and at most one warning. Any number of threads and
// processes may use one folder at once; there is no lock: an entry appears by rename, and is checked by its
// hash when read.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "support/file_descriptor.h"

namespace graft::cache {

inline constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

/// GRAFT_CACHE_DIR, else $XDG_CACHE_HOME/graft, else $HOME/.cache/graft; empty where none of them is set.
std::filesystem::path default_cache_folder();

/// A key is 16 to 128 lower-case hex digits: std::invalid_argument for any other.
class DiskCache {
 public:
  /// Touches no disk yet; the folder is made by the first put(). An empty path is a cache that holds nothing.
  /// Machine code is loaded from here, so a folder that is another user's, or that others can write to, is
  /// refused with a warning.
  explicit DiskCache(const std::filesystem::path& folder, int64_t max_bytes = kDefaultCacheBytes);

  /// What was put under the key, exactly; nothing if there is no such entry or it is not whole, in which case
  /// it is removed. Never throws for what is on the disk.
  std::optional<std::string> get(std::string_view key);

  /// Replaces what is there. Once the folder holds more than `max_bytes` the entries that were not used for
  /// the longest time go; a blob larger than that is not kept. The first failure to write is the last
  /// attempt.
  void put(std::string_view key, std::string_view blob);

  struct Counters {
    int64_t hits = 0, misses = 0;     // of get()
    int64_t bad = 0;                  // of the misses: entries that were not whole, or not ours
    int64_t written = 0, failed = 0;  // of put()
    int64_t evicted = 0;
  };
  Counters counters() const;

 private:
  struct Entry;
  struct Count {
    std::atomic<int64_t> hits{0}, misses{0}, bad{0}, written{0}, failed{0}, evicted{0};
  };

  /// The folder, opened and checked; null where there is none. Shared, because another thread may close it.
  std::shared_ptr<FileDescriptor> folder(bool create);
  void close_folder();
  std::optional<std::string> read(int folder, const std::string& name, std::string_view key);
  /// 0, or the error.
  int write(int folder, const std::string& name, std::string_view key, std::string_view blob);
  void make_room(int folder, int64_t written);
  void stop_writing(const std::string& why);

  const std::filesystem::path path_;
  const int64_t max_bytes_;
  std::mutex guard_;  // of the next three
  std::shared_ptr<FileDescriptor> folder_;
  int64_t held_ = -1;  // bytes of entries as last counted, and what was written since; -1: not counted
  int64_t since_counted_ = 0;
  std::atomic<bool> refused_{false}, read_only_{false}, warned_{false};
  Count count_;
};

/// The one that kernels and choices are kept in: in the default folder, of GRAFT_CACHE_SIZE.
DiskCache& shared_cache();

}  // namespace graft::cache
