// What callers must give, and what they must not use any more, as errors in place of a crash.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "graft/error.h"

namespace graft {

/// The pointer, unless it is null; `what` is "[train] the model".
template <class Pointer>
Pointer given(Pointer pointer, std::string_view what) {
  if (!pointer) throw UsageError(std::string(what) + " is a null pointer: give one that is there");
  return pointer;
}

/// What is behind an object, unless it was moved from; `what` is "[train] this Trainer".
template <class Impl>
Impl& behind(const std::unique_ptr<Impl>& impl, std::string_view what) {
  if (!impl)
    throw UsageError(std::string(what) +
                     " was moved from: use the one that it was moved to, or make another");
  return *impl;
}

}  // namespace graft
