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

/// Topics that warn of themselves, as GRAFT_LOGS turns that off.
constexpr std::string_view no_breaks = "-breaks";

uint32_t bit_of(LogTopic topic) { return 1U << static_cast<uint32_t>(topic); }

struct Chosen {
  uint32_t reported = 0, silenced = 0;
};

const Chosen& chosen_topics() {
  static const Chosen chosen = [] {
    Chosen made;
    auto known = topics;
    known.push_back(no_breaks);
    for (const auto& word : env_words("GRAFT_LOGS", known))
      if (word == no_breaks)
        made.silenced |= bit_of(LogTopic::breaks);
      else
        made.reported |= 1U << (std::find(topics.begin(), topics.end(), word) - topics.begin());
    return made;
  }();
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

void log_warning(LogTopic topic, std::string_view message) {
  if ((chosen_topics().silenced & bit_of(topic)) == 0) log_warning(message);
}

bool logs(LogTopic topic) { return (chosen_topics().reported & bit_of(topic)) != 0; }

void log(LogTopic topic, std::string_view message) {
  if (logs(topic)) write("graft: " + std::string(topics[static_cast<size_t>(topic)]) + ": ", message);
}

void set_log_sink(std::function<void(std::string_view)> replacement) {
  const std::lock_guard<std::mutex> lock(guard);
  sink() = std::move(replacement);
}

}  // namespace graft
