// The table of ops that `graft bench` measures: what each reads, and the function, whatever the dtype.
// bench/op_table.py has the same functions in Python, by the same names.
#pragma once
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "bench/row.h"

namespace graft::cli::bench {

using Tensors = std::vector<at::Tensor>;
using OpFunction = Tensors (*)(const Tensors&);

/// Shapes are those of about a millisecond in eager float32 on two cores.
struct OpInput {
  std::string name;
  ordered_json spec;  ///< as in Row::inputs; without a dtype it has the one that the row is about
  bool trained = false;
};

/// Numbers that gradients are taken for: normal ones, or evenly between `low` and `high`.
OpInput trained(const std::string& name, const std::vector<int64_t>& shape);
OpInput trained(const std::string& name, const std::vector<int64_t>& shape, double low, double high);
/// Numbers without gradients.
OpInput fixed(const std::string& name, const std::vector<int64_t>& shape);
OpInput fixed(const std::string& name, const std::vector<int64_t>& shape, double low, double high);
/// Whole numbers from 0 on.
OpInput whole(const std::string& name, const std::vector<int64_t>& shape, int64_t below);
/// true and false.
OpInput flags(const std::string& name, const std::vector<int64_t>& shape);

enum OpTraits : unsigned {
  usual = 0,
  no_half = 1,  ///< eager has it in float32 and float64 only
  breaks =
      2,  ///< reads values on the host, or memory past the dispatcher: several graphs or none, and no error
  chaotic = 4,  ///< roundings change the result: what is compared is its kind and its size
};

struct Op {
  std::string name;
  std::vector<OpInput> inputs;
  OpFunction run;
  unsigned traits = usual;

  bool has(OpTraits trait) const { return (traits & trait) != 0; }
};

/// A formula of the tensors `in` as an OpFunction.
#define GRAFT_OP(...) [](const Tensors& in) -> Tensors { return {__VA_ARGS__}; }

std::vector<Op> activation_ops();
std::vector<Op> unary_ops();
std::vector<Op> binary_ops();
std::vector<Op> softmax_ops();
std::vector<Op> norm_ops();
std::vector<Op> loss_ops();
std::vector<Op> pooling_ops();
std::vector<Op> padding_ops();
std::vector<Op> upsampling_ops();
std::vector<Op> scan_ops();
std::vector<Op> indexing_ops();
std::vector<Op> movement_ops();
std::vector<Op> sorting_ops();
std::vector<Op> reduction_ops();
std::vector<Op> product_ops();
std::vector<Op> recurrent_ops();
std::vector<Op> composite_ops();

/// All of them, in this order.
const std::vector<Op>& all_ops();
/// UsageError for an unknown one.
const Op& op_named(const std::string& name);

}  // namespace graft::cli::bench
