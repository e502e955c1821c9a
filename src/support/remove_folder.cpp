#include "support/remove_folder.h"

#include <ftw.h>

#include <cerrno>
#include <cstdio>

namespace graft {

void remove_folder(const std::filesystem::path& path, std::error_code& error) {
  constexpr int most_open = 16;
  const auto remove = [](const char* each, const struct stat*, int, struct FTW*) {
    return std::remove(each);
  };
  errno = 0;
  // What a folder holds comes before it, and links are not followed.
  const bool done = ::nftw(path.c_str(), remove, most_open, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
  error = done ? std::error_code() : std::error_code(errno, std::generic_category());
}

}  // namespace graft
