#include "support/log.h"

#include <cstdio>
#include <mutex>
#include <string>

namespace graft {
namespace {

std::mutex guard;
std::function<void(std::string_view)>& sink() {
  static std::function<void(std::string_view)> instance;
  return instance;
}

}  // namespace

void log_warning(std::string_view message) {
  const std::lock_guard<std::mutex> lock(guard);
  if (sink()) return sink()(message);
  const std::string line = "graft: warning: " + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_log_sink(std::function<void(std::string_view)> replacement) {
  const std::lock_guard<std::mutex> lock(guard);
  sink() = std::move(replacement);
}

}  // namespace graft
