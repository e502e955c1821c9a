#include "support/block_path.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace graft {

std::string block_of(const std::string& path) {
  std::string_view list;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const auto part = std::string_view(path).substr(begin, end - begin);
    const bool number =
        std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    if (number && list != "stages") return path.substr(0, end);
    list = part;
    begin = end + 1;
  }
  return "";
}

}  // namespace graft
