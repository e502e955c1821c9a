#include "cache/choices.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <mutex>

#include "cache/disk_cache.h"
#include "support/hash.h"
#include "support/log.h"

namespace graft::cache {
namespace {

// Counts up when answers come to mean something else.
constexpr const char* version = "graft-choice-2";

std::string key_of(const std::string& question) { return hex(hash128({version, question})); }

std::optional<int64_t> number_in(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

struct Answers {
  std::mutex guard;
  std::map<std::string, int64_t> known;
};
Answers& answers() {
  static Answers instance;
  return instance;
}

}  // namespace

std::optional<int64_t> known_choice(const std::string& question, bool use_cache) {
  auto& [guard, known] = answers();
  const std::lock_guard<std::mutex> lock(guard);
  if (const auto found = known.find(question); found != known.end()) return found->second;
  if (!use_cache) return std::nullopt;
  const auto blob = shared_cache().get(key_of(question));
  const auto answer = blob ? number_in(*blob) : std::nullopt;
  if (answer) known.emplace(question, *answer);
  return answer;
}

void keep_choice(const std::string& question, int64_t answer, bool use_cache) {
  if (logs(LogTopic::kernels))
    log(LogTopic::kernels, "measured: " + question + ": " + std::to_string(answer));
  {
    auto& [guard, known] = answers();
    const std::lock_guard<std::mutex> lock(guard);
    known[question] = answer;
  }
  if (use_cache) shared_cache().put(key_of(question), std::to_string(answer));
}

int64_t choose(const std::string& question, bool use_cache, const std::function<int64_t()>& measure) {
  static std::mutex measuring;
  const std::lock_guard<std::mutex> lock(measuring);
  if (const auto answer = known_choice(question, use_cache)) return *answer;
  const auto answer = measure();
  keep_choice(question, answer, use_cache);
  return answer;
}

std::vector<double> shortest_times(const TimeOf& time_of, const std::vector<std::function<void()>>& bodies,
                                   int rounds) {
  std::vector<double> shortest(bodies.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < bodies.size(); ++i) shortest[i] = std::min(shortest[i], time_of(bodies[i]));
  return shortest;
}

}  // namespace graft::cache
