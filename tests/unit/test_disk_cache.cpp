// The kernel cache: right results whatever happens to the disk, the entries and the processes that use it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

#include "cache/disk_cache.h"
#include "support/hash.h"
#include "support/log.h"
#include "temp_dir.h"

namespace graft::cache {
namespace {

namespace fs = std::filesystem;

std::string key_of(int i) { return hex(hash128({"key", std::to_string(i)})); }
fs::path entry(const fs::path& folder, const std::string& key) { return folder / (key + ".kernel"); }

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void set_content(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  ::chmod(path.c_str(), 0600);
}
void make_old(const fs::path& path, int seconds) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}
size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

/// Collects the warnings while it lives.
class Warnings {
 public:
  Warnings() {
    set_log_sink([this](std::string_view text) { all.emplace_back(text); });
  }
  ~Warnings() { set_log_sink({}); }
  std::vector<std::string> all;
};

/// Whether the function, run in a process of its own, gives true. A killed process gives false.
template <class Function>
pid_t start(Function function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function() ? 0 : 1);
  return child;
}
bool succeeded(pid_t child) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
template <class Function>
bool in_child(Function function) {
  return succeeded(start(function));
}

/// A blob that says whose it is and whether it is whole.
std::string blob_of(const std::string& key, size_t size) {
  std::string blob = key;
  while (blob.size() < size) blob += hex(hash128({blob.substr(blob.size() - 32)}));
  return blob;
}
bool is_right(const std::string& key, const std::string& blob) { return blob == blob_of(key, blob.size()); }

TEST(DiskCache, ASecondCacheFindsWhatTheFirstPut) {
  const TempDir dir;
  {
    DiskCache cache(dir / "new" / "folder");
    EXPECT_FALSE(fs::exists(dir / "new"));
    EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
    cache.put(key_of(1), "one");
    cache.put(key_of(2), "");
    cache.put(key_of(1), "uno");
  }
  DiskCache cache(dir / "new" / "folder");
  EXPECT_EQ(cache.get(key_of(1)), "uno");
  EXPECT_EQ(cache.get(key_of(2)), "");
  EXPECT_EQ(cache.get(key_of(3)), std::nullopt);
  EXPECT_EQ(cache.counters().hits, 2);
  EXPECT_EQ(cache.counters().misses, 1);
  EXPECT_EQ(cache.counters().bad, 0);
  EXPECT_EQ(fs::status(dir / "new" / "folder").permissions(), fs::perms::owner_all);
}

RC_GTEST_PROP(DiskCache, BlobsComeBackExactly, (const std::string& blob, int number)) {
  static const TempDir dir;
  DiskCache cache(dir.path());
  cache.put(key_of(number), blob);
  RC_ASSERT(cache.get(key_of(number)) == blob);
}

TEST(DiskCache, NoKeyLeadsOutOfTheFolder) {
  const TempDir dir;
  DiskCache cache(dir.path());
  for (const char* key : {"", "abc", "../../../../etc/passwd", "0123456789ABCDEF", "0123456789abcdef/0"}) {
    EXPECT_THROW(cache.get(key), std::invalid_argument) << key;
    EXPECT_THROW(cache.put(key, "x"), std::invalid_argument) << key;
  }
}

TEST(DiskCache, NoFlippedBitIsTakenForAnEntry) {
  const TempDir dir;
  const auto key = key_of(1), path = entry(dir.path(), key).native();
  DiskCache cache(dir.path());
  cache.put(key, "machine code");
  const auto good = content_of(path);
  ASSERT_EQ(good.size(), 40u + 12u);
  int64_t bad = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    auto changed = good;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    set_content(path, changed);
    ASSERT_EQ(cache.get(key), std::nullopt) << "bit " << bit;
    ASSERT_EQ(cache.counters().bad, ++bad);
    ASSERT_FALSE(fs::exists(path));
  }
  set_content(path, good);
  EXPECT_EQ(cache.get(key), "machine code");
}

TEST(DiskCache, NoTruncatedOrLengthenedEntryIsTaken) {
  const TempDir dir;
  const auto key = key_of(1), path = entry(dir.path(), key).native();
  DiskCache cache(dir.path());
  cache.put(key, "machine code");
  const auto good = content_of(path);
  for (size_t length = 0; length < good.size(); ++length) {
    set_content(path, good.substr(0, length));
    ASSERT_EQ(cache.get(key), std::nullopt) << length;
  }
  set_content(path, good + '\0');
  EXPECT_EQ(cache.get(key), std::nullopt);
  EXPECT_EQ(cache.counters().bad, static_cast<int64_t>(good.size() + 1));
  cache.put(key, "again");
  EXPECT_EQ(cache.get(key), "again");
}

TEST(DiskCache, NoForeignEntryIsTaken) {
  const TempDir dir;
  DiskCache cache(dir.path(), 1 << 20);
  const auto at = [&](int i) { return entry(dir.path(), key_of(i)); };
  for (int i = 0; i < 3; ++i) cache.put(key_of(i), "blob");
  fs::copy(at(0), at(10));                       // another's entry under this name
  fs::create_symlink(at(1), at(11));             // a link
  ::chmod(at(2).c_str(), 0666);                  // one that others can write
  ASSERT_EQ(::mkfifo(at(12).c_str(), 0600), 0);  // would block a plain open
  fs::create_directory(at(13));                  // a folder
  set_content(at(14), "#!/bin/sh\necho a file of another program\n");
  set_content(at(15), "");
  fs::resize_file(at(15), 1 << 30);  // longer than the cache may be
  int64_t bad = 0;
  for (const int i : {2, 10, 11, 12, 13, 14, 15}) {
    EXPECT_EQ(cache.get(key_of(i)), std::nullopt) << i;
    EXPECT_EQ(cache.counters().bad, ++bad) << i;
    cache.put(key_of(i), "mine");
    EXPECT_EQ(cache.get(key_of(i)), "mine") << i;
  }
  EXPECT_EQ(cache.get(key_of(1)), "blob");
}

TEST(DiskCache, AFolderInTheWayOfOneEntryStopsOnlyThat) {
  const TempDir dir;
  const Warnings warnings;
  DiskCache cache(dir.path());
  fs::create_directories(entry(dir.path(), key_of(1)) / "not empty");
  cache.put(key_of(1), "one");
  cache.put(key_of(2), "two");
  EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
  EXPECT_EQ(cache.get(key_of(2)), "two");
  EXPECT_TRUE(warnings.all.empty());
}

TEST(DiskCache, TheOldestEntriesGo) {
  const TempDir dir;
  DiskCache cache(dir.path(), 10 * 1040);
  set_content(dir / "notes.txt", std::string(100000, 'x'));  // not ours: neither counted nor removed
  for (int i = 0; i < 10; ++i) {
    cache.put(key_of(i), std::string(1000, 'x'));
    make_old(entry(dir.path(), key_of(i)), 7200 - i);
  }
  EXPECT_EQ(cache.counters().evicted, 0);
  EXPECT_TRUE(cache.get(key_of(0)));  // used, and so the youngest
  cache.put(key_of(10), std::string(1000, 'x'));
  EXPECT_EQ(cache.counters().evicted, 4);  // down to three quarters
  for (int i = 0; i <= 10; ++i) EXPECT_EQ(cache.get(key_of(i)).has_value(), i == 0 || i > 4) << i;
  cache.put(key_of(11), std::string(20000, 'x'));  // larger than all there may be
  EXPECT_EQ(cache.get(key_of(11)), std::nullopt);
  cache.put(key_of(12), std::string(9000, 'x'));  // alone more than three quarters
  EXPECT_TRUE(cache.get(key_of(12)));
  EXPECT_TRUE(fs::exists(dir / "notes.txt"));
}

TEST(DiskCache, StaleTemporaryFilesGo) {
  const TempDir dir;
  set_content(dir / ".graft-tmp-1-0", "half");
  set_content(dir / ".graft-tmp-1-1", "half");
  make_old(dir / ".graft-tmp-1-0", 4000);
  DiskCache cache(dir.path());
  cache.put(key_of(1), "one");
  EXPECT_FALSE(fs::exists(dir / ".graft-tmp-1-0"));
  EXPECT_TRUE(fs::exists(dir / ".graft-tmp-1-1"));  // its writer may be at work
}

TEST(DiskCache, ALostFolderIsMadeAgain) {
  const TempDir dir;
  const Warnings warnings;
  DiskCache cache(dir / "cache");
  cache.put(key_of(1), "one");
  fs::remove_all(dir / "cache");
  EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
  cache.put(key_of(1), "two");
  EXPECT_EQ(cache.get(key_of(1)), "two");
  EXPECT_TRUE(warnings.all.empty());
}

TEST(DiskCache, NoCodeFromAFolderThatOthersCanWrite) {
  for (const mode_t mode : {0770, 0707, 0722}) {
    const TempDir dir;
    DiskCache(dir.path()).put(key_of(1), "one");
    ::chmod(dir.path().c_str(), mode);
    const Warnings warnings;
    DiskCache cache(dir.path());
    EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
    EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
    cache.put(key_of(2), "two");
    EXPECT_EQ(files_in(dir.path()), 1u);
    ASSERT_EQ(warnings.all.size(), 1u);
    EXPECT_NE(warnings.all[0].find("chmod go-w"), std::string::npos);
  }
}

TEST(DiskCache, NoCodeFromAnotherUsersFolder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const TempDir dir;
  DiskCache(dir.path()).put(key_of(1), "one");
  ASSERT_EQ(::chown(dir.path().c_str(), 65534, 65534), 0);
  const Warnings warnings;
  EXPECT_EQ(DiskCache(dir.path()).get(key_of(1)), std::nullopt);
  EXPECT_EQ(warnings.all.size(), 1u);
}

/// A cache that cannot be written warns once, throws nothing and still reads.
bool reads_but_does_not_write(const fs::path& folder) {
  const Warnings warnings;
  DiskCache cache(folder);
  for (int i = 0; i < 3; ++i) cache.put(key_of(2), std::string(1 << 16, 'x'));
  return cache.get(key_of(1)) == "one" && !cache.get(key_of(2)) && warnings.all.size() == 1 &&
         cache.counters().failed == 1 && cache.counters().written == 0;
}

TEST(DiskCache, AFolderWithoutPermissionIsOnlyRead) {
  const TempDir dir;
  const auto folder = dir / "cache";
  DiskCache(folder).put(key_of(1), "one");
  const auto give_up_root = [&] {
    if (::geteuid() != 0) return true;
    return ::chmod(dir.path().c_str(), 0755) == 0 && ::chown(folder.c_str(), 65534, 65534) == 0 &&
           ::chown(entry(folder, key_of(1)).c_str(), 65534, 65534) == 0 && ::seteuid(65534) == 0;
  };
  EXPECT_TRUE(in_child([&] {
    return give_up_root() && ::chmod(folder.c_str(), 0500) == 0 && reads_but_does_not_write(folder);
  }));
  ::chmod(folder.c_str(), 0700);
}

TEST(DiskCache, AFileSizeLimitIsNoError) {
  const TempDir dir;
  DiskCache(dir.path()).put(key_of(1), "one");
  EXPECT_TRUE(in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 && reads_but_does_not_write(dir.path());
  }));
  EXPECT_EQ(files_in(dir.path()), 1u);  // the half-written one is gone
}

/// A file system in memory, for as long as it lives; false where this process may mount none.
class Tmpfs {
 public:
  explicit Tmpfs(const fs::path& path) : path_(path) {
    mounted_ = ::mount("graft", path.c_str(), "tmpfs", 0, "size=32k,mode=0700") == 0;
  }
  ~Tmpfs() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  explicit operator bool() const { return mounted_; }
  bool make_read_only() const {
    return ::mount("graft", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
  }

 private:
  fs::path path_;
  bool mounted_ = false;
};

TEST(DiskCache, AFullDiskIsNoError) {
  const TempDir dir;
  const Tmpfs disk(dir.path());
  if (!disk) GTEST_SKIP() << "this process may not mount a file system";
  DiskCache(dir.path()).put(key_of(1), "one");
  EXPECT_TRUE(reads_but_does_not_write(dir.path()));
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(DiskCache, AReadOnlyDiskIsNoError) {
  const TempDir dir;
  const Tmpfs disk(dir.path());
  if (!disk) GTEST_SKIP() << "this process may not mount a file system";
  DiskCache(dir.path()).put(key_of(1), "one");
  ASSERT_TRUE(disk.make_read_only());
  EXPECT_TRUE(reads_but_does_not_write(dir.path()));
}

TEST(DiskCache, NoFolderAtAllIsNoError) {
  const TempDir dir;
  set_content(dir / "file", "");
  for (const auto& path :
       {fs::path(), dir / "file", dir / "file" / "below", fs::path("/proc/nothing/here")}) {
    const Warnings warnings;
    DiskCache cache(path);
    for (int i = 0; i < 2; ++i) {
      cache.put(key_of(1), "one");
      EXPECT_EQ(cache.get(key_of(1)), std::nullopt);
    }
    EXPECT_EQ(warnings.all.size(), 1u) << path;
  }
}

TEST(DiskCache, TheDefaultFolder) {
  const auto with = [](const char* chosen, const char* xdg, const char* home, const fs::path& expected) {
    return in_child([&] {
      const std::pair<const char*, const char*> variables[] = {
          {"GRAFT_CACHE_DIR", chosen}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}};
      for (const auto& [name, value] : variables) value ? ::setenv(name, value, 1) : ::unsetenv(name);
      return default_cache_folder() == expected;
    });
  };
  EXPECT_TRUE(with("/a", "/b", "/c", "/a"));
  EXPECT_TRUE(with(nullptr, "/b", "/c", "/b/graft"));
  EXPECT_TRUE(with("", "relative", "/c", "/c/.cache/graft"));
  EXPECT_TRUE(with(nullptr, nullptr, nullptr, ""));
}

/// Puts and gets at random; false if a blob that comes back is not what somebody put.
bool hammer(DiskCache& cache, unsigned seed, int rounds) {
  std::mt19937 random(seed);
  for (int i = 0; i < rounds; ++i) {
    const auto key = key_of(static_cast<int>(random() % 12));
    if (random() % 2) {
      cache.put(key, blob_of(key, 32 + random() % 20000));
    } else if (const auto blob = cache.get(key); blob && !is_right(key, *blob)) {
      return false;
    }
  }
  return true;
}

TEST(DiskCache, ManyProcessesUseOneFolder) {
  const TempDir dir;
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 8; ++i)
    children.push_back(start([&] {
      DiskCache cache(dir.path(), i % 2 ? 100000 : kDefaultCacheBytes);  // some of them evict all the time
      return hammer(cache, i, 400) && cache.counters().bad == 0 && cache.counters().failed == 0;
    }));
  for (const pid_t child : children) EXPECT_TRUE(succeeded(child));
}

TEST(DiskCache, ManyThreadsUseOneCache) {
  const TempDir dir;
  DiskCache cache(dir.path(), 100000);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back([&, i] { right += hammer(cache, i, 300); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(cache.counters().bad, 0);
  EXPECT_EQ(cache.counters().failed, 0);
}

TEST(DiskCache, AKilledWriterLeavesNothingWrong) {
  const TempDir dir;
  std::mt19937 random(1);
  for (unsigned i = 0; i < 100; ++i) {
    const pid_t child = start([&] {
      DiskCache cache(dir.path());
      for (unsigned round = 0;; ++round) hammer(cache, 1000 * i + round, 1000);
      return false;
    });
    ::usleep(random() % 4000);
    ::kill(child, SIGKILL);
    EXPECT_FALSE(succeeded(child));
  }
  DiskCache cache(dir.path());
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(is_right(key_of(i), cache.get(key_of(i)).value_or(key_of(i))));
  EXPECT_EQ(cache.counters().bad, 0);
  EXPECT_GT(cache.counters().hits, 0);
  for (const auto& file : fs::directory_iterator(dir.path())) make_old(file.path(), 4000);
  DiskCache(dir.path()).put(key_of(1), "one");
  EXPECT_LE(files_in(dir.path()), 12u);  // no temporary file is left
}

TEST(Hash, IsTheSameEverywhere) {
  // Entries written by another machine, or by an earlier build, must stay readable.
  EXPECT_EQ(hex(hash128({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_NE(hash128({"ab", "c"}), hash128({"a", "bc"}));
  EXPECT_NE(hash128({"a"}), hash128({"a", ""}));
  EXPECT_EQ(hash128({std::string(1000, 'x')}), hash128({std::string(1000, 'x')}));
  EXPECT_EQ(hex({0x0123456789abcdef, 0xfedcba9876543210}), "0123456789abcdeffedcba9876543210");
}

}  // namespace
}  // namespace graft::cache
