#include "support/block_path.h"

#include <algorithm>
#include <cctype>

namespace graft {

std::string block_of(const std::string& path) {
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (std::all_of(path.begin() + static_cast<int64_t>(begin), path.begin() + static_cast<int64_t>(end),
                    [](unsigned char c) { return std::isdigit(c) != 0; }))
      return path.substr(0, end);
    begin = end + 1;
  }
  return "";
}

}  // namespace graft
