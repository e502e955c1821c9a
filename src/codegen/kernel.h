// One loop nest: what is computed at each point of an iteration space, level "loops".
//
// The space is a product of dimensions, some of them reduced. A kernel runs the kept dimensions in parallel;
// for each point of those it runs one loop over the reduced ones for every phase. Instructions are in single
// assignment form. An instruction that depends on a reduced dimension lives in the loop ("full"), the others
// outside it ("row"). A reduction takes a full value and gives a row value, which the next phase may use: a
// softmax is three phases (largest value; sum of exponentials; quotient), a layer norm is three, a plain
// pointwise kernel has no reduced dimension at all. A reduction may also be over all rows: it takes a row
// value, and what it gives, and what is computed from that ("once"), is there when the last row is done: the
// mean of a cross entropy's losses. Rows cannot use it. Of a full value it gives one for each column, which
// is stored and nothing else: the gradient of a layer norm's weight, beside the rows of its input's.
//
// A kernel that scatters has one store, which adds to what lies at a place that is data, or takes its place.
// Its points are those that are added; points that differ in a kept dimension never meet at one place,
// whatever the data, and those that differ in the reduced ones only are added in their order: an embedding's
// gradient keeps the columns and walks the tokens. So the result is the same however the kept dimensions are
// distributed. What the result is before, another kernel (or a call) has written.
//
// A kernel that scans walks its reduced dimensions in their order: a running sum is a full value that holds
// what came before, of the same kept point. It is computed once for each point, in one phase.
//
// Which dimension is vectorised, how wide, and how the parallel ones are distributed is the target's
// business.
#pragma once
#include <string>
#include <vector>

#include "codegen/index.h"
#include "codegen/op.h"
#include "ir/type.h"

namespace graft::codegen {

struct Instruction {
  Op op = Op::constant;
  /// Of the value in registers: half types are float there.
  ir::DType dtype = ir::DType::f32;
  std::vector<int> args = {};

  int buffer = -1;   // load, store
  Index index = {};  // load, store: element of the buffer; iota: the value itself
  /// A load, or a store that adds, whose place depends on data: plus value * stride, the value checked
  /// against 0 <= value < size.
  struct Indirect {
    int value;
    int64_t stride, size;
    bool wraps;  // a negative value counts from the end
    bool operator==(const Indirect&) const = default;
  };
  std::vector<Indirect> indirect = {};
  int64_t elements = 0;  // load: that may be read from the buffer's start
  /// A flag; where it is false the place may lie outside of the buffer, and the value is any, or nothing is
  /// added.
  int guard = -1;
  bool adds = false;   // store: to what lies there,
  bool takes = false;  // or in its place; the last point that comes stays

  double number = 0;    // constant of a floating type
  int64_t integer = 0;  // constant of another type

  bool over_rows = false;   // a reduction: of a row or a full value, over the kept dimensions
  bool by_columns = false;  // and it gives one for each point of a row, also where all of them are the same

  // Set by analyse():
  bool full = false;
  int phase = 0;        // the loop in which it is computed, or after which (row) it is there
  bool once = false;    // there when all rows are done
  bool column = false;  // and for each point of a row
};

struct Buffer {
  ir::DType dtype;
  bool written = false;
};

struct Dimension {
  int64_t extent;
  bool reduced;
};

struct Kernel {
  std::vector<Dimension>
      dims;  // variable i of the indices is dims[i]; in the order of memory, last is innermost
  std::vector<Buffer> buffers;
  std::vector<Instruction> code;
  int phases = 0;  // loops over the reduced dimensions

  bool reduces_rows() const;
  bool scatters() const;
  bool scans() const;
  int64_t kept_points() const;
  int64_t reduced_points() const;
};

/// Splits dimensions where that makes divisions vanish, joins neighbours that are always walked together, and
/// works out levels and phases.
void analyse(Kernel& kernel);

/// The text: also what identifies a kernel, two with the same text are the same.
std::string to_string(const Kernel& kernel);

}  // namespace graft::codegen
