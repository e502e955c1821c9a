#include "support/memory.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "graft/error.h"

namespace graft {
namespace {

/// Of a line "MemTotal:  32614212 kB".
std::optional<int64_t> from_meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string name, line; file >> name && std::getline(file, line);)
    if (name == key + ":") return std::stoll(line) * 1024;
  return {};
}

/// A container's, in bytes; none where it has "max" or no such file.
std::optional<int64_t> from_container(const std::string& name) {
  std::ifstream file("/sys/fs/cgroup/" + name);
  int64_t bytes = 0;
  if (file >> bytes) return bytes;
  return {};
}

}  // namespace

std::optional<int64_t> available_memory() {
  const auto machine = from_meminfo("MemAvailable"), most = from_container("memory.max"),
             used = from_container("memory.current");
  return machine && most && used ? std::min(*machine, *most - *used) : machine;
}

void check_memory(double bytes, const std::string& what, const std::string& advice) {
  const auto free = available_memory();
  if (!free || bytes <= static_cast<double>(*free)) return;
  const auto gigabytes = [](double count) { return std::to_string(std::llround(count / 1e9)) + " GB"; };
  throw UsageError("[memory] " + what + " " + gigabytes(bytes) + ", and " +
                   gigabytes(static_cast<double>(*free)) + " are free: " + advice);
}

}  // namespace graft
