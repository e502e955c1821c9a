// What sort of thing an operator of ATen does, as far as deciding what to fuse, recompute or save needs it.
// Facts about names only: no torch here. tests/oracle/test_op_traits.py holds the table against torch's own
// tags and schemas.
#pragma once
#include <string_view>

#include "ir/graph.h"

namespace graft::ir {

enum class OpKind {
  pointwise,    // an element of the result from the elements at its place; casts, comparisons, copies
  reduction,    // from a whole row, column or tensor: sums, softmax, normalisations and losses
  view,         // the same memory seen otherwise
  creation,     // from no data: full, arange, zeros_like
  matmul,       // products of matrices and vectors
  convolution,  // also transposed, and the backward
  attention,    // fused attention, forward and backward; random where its dropout_p is not 0
  random,       // draws from a generator
  gather,       // moves elements: indexing, embedding, cat, padding, the copying twins of views
  scatter,      // puts elements into a tensor of zeros or a copy; the backward of gathers and views
  other,        // anything else, and everything unknown: pooling, sorting, linear algebra, other namespaces
};

/// Takes "aten::mul.Tensor" or "aten::mul". An operator outside "aten" is `other`, whatever its name,
/// except "graft::number", which a capture makes, and the gates that let adapters in.
OpKind kind_of(std::string_view op);

/// "aten::div.Tensor" -> "aten::div".
std::string_view without_overload(std::string_view op);

/// A kind as text: "pointwise".
std::string_view name_of(OpKind kind);

/// True for a call that must run exactly once, and in order with the others of its sort, used or not: it
/// draws random numbers, has no result, or is of a namespace about which nothing is known.
bool must_run(const Node& node);

/// Whether it gives the elements of its argument in their order, with other sizes: "aten::view". What is
/// contiguous is not copied.
bool is_reshape(const Node& node);

/// Arguments of a half type, or computed from halves, that are asked for their exact value (which element is
/// the largest?): computed a second time with other roundings in between, they may be other numbers.
std::vector<const Value*> exact_halves(const Node& node);

/// Whether it takes a half's own mean, largest element or conversion from it: x - mean(x). A side that is
/// rounded and one that is not would leave a difference where it must be zero (the mean of one number).
bool is_distance_from_own_mean(const Node& node);

}  // namespace graft::ir
