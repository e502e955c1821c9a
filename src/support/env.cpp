#include "support/env.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "graft/error.h"

namespace graft {

const std::vector<EnvVariable>& env_variables() {
  static const std::vector<EnvVariable> table = {
      {"GRAFT_LOGS", "graph,kernels,recompiles,guards,breaks,passes,cache,times,-breaks",
       "What the compiler reports on standard error, any of these separated by commas; -breaks: no warning "
       "that a function is not compiled."},
      {"GRAFT_DISABLE", "0, 1", "1: compiled functions run eagerly."},
      {"GRAFT_CACHE_DIR", "folder",
       "Where compiled kernels are kept; default: graft in the user's cache folder."},
      {"GRAFT_CACHE_SIZE", "bytes", "The most that the kernel cache may hold; default 1 GiB."},
      {"GRAFT_PASSES_OFF", "names of passes", "Passes that are left out, separated by commas."},
      {"GRAFT_FOLD_PERCENT", "number",
       "How much a program may keep of what it makes from weights alone, in per cent of the weights; default "
       "100."},
      {"GRAFT_PEER_TIMEOUT", "seconds",
       "Without a sign of life for so long another process of the run is taken for dead; default 30."},
      {"GRAFT_COMPILE_THREADS", "number", "Threads that generate code; default: one per core."},
      {"GRAFT_KERNEL_TRIALS", "0, 1",
       "0: machine code that was just made is not tried on made-up data before it is used."},
      {"GRAFT_VERIFY_EVERY", "number",
       "Every so many calls of a compiled function are compared with eager, whatever its options say."},
  };
  return table;
}

std::optional<std::string> env(std::string_view name) {
  const auto& table = env_variables();
  if (std::none_of(table.begin(), table.end(), [&](const auto& v) { return v.name == name; }))
    throw std::logic_error("environment variable " + std::string(name) + " is not in the table");
  const char* value = std::getenv(std::string(name).c_str());
  if (!value || !*value) return std::nullopt;
  return value;
}

std::optional<int64_t> env_number(std::string_view name) {
  const auto value = env(name);
  if (!value) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size() || number < 0)
    throw UsageError("[environment] " + std::string(name) + "=" + *value + " is not a whole number");
  return number;
}

std::vector<std::string> env_words(std::string_view name, const std::vector<std::string_view>& known) {
  std::vector<std::string> words;
  const auto value = env(name).value_or("");
  for (size_t begin = 0; begin < value.size();) {
    const auto comma = std::min(value.find(',', begin), value.size());
    const auto word = value.substr(begin, comma - begin);
    begin = comma + 1;
    if (word.empty()) continue;
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      std::string list;
      for (const auto k : known) list += (list.empty() ? "" : ", ") + std::string(k);
      throw UsageError("[environment] " + std::string(name) + ": \"" + word +
                       "\" is unknown; known: " + list);
    }
    words.push_back(word);
  }
  return words;
}

}  // namespace graft
