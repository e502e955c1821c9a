// What was found by measuring (which kernel, which form of a product is the fastest here), kept: for the
// process, and in the disk cache for the next one, which so makes the same choice without measuring.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace graft::cache {

/// How choices are made that only measuring can make.
struct Measuring {
  bool use_cache = true;  ///< answers of other processes count, and this one's are kept for them
  bool thorough = false;  ///< mode max-autotune: more is tried, more often
};

/// The answer to a question, if there is one. A question says all that the answer depends on, the device too.
std::optional<int64_t> known_choice(const std::string& question, bool use_cache);
void keep_choice(const std::string& question, int64_t answer, bool use_cache);

/// The known answer, or else that of `measure`, which is asked by one thread at a time.
int64_t choose(const std::string& question, bool use_cache, const std::function<int64_t()>& measure);

/// How long something takes, in seconds.
using TimeOf = std::function<double(const std::function<void()>&)>;

/// The shortest time of each. They take turns: what disturbs the machine disturbs all of them.
std::vector<double> shortest_times(const TimeOf& time_of, const std::vector<std::function<void()>>& bodies,
                                   int rounds);

}  // namespace graft::cache
