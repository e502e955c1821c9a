#include "io/format/append_file.h"

#include <fcntl.h>

#include "io/format/io_error.h"

namespace graft::io {

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_) throw_io_error("write", path_);
}

void AppendFile::add(std::string_view record) {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  while (!record.empty()) {
    const ssize_t written = ::write(file_.get(), record.data(), record.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (before >= 0 && ::ftruncate(file_.get(), before) != 0) {
        // It stays cut short. Readers of such files expect that of a run that was killed, too.
      }
      throw_io_error("write", path_, error);
    }
    record.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace graft::io
