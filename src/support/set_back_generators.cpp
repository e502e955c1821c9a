#include "support/set_back_generators.h"

namespace graft {
namespace {

thread_local uint64_t times = 0;

}  // namespace

void will_set_generator_back() { ++times; }
uint64_t generators_set_back() { return times; }

}  // namespace graft
