// One run in a folder at a time, and files that grow by whole records.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "graft/error.h"
#include "io/format/append_file.h"
#include "io/format/folder_lock.h"
#include "temp_dir.h"

namespace graft::io {
namespace {
namespace fs = std::filesystem;

/// As another process sees it: a lock belongs to what opened the file.
bool is_taken(const fs::path& folder) {
  const FileDescriptor file(::open((folder / ".graft-lock").c_str(), O_RDWR | O_CLOEXEC));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

TEST(FolderLock, IsSharedInAProcessAndTakesItsFolderAway) {
  const TempDir temp;
  const auto folder = temp / "new" / "run";
  {
    const auto lock = FolderLock::take(folder);
    EXPECT_EQ(FolderLock::take(folder / "." / ""), lock);
    EXPECT_TRUE(is_taken(folder));
  }
  EXPECT_FALSE(fs::exists(temp / "new"));
  {
    const auto lock = FolderLock::take(folder);
    std::ofstream(folder / "result") << "1";
  }
  EXPECT_TRUE(fs::exists(folder / "result"));
  EXPECT_FALSE(fs::exists(folder / ".graft-lock"));
}

TEST(FolderLock, AKilledProcessHasNone) {
  const TempDir temp;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::take(temp.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  try {
    FolderLock::take(temp.path());
    ADD_FAILURE() << "two have it";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("process " + std::to_string(child)), std::string::npos)
        << error.what();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(temp / ".graft-lock"));
  EXPECT_NO_THROW(FolderLock::take(temp.path()));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(AppendFile, ARecordIsThereWholeOrNotAtAll) {
  const TempDir temp;
  const auto path = temp / "lines";
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const old = ::signal(SIGXFSZ, SIG_IGN);
  {
    AppendFile file(path);
    file.add("first\n");
    struct rlimit small = before;
    small.rlim_cur = 10;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(file.add("second\n"), IoError);
    ::setrlimit(RLIMIT_FSIZE, &before);
    file.add("third\n");
  }
  ::signal(SIGXFSZ, old);
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "first\nthird\n");
}

}  // namespace
}  // namespace graft::io
