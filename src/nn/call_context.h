// What the layers of one call need to know beyond their inputs: which adapters serve which rows, say.
//
// It belongs to the call, not to the model, so that several threads may call one model differently at once;
// and it goes along when a block is computed again in the backward pass.
#pragma once
#include <memory>

namespace graft::nn {

class CallContext {
 public:
  virtual ~CallContext() = default;
};

/// This thread's; null outside such a call.
const std::shared_ptr<const CallContext>& call_context();

/// Sets this thread's context until it goes.
class WithCallContext {
 public:
  explicit WithCallContext(std::shared_ptr<const CallContext> context);
  ~WithCallContext();
  WithCallContext(const WithCallContext&) = delete;
  WithCallContext& operator=(const WithCallContext&) = delete;

 private:
  std::shared_ptr<const CallContext> before_;
};

}  // namespace graft::nn
