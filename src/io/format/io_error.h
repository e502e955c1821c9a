// The IoError for the system call that just failed.
#pragma once
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {

/// "[file] cannot open "/x/y": No such file or directory", from errno.
[[noreturn]] inline void throw_io_error(const std::string& action, const std::filesystem::path& path,
                                        int error = errno) {
  throw IoError("[file] cannot " + action + " " + quote_path(path) + ": " +
                std::generic_category().message(error));
}

}  // namespace graft::io
