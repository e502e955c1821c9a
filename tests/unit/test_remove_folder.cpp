// Folders are removed with all that is in them, and with nothing else.
#include <gtest/gtest.h>

#include <fstream>

#include "support/remove_folder.h"
#include "temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

std::error_code error_of(const fs::path& path) {
  auto error = std::make_error_code(std::errc::io_error);  // from before
  remove_folder(path, error);
  return error;
}

TEST(RemoveFolder, TakesAFolderWithAllThatIsInIt) {
  const TempDir dir;
  write(dir.path() / "a" / "b" / "c" / "file");
  write(dir.path() / "a" / "file");
  write(dir.path() / "outside" / "file");
  fs::create_directory_symlink(dir.path() / "outside", dir.path() / "a" / "link");
  fs::create_symlink("nowhere", dir.path() / "a" / "broken");
  EXPECT_FALSE(error_of(dir.path() / "a"));
  EXPECT_FALSE(fs::exists(dir.path() / "a"));
  EXPECT_TRUE(fs::exists(dir.path() / "outside" / "file"));
}

TEST(RemoveFolder, TakesAFileALinkAndWhatIsNotThere) {
  const TempDir dir;
  write(dir.path() / "file");
  fs::create_symlink("file", dir.path() / "link");
  EXPECT_FALSE(error_of(dir.path() / "link"));
  EXPECT_TRUE(fs::exists(dir.path() / "file"));
  EXPECT_FALSE(error_of(dir.path() / "file"));
  EXPECT_FALSE(fs::exists(dir.path() / "file"));
  EXPECT_FALSE(error_of(dir.path() / "file"));
}

TEST(RemoveFolder, SaysWhatCannotBeRemoved) { EXPECT_TRUE(error_of("/proc/self/fd")); }

}  // namespace
}  // namespace graft
