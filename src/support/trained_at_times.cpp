#include "support/trained_at_times.h"

#include <utility>

namespace graft {
namespace {
thread_local SwitchesSeen* innermost = nullptr;
}

void will_switch(const void* parameter) {
  for (auto* seen = innermost; seen; seen = seen->before_) seen->switched_.insert(parameter);
}

SwitchesSeen::SwitchesSeen() : before_(std::exchange(innermost, this)) {}
SwitchesSeen::~SwitchesSeen() { innermost = before_; }

}  // namespace graft
