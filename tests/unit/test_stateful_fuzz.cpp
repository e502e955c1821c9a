// Random programs with state over many calls, compiled and eager: the same to a caller's eyes after every
// call. A program that fails is made smaller and printed, with the command that repeats it.
//
// GRAFT_STATEFUL_COUNT programs, from GRAFT_STATEFUL_SEED on (default 1). Program n of seed s is program 1 of
// seed s + n - 1. GRAFT_STATEFUL_PRINT=1 prints each program before it runs, for one that crashes.
// Of failures of one kind the first is made smaller, the others are counted. GRAFT_STATEFUL_FAILURES says how
// many kinds end the run (default 5).
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>

#include "graft/compile.h"
#include "stateful_judge.h"
#include "support/log.h"

namespace graft::stateful {
namespace {

using random_programs::from_environment;

/// A function that has too many programs says so; here that is no news, unless somebody asks.
struct Quiet {
  Quiet() {
    if (!std::getenv("GRAFT_LOGS")) set_log_sink([](std::string_view) {});
  }
  ~Quiet() { set_log_sink({}); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

void fuzz(const char* test, Program (*make)(uint64_t), uint64_t standard_count) {
  const Quiet quiet;
  const auto count = from_environment("GRAFT_STATEFUL_COUNT", standard_count),
             start = from_environment("GRAFT_STATEFUL_SEED", 1),
             most = from_environment("GRAFT_STATEFUL_KINDS", 5),
             per_kind = from_environment("GRAFT_STATEFUL_PER_KIND", 1);
  std::map<std::string, std::vector<uint64_t>> failures;
  for (uint64_t seed = start; seed < start + count && failures.size() < most; ++seed) {
    const auto program = make(seed);
    if (from_environment("GRAFT_STATEFUL_PRINT", 0)) std::cerr << "seed " << seed << "\n" << program.text();
    const auto found = judge(program);
    if (!found) continue;
    failures[found->kind].push_back(seed);
    if (failures[found->kind].size() > per_kind) continue;
    const auto small = minified(program, found->kind);
    const auto last = judge(small);
    ADD_FAILURE() << "seed " << seed << ", " << (last ? last->text : found->text) << " [" << found->kind
                  << "]\n"
                  << small.text() << "  repeat: GRAFT_STATEFUL_SEED=" << seed
                  << " GRAFT_STATEFUL_COUNT=1 unit_tests --gtest_filter=" << test;
  }
  for (const auto& [kind, seeds] : failures)
    if (seeds.size() > per_kind)
      ADD_FAILURE() << seeds.size() << " programs fail with [" << kind << "], the last from seed "
                    << seeds.back();
}

TEST(StatefulFuzz, Programs) { fuzz("StatefulFuzz.Programs", generate, 300); }
TEST(StatefulFuzz, TrainingSteps) { fuzz("StatefulFuzz.TrainingSteps", generate_step, 50); }

}  // namespace
}  // namespace graft::stateful
