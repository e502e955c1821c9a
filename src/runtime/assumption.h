// graft::assume(flag, expected): what a program takes for granted about its data. Code that asks whether two
// tensors are equal gets an answer on the host, and goes on by it; a program made from that run is right as
// long as the answer is the same. It asks again, and is given up where the answer is another: before anything
// is written to its inputs (plan/failures.h).
#pragma once
#include "graft/error.h"

namespace graft::runtime {

class AssumptionFailed : public Error {
 public:
  using Error::Error;
};

}  // namespace graft::runtime
