#include "train/whole_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "io/format/io_error.h"
#include "support/file_descriptor.h"
#include "support/remove_folder.h"

namespace graft::train {
namespace fs = std::filesystem;

namespace {

void sync(const fs::path& path) {
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened || ::fsync(opened.get()) != 0) io::throw_io_error("force to disk", path, errno);
}

/// The two change names: there is no moment without a folder of either.
void exchange(const fs::path& a, const fs::path& b) {
  if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) io::throw_io_error("rename", a, errno);
  // A file system that cannot do that. The old one is beside it for the moment.
  auto aside = a;
  aside += ".old";
  std::error_code error;
  remove_folder(aside, error);
  fs::rename(b, aside, error);
  if (!error) fs::rename(a, b, error);
  if (!error) fs::rename(aside, a, error);
  if (error) io::throw_io_error("rename", a, error.value());
}

}  // namespace

void write_whole_folder(const fs::path& unfinished, const fs::path& whole,
                        const std::function<void(const fs::path&)>& write) {
  std::error_code error;
  remove_folder(unfinished, error);
  try {
    if (!fs::create_directories(unfinished, error)) io::throw_io_error("create", unfinished, error.value());
    write(unfinished);
    for (const auto& entry : fs::recursive_directory_iterator(unfinished)) sync(entry.path());
    sync(unfinished);
    if (fs::exists(whole, error)) {
      exchange(unfinished, whole);
    } else {
      fs::rename(unfinished, whole, error);
      if (error) io::throw_io_error("rename", unfinished, error.value());
    }
  } catch (...) {
    remove_folder(unfinished, error);
    throw;
  }
  sync(fs::absolute(whole).parent_path());
  remove_folder(unfinished, error);  // what had the name before
}

}  // namespace graft::train
