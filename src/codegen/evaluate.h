// A kernel computed point by point, by the host's own arithmetic: what machine code is held against.
//
// Values are enclosures: intervals that hold all results which are allowed (enclosure.h). Instructions are
// taken one after the other, each for many points at once.
//
// A dimension that is too long to walk is thinned: a few of its positions are taken as they are, and one more
// stands for all the rest. Elements that are read there are zero, so that all of the rest compute the same.
#pragma once
#include <cstdint>
#include <vector>

#include "codegen/enclosure.h"
#include "codegen/kernel.h"

namespace graft::codegen {

/// Of one dimension. With a count above 1 it stands for that many.
struct Position {
  int64_t at = 0, count = 1;
};

/// What buffers hold. An element is asked for by its number in the buffer, and any number of times.
class Elements {
 public:
  virtual ~Elements() = default;
  virtual double number(int buffer, int64_t element) = 0;
  virtual int64_t integer(int buffer, int64_t element) = 0;
  /// That the buffer has.
  virtual bool has(int buffer, int64_t element) const = 0;
};

struct Points {
  /// Of the kept dimensions. A kernel with reductions over rows needs all of them.
  int64_t rows = 0;
  /// By row, then by dimension of the kernel; those of reduced ones are not looked at.
  std::vector<Position> kept;
  /// By dimension; of the reduced ones all positions.
  std::vector<std::vector<Position>> reduced;
  /// Additions and multiplications of a reduction that one term goes through at most.
  double deepest = 1e18;
};

struct Stored {
  int buffer;
  int64_t element;
  Real real;    // in a buffer of a floating type
  Whole whole;  // in another
};

struct Evaluated {
  std::vector<Stored> stored;  // rounded to the buffer's dtype
  bool in_range = true;        // every index that is data was; else `stored` says nothing
};

Evaluated evaluate(const Kernel& kernel, const Points& points, Elements& elements);

/// Whether all positions of the dimension at which the elements read are zero compute the same.
bool can_be_thinned(const Kernel& kernel, int dim);

}  // namespace graft::codegen
