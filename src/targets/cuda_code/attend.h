// graft::attend (runtime/attend.h) as CUDA C++: few queries over many keys.
#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "ir/type.h"

namespace graft::cuda {

constexpr int attend_threads = 256;

/// As the kernels have it. Strides are in elements: of the batch, of heads, of queries or keys.
struct AttendPlan {
  int64_t query[3], key[3], value[3], out[3];
  int64_t bias[4];  ///< batch, heads, queries, keys
  int32_t groups, heads_of_group, queries, keys, parts;
  float scale;
};

/// What the code is made for.
struct AttendKind {
  ir::DType dtype;  ///< a half type
  ir::DType bias;   ///< of the numbers that are added to the scores
  int64_t size;     ///< of a head
  int64_t rows;     ///< that a block takes, 1 to 4: queries of heads that share their keys

  auto operator<=>(const AttendKind&) const = default;
};

/// Whether there is code for heads of this size.
bool has_attend_code(int64_t size);

/// Functions, extern "C", over a grid of batch * groups, parts, blocks of rows:
///   attend(out, query, key, value, bias, float* partial, AttendPlan) writes the result, or with several
///   parts
///     what each of them found;
///   join_parts(out, const float* partial, AttendPlan), with one block for all parts, joins that.
std::string attend_code(const AttendKind& kind);
/// The same without what stands before it (expressions.h: conversions()).
std::string attend_functions(const AttendKind& kind);

/// Floats that a block of a part leaves.
int64_t attend_partial(const AttendKind& kind);

}  // namespace graft::cuda
