#include "runtime/action_times.h"

#include <algorithm>
#include <map>
#include <vector>

namespace graft::runtime {

std::string times_of(const std::deque<Action>& actions, int64_t runs, const std::string& what) {
  runs = std::max<int64_t>(runs, 1);
  std::map<std::string, std::pair<int64_t, int64_t>> kinds;
  for (const auto& action : actions) {
    auto name = action.is_kernel ? "kernel ending in " + action.what : action.what;
    if (const auto start = name.find(" = "); start != std::string::npos && !action.is_kernel)
      name = name.substr(start + 3);
    if (const auto paren = name.find('('); paren != std::string::npos && !action.is_kernel)
      name.resize(paren);
    auto& [spent, count] = kinds[name];
    spent += action.nanoseconds, ++count;
  }
  std::vector<std::pair<int64_t, std::string>> lines;
  lines.reserve(kinds.size());
  for (const auto& [name, kind] : kinds)
    lines.emplace_back(kind.first, std::to_string(kind.first / runs / 1000) + " us  " +
                                       std::to_string(kind.second) + " x " + name);
  std::sort(lines.rbegin(), lines.rend());
  std::string text = "one run of " + what + ":";
  for (const auto& [spent, line] : lines) text += "\n  " + line;
  return text;
}

}  // namespace graft::runtime
