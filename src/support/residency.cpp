#include "support/residency.h"

#include <atomic>

namespace graft {
namespace {

std::atomic<Residency*> at_work{nullptr};

}  // namespace

Residency* Residency::current() { return at_work.load(std::memory_order_acquire); }
void Residency::set_current(Residency* residency) { at_work.store(residency, std::memory_order_release); }

}  // namespace graft
