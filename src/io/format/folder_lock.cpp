#include "io/format/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <map>
#include <mutex>

#include "io/format/io_error.h"
#include "support/log.h"

namespace graft::io {
namespace fs = std::filesystem;

namespace {

constexpr const char* kName = ".graft-lock";

/// What the run that has the lock wrote into its file.
std::string holder(int file) {
  std::array<char, 128> text{};
  const auto size = ::pread(file, text.data(), text.size() - 1, 0);
  return size > 0 ? " (" + std::string(text.data(), static_cast<size_t>(size)) + ")" : "";
}

std::string this_process() {
  std::array<char, 65> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return "process " + std::to_string(::getpid()) + (host[0] ? " on " + std::string(host.data()) : "");
}

/// The same before and after the folder is made, with and without a "/" at its end.
fs::path key_of(const fs::path& folder) {
  const auto whole = fs::weakly_canonical(fs::absolute(folder));
  return whole.has_filename() ? whole : whole.parent_path();
}

/// Whether the file under this name is still the one that was opened: who gives the lock back removes it.
bool is_still(int file, const fs::path& path) {
  struct stat opened{}, named{};
  return ::fstat(file, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

std::shared_ptr<FolderLock> FolderLock::take(const fs::path& folder) {
  if (folder.empty()) throw UsageError("[output] the name of the folder to write to is empty");
  static std::mutex guard;
  static std::map<fs::path, std::weak_ptr<FolderLock>> all;
  const std::lock_guard<std::mutex> lock(guard);
  auto& known = all[key_of(folder)];
  if (auto held = known.lock()) return held;
  std::shared_ptr<FolderLock> made(new FolderLock(folder));
  known = made;
  return made;
}

FolderLock::FolderLock(const fs::path& folder) : folder_(folder), path_(folder / kName) {
  std::error_code error;
  for (auto each = fs::absolute(folder).lexically_normal();
       !fs::exists(each, error) && each.has_relative_path(); each = each.parent_path())
    if (each.has_filename()) made_.insert(made_.begin(), each);
  fs::create_directories(folder, error);
  if (error)
    throw IoError("[output] cannot create the folder " + quote_path(folder) + ": " + error.message());
  try {
    open_and_lock();
  } catch (...) {
    remove_made();
    throw;
  }
}

void FolderLock::open_and_lock() {
  do {
    file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_) throw_io_error("write into the folder", folder_);
    if (::flock(file_.get(), LOCK_EX | LOCK_NB) == 0) continue;
    if (errno == EWOULDBLOCK)
      throw IoError("[output] another run of graft writes into " + quote_path(folder_) + holder(file_.get()) +
                    ": wait for its end, or choose another folder");
    log_warning("[output] the file system of " + quote_path(folder_) +
                " has no locks: nothing keeps a second run out of it");
    return;
  } while (!is_still(file_.get(), path_));
  const auto text = this_process();
  if (::ftruncate(file_.get(), 0) == 0 && ::pwrite(file_.get(), text.data(), text.size(), 0) >= 0) return;
  const int error = errno;
  ::unlink(path_.c_str());
  throw_io_error("write", path_, error);
}

void FolderLock::remove_made() {
  std::error_code error;
  for (auto each = made_.rbegin(); each != made_.rend(); ++each) fs::remove(*each, error);  // only empty ones
}

FolderLock::~FolderLock() {
  if (is_still(file_.get(), path_)) ::unlink(path_.c_str());
  remove_made();
}

}  // namespace graft::io
