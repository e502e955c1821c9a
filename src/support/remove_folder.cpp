#include "support/remove_folder.h"

#include <ftw.h>

#include <cerrno>
#include <cstdio>

namespace graft {

std::error_code remove_folder(const std::filesystem::path& path) {
  constexpr int most_open = 16;
  const auto remove = [](const char* each, const struct stat*, int, struct FTW*) {
    return std::remove(each);
  };
  errno = 0;
  // What a folder holds comes before it, and links are not followed.
  if (::nftw(path.c_str(), remove, most_open, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return {};
  return {errno, std::generic_category()};
}

}  // namespace graft
