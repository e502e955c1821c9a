#include "nn/call_context.h"

#include <utility>

namespace graft::nn {
namespace {
thread_local std::shared_ptr<const CallContext> current;
}

const std::shared_ptr<const CallContext>& call_context() { return current; }

WithCallContext::WithCallContext(std::shared_ptr<const CallContext> context)
    : before_(std::exchange(current, std::move(context))) {}
WithCallContext::~WithCallContext() { current = std::move(before_); }

}  // namespace graft::nn
