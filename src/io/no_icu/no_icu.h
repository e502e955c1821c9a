// What every stub of this folder says.
#pragma once
#include "graft/error.h"

namespace graft::io {

[[noreturn]] inline void no_icu() {
  throw Error(
      "[tokenizer] this graft was built without ICU, which this tokenizer needs; install libicu-dev and "
      "rebuild");
}

}  // namespace graft::io
