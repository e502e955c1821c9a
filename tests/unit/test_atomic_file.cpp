// Files that appear complete or not at all, and files read by mapping.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "graft/error.h"
#include "io/format/atomic_file.h"
#include "io/format/mapped_file.h"
#include "temp_dir.h"

namespace graft::io {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
size_t files_in(const fs::path& dir) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(dir), {}));
}

template <class Function>
std::string io_error_of(Function function) {
  try {
    function();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(AtomicFile, AppearsOnlyOnCommit) {
  const TempDir dir;
  AtomicFile file(dir / "a");
  file.write("hello ");
  file.write("world");
  file.write(std::string_view());
  EXPECT_FALSE(fs::exists(dir / "a"));
  file.finish();
  EXPECT_FALSE(fs::exists(dir / "a"));
  file.commit();
  EXPECT_EQ(content_of(dir / "a"), "hello world");
  EXPECT_EQ(files_in(dir.path()), 1u);
  EXPECT_THROW(file.commit(), UsageError);
}

TEST(AtomicFile, ReplacesTheFileBehindALinkNotTheLink) {
  const TempDir dir;
  fs::create_directory(dir / "there");
  write_file_atomically(dir / "there" / "file", "old");
  fs::create_symlink("there/file", dir / "link");
  fs::create_symlink(dir / "link", dir / "link to it");
  fs::create_symlink("there/new", dir / "dangling");
  write_file_atomically(dir / "link to it", "new");
  write_file_atomically(dir / "dangling", "first");
  for (const auto* link : {"link", "link to it", "dangling"}) EXPECT_TRUE(fs::is_symlink(dir / link)) << link;
  EXPECT_EQ(content_of(dir / "there" / "file"), "new");
  EXPECT_EQ(content_of(dir / "there" / "new"), "first");
  EXPECT_EQ(files_in(dir / "there"), 2u);
  fs::create_symlink("circle", dir / "circle");
  EXPECT_NE(io_error_of([&] { AtomicFile(dir / "circle"); }), "");
}

TEST(AtomicFile, DevicesStayDevices) {
  const TempDir dir;
  write_file_atomically("/dev/null", "gone");
  struct stat info;
  ASSERT_EQ(::stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  AtomicFile full("/dev/full");
  EXPECT_NE(io_error_of([&] { full.write("too much"); }), "");
  EXPECT_THROW(full.commit(), UsageError);
}

TEST(AtomicFile, APipeIsWrittenAsItIs) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  AtomicFile{dir / "pipe"};  // opens nothing: there is no reader yet
  for (const std::string text : {"hello", ""}) {
    std::string read = "nothing yet";
    std::thread reader([&] { read = content_of(dir / "pipe"); });
    write_file_atomically(dir / "pipe", text);
    reader.join();
    EXPECT_EQ(read, text);
  }
  EXPECT_TRUE(fs::is_fifo(dir / "pipe"));
  EXPECT_EQ(files_in(dir.path()), 1u);
}

// `graft ... --output /dev/stdout > file`: behind what was printed before.
TEST(AtomicFile, WhereStandardOutputGoesIsNotReplaced) {
  const TempDir dir;
  const FileDescriptor file(::open((dir / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const FileDescriptor before(::dup(STDERR_FILENO));
  ASSERT_EQ(::dup2(file.get(), STDERR_FILENO), STDERR_FILENO);
  EXPECT_EQ(::write(STDERR_FILENO, "printed ", 8), 8);
  write_file_atomically("/dev/stderr", "written ");
  write_file_atomically(dir / "out", "again ");
  EXPECT_EQ(::write(STDERR_FILENO, "printed", 7), 7);
  ::dup2(before.get(), STDERR_FILENO);
  EXPECT_EQ(content_of(dir / "out"), "printed written again printed");
}

TEST(AtomicFile, WithoutCommitTheOldFileStays) {
  const TempDir dir;
  write_file_atomically(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new");
    EXPECT_EQ(files_in(dir.path()), 2u);
  }
  EXPECT_EQ(content_of(dir / "a"), "old");
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(AtomicFile, ReplacesAndLeavesReadersTheirFile) {
  const TempDir dir;
  write_file_atomically(dir / "a", "old");
  const MappedFile reader(dir / "a");
  write_file_atomically(dir / "a", "new content");
  EXPECT_EQ(content_of(dir / "a"), "new content");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(reader.bytes().data()), reader.bytes().size()), "old");
}

TEST(AtomicFile, HasTheModeOfANormalFile) {
  const TempDir dir;
  const mode_t before = ::umask(027);
  write_file_atomically(dir / "a", "");
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::stat((dir / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, WorksOnTheLongestNames) {
  const TempDir dir;
  write_file_atomically(dir / std::string(255, 'n'), "x");
  EXPECT_EQ(content_of(dir / std::string(255, 'n')), "x");
}

TEST(AtomicFile, IsNotMovedByAChangeOfFolder) {
  const TempDir dir;
  fs::create_directory(dir / "other");
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  AtomicFile file("relative");
  fs::current_path(dir / "other");
  file.write("x");
  file.commit();
  fs::current_path(before);
  EXPECT_EQ(content_of(dir / "relative"), "x");
}

TEST(AtomicFile, SaysWhatTheSystemRefused) {
  const TempDir dir;
  std::string what = io_error_of([&] { AtomicFile file(dir / "none/a"); });
  EXPECT_NE(what.find("[file] cannot write into the folder"), what.npos) << what;
  EXPECT_NE(what.find("No such file"), what.npos) << what;
  what = io_error_of([&] { AtomicFile file(dir.path()); });
  EXPECT_NE(what.find("Is a directory"), what.npos) << what;
  what = io_error_of([&] { AtomicFile file(dir.path() / ""); });
  EXPECT_NE(what.find("Is a directory"), what.npos) << what;
  EXPECT_EQ(files_in(dir.path()), 0u);
}

/// A limit on the size of files stands in for a full disk: a short write, then an error.
TEST(AtomicFile, AFailedWriteLeavesNothing) {
  const TempDir dir;
  write_file_atomically(dir / "a", "old");
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{1000, limit.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  bool committed = false;
  const std::string what = io_error_of([&] {
    AtomicFile file(dir / "a");
    try {
      file.write(std::string(3000, 'x'));
    } catch (const IoError&) {
      EXPECT_EQ(files_in(dir.path()), 1u);
      EXPECT_THROW(file.commit(), UsageError);
      throw;
    }
    committed = true;
  });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, handler);
  EXPECT_FALSE(committed);
  EXPECT_NE(what.find((dir / "a").native()), what.npos) << what;
  EXPECT_NE(what.find("File too large"), what.npos) << what;
  EXPECT_EQ(content_of(dir / "a"), "old");
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(MappedFile, WritesDoNotReachTheFile) {
  const TempDir dir;
  write_file_atomically(dir / "a", "abc");
  const MappedFile file(dir / "a");
  file.bytes()[0] = std::byte{'X'};
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'X');
  EXPECT_EQ(content_of(dir / "a"), "abc");
}

TEST(MappedFile, EmptyFilesAreEmpty) {
  const TempDir dir;
  write_file_atomically(dir / "a", "");
  EXPECT_TRUE(MappedFile(dir / "a").bytes().empty());
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  std::string what = io_error_of([&] { MappedFile file(dir / "fifo"); });
  EXPECT_NE(what.find("regular file"), what.npos) << what;
  what = io_error_of([&] { MappedFile file("/dev/zero"); });
  EXPECT_NE(what.find("regular file"), what.npos) << what;
  what = io_error_of([&] { MappedFile file(dir.path()); });
  EXPECT_NE(what.find("Is a directory"), what.npos) << what;
  what = io_error_of([&] { MappedFile file(dir / "none"); });
  EXPECT_NE(what.find("cannot open"), what.npos) << what;
  EXPECT_NE(what.find("No such file"), what.npos) << what;
}

TEST(MappedFile, MayBeLargerThanMemory) {
  const TempDir dir;
  const int fd = ::open((dir / "huge").c_str(), O_CREAT | O_WRONLY, 0600);
  const off_t size = off_t{1} << 40;
  const bool sparse = ::ftruncate(fd, size) == 0;
  ::close(fd);
  if (!sparse) GTEST_SKIP() << "the file system cannot hold a sparse file of 1 TiB";
  const MappedFile file(dir / "huge");
  EXPECT_EQ(file.bytes().size(), static_cast<size_t>(size));
  EXPECT_EQ(file.bytes().back(), std::byte{0});
}

}  // namespace
}  // namespace graft::io
