// What eager code would have refused as well: an index in the data is out of range.
#pragma once
#include "graft/error.h"

namespace graft::runtime {

/// Nothing has been changed yet.
class DataError : public Error {
 public:
  using Error::Error;
};

}  // namespace graft::runtime
