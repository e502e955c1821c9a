// Writes core operators into a graph, before a given node, and works out the types of their results.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace graft::decomp {

using Dims = std::vector<int64_t>;

class Builder {
 public:
  /// New nodes go before `at` and get its scope.
  Builder(ir::Graph& graph, ir::Node& at) : graph_(graph), at_(at) {}

  /// Any call with one result.
  ir::Value* call(std::string op, std::vector<ir::NamedArgument> arguments, ir::TensorType type);

  // Of one value, of the same type.
  ir::Value* unary(const char* op, ir::Value* x);
  ir::Value* exp(ir::Value* x) { return unary("aten::exp", x); }
  ir::Value* log(ir::Value* x) { return unary("aten::log", x); }
  ir::Value* neg(ir::Value* x) { return unary("aten::neg", x); }
  ir::Value* rsqrt(ir::Value* x) { return unary("aten::rsqrt", x); }
  ir::Value* sqrt(ir::Value* x) { return unary("aten::sqrt", x); }
  // Of two, broadcast; of the first one's dtype.
  ir::Value* binary(const char* op, ir::Value* a, ir::Value* b);
  ir::Value* binary(const char* op, ir::Value* a, double b);
  ir::Value* add(ir::Value* a, ir::Value* b) { return binary("aten::add.Tensor", a, b); }
  ir::Value* sub(ir::Value* a, ir::Value* b) { return binary("aten::sub.Tensor", a, b); }
  ir::Value* mul(ir::Value* a, ir::Value* b) { return binary("aten::mul.Tensor", a, b); }
  ir::Value* div(ir::Value* a, ir::Value* b) { return binary("aten::div.Tensor", a, b); }
  ir::Value* add(ir::Value* a, double b) { return binary("aten::add.Scalar", a, b); }
  ir::Value* mul(ir::Value* a, double b) { return binary("aten::mul.Scalar", a, b); }
  ir::Value* div(ir::Value* a, double b) { return binary("aten::div.Scalar", a, b); }
  ir::Value* whole(const char* op, ir::Value* a, int64_t b);
  /// With a number. Not an overload of compare(): g++ takes int64_t{0} for a null pointer.
  ir::Value* compare_with(const char* op, ir::Value* a, ir::Attribute number);
  ir::Value* compare(const char* op, ir::Value* a, ir::Value* b);
  ir::Value* is_nan(ir::Value* x);
  ir::Value* either(ir::Value* a, ir::Value* b) { return binary("aten::logical_or", a, b); }
  /// Between whole numbers, where there are any.
  ir::Value* clamp(ir::Value* x, std::optional<int64_t> least, std::optional<int64_t> most);
  ir::Value* where(ir::Value* flag, ir::Value* a, ir::Value* b);
  // Reductions that keep their dimensions with size 1, or drop them.
  ir::Value* reduce(const char* op, ir::Value* x, const Dims& dims, bool keep);
  ir::Value* sum(ir::Value* x, const Dims& dims, bool keep = true) {
    return reduce("aten::sum.dim_IntList", x, dims, keep);
  }
  ir::Value* mean(ir::Value* x, const Dims& dims, bool keep = true);
  ir::Value* amax(ir::Value* x, const Dims& dims, bool keep = true) {
    return reduce("aten::amax", x, dims, keep);
  }

  ir::Value* to(ir::Value* x, ir::DType dtype);
  ir::Value* view(ir::Value* x, Dims sizes);
  // Other views, with the strides that they have.
  ir::Value* permute(ir::Value* x, const Dims& dims);
  ir::Value* slice(ir::Value* x, int64_t dim, int64_t start, int64_t end, int64_t step = 1);
  ir::Value* unsqueeze(ir::Value* x, int64_t dim);
  ir::Value* expand(ir::Value* x, const Dims& sizes);
  /// Row-major memory: what any view() is possible of.
  ir::Value* contiguous(ir::Value* x) { return x->type().is_contiguous() ? x : copy(x); }
  ir::Value* copy(ir::Value* x);
  /// A number before and after, along one dimension.
  ir::Value* pad(ir::Value* x, int64_t dim, int64_t before, int64_t after, double number = 0);
  ir::Value* flip(ir::Value* x, int64_t dim);
  ir::Value* cat(std::vector<ir::Value*> parts, int64_t dim);
  ir::Value* full(const Dims& sizes, double number, ir::DType dtype, ir::Device device);

  bool is_used(const ir::Value& value) const { return !value.users().empty() || graph_.is_result(value); }

 private:
  ir::Graph& graph_;
  ir::Node& at_;
};

}  // namespace graft::decomp
