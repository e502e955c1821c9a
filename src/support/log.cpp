#include "support/log.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "support/env.h"

namespace graft {
namespace {

std::mutex guard;
std::function<void(std::string_view)>& sink() {
  static std::function<void(std::string_view)> instance;
  return instance;
}

const std::vector<std::string_view> topics = {"graph",  "kernels", "recompiles", "guards",
                                              "breaks", "passes",  "cache",      "times"};

uint32_t chosen_topics() {
  uint32_t chosen = 0;
  for (const auto& word : env_words("GRAFT_LOGS", topics))
    chosen |= 1U << (std::find(topics.begin(), topics.end(), word) - topics.begin());
  return chosen;
}

void write(std::string_view prefix, std::string_view message) {
  const std::lock_guard<std::mutex> lock(guard);
  if (sink()) return sink()(message);
  const auto line = std::string(prefix) + std::string(message) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log_warning(std::string_view message) { write("graft: warning: ", message); }

bool logs(LogTopic topic) {
  static const uint32_t chosen = chosen_topics();
  return (chosen >> static_cast<uint32_t>(topic) & 1U) != 0;
}

void log(LogTopic topic, std::string_view message) {
  if (logs(topic)) write("graft: " + std::string(topics[static_cast<size_t>(topic)]) + ": ", message);
}

void set_log_sink(std::function<void(std::string_view)> replacement) {
  const std::lock_guard<std::mutex> lock(guard);
  sink() = std::move(replacement);
}

}  // namespace graft
