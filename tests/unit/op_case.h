// A case of op_cases.h: an expression of tensors, and on which it is run.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace graft::op_cases {

using at::Tensor;

/// What a case may use. All but rows and columns have the shape and layout under test and, but for the last
/// five, its dtype.
struct Inputs {
  Tensor x, y, z;
  Tensor p;     ///< greater than 0
  Tensor u;     ///< between -1 and 1
  Tensor mask;  ///< flags
  Tensor at;    ///< whole numbers, places along the first dimension
  Tensor rows;  ///< [5], places along the first dimension
  Tensor rows32;
  Tensor columns;  ///< [5], places along the last dimension

  static Inputs of(const std::vector<Tensor>& t) {
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9]};
  }
  std::vector<Tensor> list() const { return {x, y, z, p, u, mask, at, rows, rows32, columns}; }
};

/// Kinds of dtypes.
enum Types : unsigned {
  none = 0,
  floats = 1,
  ints = 2,
  flags = 4,
  numbers = floats | ints,
  all = numbers | flags
};

enum Needs : unsigned {
  anything = 0,
  rank1 = 1,  ///< at least one dimension
  rank2 = 2,
  elements = 4,      ///< not empty
  plain = 8,         ///< no NaN, infinity or extreme number
  no_gradient = 16,  ///< of floats: eager has none, or it is zero everywhere
  no_half = 32,      ///< eager refuses float16 or rounds in between
};

struct Case {
  std::string op;  ///< the operator it is about; others may come with it
  Types types;     ///< it is run with
  unsigned needs;
  std::function<Tensor(const Inputs&)> run;
  Types calls = none;  ///< kinds of dtypes for which it stays a call to ATen
  /// What is right, where ATen's kernels for one machine or another are not; else `run`.
  std::function<Tensor(const Inputs&)> right = {};
};

inline Types operator|(Types a, Types b) {
  return static_cast<Types>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

#define GRAFT_CASE(expression) [](const Inputs& i) -> Tensor { return expression; }

}  // namespace graft::op_cases
