// A file that appears complete or not at all. The data go to a temporary file in the same folder, are forced
// to disk, and take the final name by rename; whoever has the old file open or mapped keeps it. Where the
// name is a link, the file it leads to is replaced. What is not a file on disk (a device, a pipe), and what
// standard output or error go to, is written as it is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "support/file_descriptor.h"

namespace graft::io {

class AtomicFile {
 public:
  /// Throws IoError when the folder does not exist or cannot be written, or `path` is a folder. A pipe is not
  /// opened before there is something to write: that waits for its reader.
  explicit AtomicFile(const std::filesystem::path& path);
  /// Removes the temporary file unless commit() succeeded; the old file, if any, is untouched.
  ~AtomicFile();
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Forces the data to disk and closes the file, so that commit() has only a rename to do. Called by
  /// commit() if need be; a caller with several files to publish calls it on all of them first.
  void finish();
  /// Gives the file its name, replacing what is there. UsageError the second time, and after a failure.
  void commit();

  const std::filesystem::path& path() const { return path_; }

 private:
  enum class Stage : uint8_t { writing, finished, ended };

  void make_temporary();
  void open_directly();
  void discard();
  [[noreturn]] void fail(const char* action);

  std::filesystem::path path_;
  FileDescriptor folder_;  // held, so that a later change of the working directory cannot move the file; none
                           // for what is written as it is
  FileDescriptor file_;
  std::string name_, temporary_;  // inside the folder; the second is empty once there is nothing to remove
  Stage stage_ = Stage::writing;
};

/// Whether writing to `path` makes or replaces a file on disk, rather than going to a device, a pipe, or
/// where standard output or error go.
bool is_replaced_by_writing(const std::filesystem::path& path);

/// Writes a small file in one go.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace graft::io
