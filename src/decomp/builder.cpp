#include "decomp/builder.h"

#include <algorithm>

namespace graft::decomp {

using ir::Attribute;
using ir::NamedArgument;
using ir::TensorType;
using ir::Value;

namespace {

Dims broadcast(const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    const auto at = [&](const Dims& d) {
      return i < result.size() - d.size() ? 1 : d[i - (result.size() - d.size())];
    };
    result[i] = at(a) == 1 ? at(b) : at(a);
  }
  return result;
}

/// One operand's layout where that has the result's shape: pointwise operators keep it. Not that of an
/// expanded tensor or one with gaps: a result has a place for each element.
TensorType like(const Value* x, Dims sizes, ir::DType dtype) {
  if (x->type().sizes == sizes && x->type().is_dense()) {
    auto type = x->type();
    type.dtype = dtype;
    return type;
  }
  return ir::contiguous(dtype, std::move(sizes), x->type().device);
}

}  // namespace

Value* Builder::call(std::string op, std::vector<NamedArgument> arguments, TensorType type) {
  auto& node = graph_.add_node(std::move(op), std::move(arguments), {std::move(type)}, &at_);
  node.set_scope(at_.scope());
  return &node.output();
}

Value* Builder::unary(const char* op, Value* x) {
  return call(op, {{"self", x}}, like(x, x->type().sizes, x->type().dtype));
}

Value* Builder::binary(const char* op, Value* a, Value* b) {
  auto sizes = broadcast(a->type().sizes, b->type().sizes);
  const auto* shaped = a->type().sizes == sizes ? a : b;
  return call(op, {{"self", a}, {"other", b}}, like(shaped, std::move(sizes), a->type().dtype));
}

Value* Builder::binary(const char* op, Value* a, double b) {
  return call(op, {{"self", a}, {"other", Attribute(b)}}, like(a, a->type().sizes, a->type().dtype));
}

Value* Builder::whole(const char* op, Value* a, int64_t b) {
  return call(op, {{"self", a}, {"other", Attribute(b)}}, like(a, a->type().sizes, a->type().dtype));
}

Value* Builder::compare_with(const char* op, Value* a, Attribute b) {
  return call(op, {{"self", a}, {"other", std::move(b)}}, like(a, a->type().sizes, ir::DType::boolean));
}

Value* Builder::compare(const char* op, Value* a, Value* b) {
  auto sizes = broadcast(a->type().sizes, b->type().sizes);
  const auto* shaped = a->type().sizes == sizes ? a : b;
  return call(op, {{"self", a}, {"other", b}}, like(shaped, std::move(sizes), ir::DType::boolean));
}

Value* Builder::is_nan(Value* x) {
  return call("aten::isnan", {{"self", x}}, like(x, x->type().sizes, ir::DType::boolean));
}

Value* Builder::clamp(Value* x, std::optional<int64_t> least, std::optional<int64_t> most) {
  const auto bound = [](std::optional<int64_t> number) { return number ? Attribute(*number) : Attribute(); };
  return call("aten::clamp", {{"self", x}, {"min", bound(least)}, {"max", bound(most)}},
              like(x, x->type().sizes, x->type().dtype));
}

Value* Builder::where(Value* flag, Value* a, Value* b) {
  auto sizes = broadcast(broadcast(flag->type().sizes, a->type().sizes), b->type().sizes);
  return call("aten::where.self", {{"condition", flag}, {"self", a}, {"other", b}},
              ir::contiguous(a->type().dtype, std::move(sizes), a->type().device));
}

Value* Builder::reduce(const char* op, Value* x, const Dims& dims, bool keep) {
  Dims sizes;
  for (size_t i = 0; i < x->type().sizes.size(); ++i) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end())
      sizes.push_back(x->type().sizes[i]);
    else if (keep)
      sizes.push_back(1);
  }
  return call(op, {{"self", x}, {"dim", Attribute(dims)}, {"keepdim", Attribute(keep)}},
              ir::contiguous(x->type().dtype, std::move(sizes), x->type().device));
}

Value* Builder::mean(Value* x, const Dims& dims, bool keep) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= x->type().sizes[static_cast<size_t>(d)];
  return div(sum(x, dims, keep), static_cast<double>(count));
}

Value* Builder::to(Value* x, ir::DType dtype) {
  if (x->type().dtype == dtype) return x;
  return call("aten::_to_copy", {{"self", x}, {"dtype", Attribute(dtype)}}, like(x, x->type().sizes, dtype));
}

Value* Builder::view(Value* x, Dims sizes) {
  if (x->type().sizes == sizes) return x;
  auto type = ir::contiguous(x->type().dtype, sizes, x->type().device);
  return call("aten::view", {{"self", x}, {"size", Attribute(std::move(sizes))}}, std::move(type));
}

Value* Builder::permute(Value* x, const Dims& dims) {
  auto type = x->type();
  for (size_t i = 0; i < dims.size(); ++i) {
    type.sizes[i] = x->type().sizes[static_cast<size_t>(dims[i])];
    type.strides[i] = x->type().strides[static_cast<size_t>(dims[i])];
  }
  return call("aten::permute", {{"self", x}, {"dims", Attribute(dims)}}, std::move(type));
}

Value* Builder::slice(Value* x, int64_t dim, int64_t start, int64_t end, int64_t step) {
  auto type = x->type();
  if (start == 0 && end == type.sizes[static_cast<size_t>(dim)] && step == 1) return x;
  type.sizes[static_cast<size_t>(dim)] = (end - start + step - 1) / step;
  type.strides[static_cast<size_t>(dim)] *= step;
  return call("aten::slice.Tensor",
              {{"self", x},
               {"dim", Attribute(dim)},
               {"start", Attribute(start)},
               {"end", Attribute(end)},
               {"step", Attribute(step)}},
              std::move(type));
}

Value* Builder::unsqueeze(Value* x, int64_t dim) {
  auto type = x->type();
  const auto at = static_cast<size_t>(dim);
  const int64_t stride = at < type.sizes.size() ? type.sizes[at] * type.strides[at] : 1;
  type.sizes.insert(type.sizes.begin() + dim, 1);
  type.strides.insert(type.strides.begin() + dim, stride);
  return call("aten::unsqueeze", {{"self", x}, {"dim", Attribute(dim)}}, std::move(type));
}

Value* Builder::expand(Value* x, const Dims& sizes) {
  auto type = x->type();
  for (size_t i = 0; i < sizes.size(); ++i)
    if (type.sizes[i] != sizes[i]) type.strides[i] = 0;
  type.sizes = sizes;
  return call("aten::expand", {{"self", x}, {"size", Attribute(sizes)}}, std::move(type));
}

Value* Builder::copy(Value* x) {
  return call("aten::clone", {{"self", x}, {"memory_format", Attribute(ir::Symbol{"contiguous_format"})}},
              ir::contiguous(x->type().dtype, x->type().sizes, x->type().device));
}

Value* Builder::pad(Value* x, int64_t dim, int64_t before, int64_t after, double number) {
  if (before == 0 && after == 0) return x;
  auto sizes = x->type().sizes;
  const auto from_last = static_cast<int64_t>(sizes.size()) - 1 - dim;
  Dims pads(static_cast<size_t>(2 * (from_last + 1)), 0);
  pads[pads.size() - 2] = before;
  pads[pads.size() - 1] = after;
  sizes[static_cast<size_t>(dim)] += before + after;
  return call("aten::constant_pad_nd",
              {{"self", x}, {"pad", Attribute(std::move(pads))}, {"value", Attribute(number)}},
              ir::contiguous(x->type().dtype, std::move(sizes), x->type().device));
}

Value* Builder::flip(Value* x, int64_t dim) {
  return call("aten::flip", {{"self", x}, {"dims", Attribute(Dims{dim})}},
              ir::contiguous(x->type().dtype, x->type().sizes, x->type().device));
}

Value* Builder::cat(std::vector<Value*> parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  auto sizes = parts[0]->type().sizes;
  for (size_t i = 1; i < parts.size(); ++i)
    sizes[static_cast<size_t>(dim)] += parts[i]->type().sizes[static_cast<size_t>(dim)];
  auto type = ir::contiguous(parts[0]->type().dtype, std::move(sizes), parts[0]->type().device);
  return call("aten::cat", {{"tensors", ir::ValueList(std::move(parts))}, {"dim", Attribute(dim)}},
              std::move(type));
}

Value* Builder::full(const Dims& sizes, double number, ir::DType dtype, ir::Device device) {
  return call("aten::full",
              {{"size", Attribute(sizes)},
               {"fill_value", Attribute(number)},
               {"dtype", Attribute(dtype)},
               {"device", Attribute(device)}},
              ir::contiguous(dtype, sizes, device));
}

}  // namespace graft::decomp
