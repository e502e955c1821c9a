// What a Decoder, a Session and a BatchGenerator ask of their callers, as errors in place of a crash.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "graft/error.h"

namespace graft::generation {

/// The model that something is made of: "[generate] this Decoder".
template <class Model>
std::shared_ptr<Model> given(std::shared_ptr<Model> model, const std::string& what) {
  if (!model) throw UsageError(what + " needs a model, and the pointer is null");
  return model;
}

/// What is behind an object, unless it was moved from: "[generate] this Decoder".
template <class Impl>
Impl& behind(const std::unique_ptr<Impl>& impl, const std::string& what) {
  if (!impl) throw UsageError(what + " was moved from: use the one that it was moved to, or make another");
  return *impl;
}

/// While one lives no other may: a call inside of another (by a callback), or beside it in another thread,
/// would write over what that one keeps.
class OneAtATime {
 public:
  OneAtATime(std::atomic<bool>& busy, const std::string& refusal) : busy_(busy) {
    if (busy.exchange(true)) throw UsageError(refusal);
  }
  ~OneAtATime() { busy_ = false; }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace graft::generation
