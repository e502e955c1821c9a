#include "codegen/scatter.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "codegen/lower_tables.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

int64_t stride(const Value& v, size_t dim) { return v.type().strides[dim]; }
int64_t size(const Value& v, size_t dim) { return v.type().sizes[dim]; }

std::vector<int64_t> numbers(size_t from, size_t count) {
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), static_cast<int64_t>(from));
  return all;
}

size_t dim_of(const Node& n) {
  return static_cast<size_t>(ir::wrapped(ir::int_of(n, "dim").value_or(0), n.output().type().sizes.size()));
}

/// Along one dimension the place is data, in the others it is the element's own.
void add_along(Lowering& l, const Node& n, size_t dim, int element, int at, const Place& p) {
  auto place = p;
  place[dim] = 0;
  l.add_at(n.output(), element, place, {{at, stride(n.output(), dim), size(n.output(), dim), false}});
}

/// ATen passes over indices outside the table here, as it does over the padding.
Scatter embedding_dense_backward(const Node& n) {
  const auto& grad = *ir::value_of(n, "grad_output");
  const auto add = [&n, &grad](Lowering& l, const Place& p) {
    const auto& out = n.output();
    const int row = l.at(*ir::value_of(n, "indices"), Place(p.begin(), p.end() - 1), DType::i64);
    const auto holds = [&](Op op, int64_t number) {
      return l.emit(op, DType::boolean, {row, l.integer(DType::i64, number)});
    };
    int counts = l.emit(Op::logical_and, DType::boolean, {holds(Op::ge, 0), holds(Op::lt, size(out, 0))});
    if (const int64_t padding = ir::int_of(n, "padding_idx").value_or(-1); padding >= 0)
      counts = l.emit(Op::logical_and, DType::boolean, {counts, holds(Op::ne, padding)});
    l.add_at(out, l.evaluate(grad, p), {0, p.back()}, {{row, stride(out, 0), size(out, 0), false}}, counts);
  };
  return {grad.type().sizes, numbers(0, grad.type().sizes.size() - 1), nullptr, add};
}

Scatter index_add(const Node& n) {
  const auto& source = *ir::value_of(n, "source");
  const size_t dim = dim_of(n);
  const auto add = [&n, &source, dim](Lowering& l, const Place& p) {
    const auto& which = *ir::value_of(n, "index");
    const int at = l.at(which, which.type().sizes.empty() ? Place{} : Place{p[dim]}, DType::i64);
    int element = l.evaluate(source, p);
    if (ir::number_of(n, "alpha").value_or(1) != 1)
      element = l.emit(Op::mul, out(n), {element, l.argument(n, "alpha", p, out(n))});
    add_along(l, n, dim, element, at, p);
  };
  return {source.type().sizes, {static_cast<int64_t>(dim)}, ir::value_of(n, "self"), add};
}

Scatter scatter_add(const Node& n) {
  const auto& index = *ir::value_of(n, "index");
  const size_t dim = dim_of(n);
  const auto add = [&n, &index, dim](Lowering& l, const Place& p) {
    add_along(l, n, dim, l.evaluate(*ir::value_of(n, "src"), p), l.at(index, p, DType::i64), p);
  };
  return {index.type().sizes, {static_cast<int64_t>(dim)}, ir::value_of(n, "self"), add};
}

void put_along(Lowering& l, const Node& n, size_t dim, int element, int at, const Place& p,
               bool wraps = false) {
  auto place = p;
  place[dim] = 0;
  l.put_at(n.output(), element, place, {{at, stride(n.output(), dim), size(n.output(), dim), wraps}});
}

/// A tensor's element, or one number for all, as the result holds it.
int element_of(Lowering& l, const Node& n, const char* name, const Place& p) {
  const auto dtype = n.output().type().dtype;
  const auto* value = ir::value_of(n, name);
  const bool is_tensor = value && !value->type().sizes.empty();
  return l.convert(is_tensor ? l.evaluate(*value, p) : l.argument(n, name, p, out(n)), dtype);
}

/// The places may be more than the elements' own: `index` says how many there are.
Scatter scatter(const Node& n, const char* name) {
  const auto& index = *ir::value_of(n, "index");
  const size_t dim = dim_of(n);
  const auto put = [&n, &index, dim, name](Lowering& l, const Place& p) {
    put_along(l, n, dim, element_of(l, n, name, p), l.at(index, p, DType::i64), p);
  };
  return {index.type().sizes, {static_cast<int64_t>(dim)}, ir::value_of(n, "self"), put};
}
Scatter scatter_tensor(const Node& n) { return scatter(n, "src"); }
Scatter scatter_number(const Node& n) { return scatter(n, "value"); }

/// One number, at all places that have one of these indices in a dimension. (index_copy is the device's: it
/// writes rows of a cache where they belong.)
Scatter index_fill(const Node& n) {
  const auto& which = *ir::value_of(n, "index");
  const size_t dim = dim_of(n);
  auto sizes = n.output().type().sizes;
  sizes[dim] = which.type().numel();
  const auto put = [&n, &which, dim](Lowering& l, const Place& p) {
    const int at = l.at(which, which.type().sizes.empty() ? Place{} : Place{p[dim]}, DType::i64);
    put_along(l, n, dim, element_of(l, n, "value", p), at, p, /*wraps=*/true);
  };
  return {sizes, {static_cast<int64_t>(dim)}, ir::value_of(n, "self"), put};
}

Scatter index_put(const Node& n) {
  const auto& indices = *ir::values_of(n, "indices");
  const auto shape = index_shape(indices);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < n.output().type().sizes.size(); ++i)
    if (i >= indices.size() || !indices[i]) sizes.push_back(size(n.output(), i));
  sizes.insert(sizes.begin() + static_cast<int64_t>(shape.front), shape.sizes.begin(), shape.sizes.end());
  const auto add = [&n, &indices](Lowering& l, const Place& p) {
    const auto [place, indirect] = indexed_place(l, n.output(), indices, p);
    if (ir::bool_of(n, "accumulate", false))
      l.add_at(n.output(), l.argument(n, "values", p, out(n)), place, indirect);
    else
      l.put_at(n.output(), l.argument(n, "values", p, out(n)), place, indirect);
  };
  return {sizes, numbers(shape.front, shape.sizes.size()), ir::value_of(n, "self"), add};
}

struct Row {
  const char* name;
  Scatter (*make)(const Node&);
  bool (*applies)(const Node&);
};
/// ATen flattens both and asks for no more than that.
bool has_a_row_for_each(const Node& n) {
  auto rows = ir::value_of(n, "grad_output")->type().sizes;
  if (rows.empty()) return false;
  rows.pop_back();
  return rows == ir::value_of(n, "indices")->type().sizes;
}
bool has_places(const Node& n) {
  return index_applies(n) && ir::value_of(n, "values")->type().sizes.size() <= index_put(n).sizes.size();
}
// ATen sums half types in float here, and rounds after each addition in the others.
bool has_dimensions_and_no_halves(const Node& n) {
  return !n.output().type().sizes.empty() && !ir::is_half(n.output().type().dtype) &&
         ir::value_of(n, n.op() == "aten::index_add" ? "source" : "index")->type().sizes.size() ==
             n.output().type().sizes.size();
}
bool has_index_of_its_rank(const Node& n) {
  return !n.output().type().sizes.empty() &&
         ir::value_of(n, "index")->type().sizes.size() == n.output().type().sizes.size();
}
bool has_dimensions(const Node& n) { return !n.output().type().sizes.empty(); }
constexpr std::array<Row, 10> rows = {{
    {"aten::embedding_dense_backward", embedding_dense_backward,
     [](const Node& n) { return !ir::bool_of(n, "scale_grad_by_freq", false) && has_a_row_for_each(n); }},
    {"aten::index_add", index_add, has_dimensions_and_no_halves},
    {"aten::scatter_add", scatter_add, has_dimensions_and_no_halves},
    {"aten::scatter.src", scatter_tensor, has_index_of_its_rank},
    {"aten::scatter.value", scatter_number, has_index_of_its_rank},
    {"aten::index_fill.int_Scalar", index_fill, has_dimensions},
    {"aten::index_fill.int_Tensor", index_fill, has_dimensions},
    {"aten::index_put", index_put, has_places},
    {"aten::_index_put_impl", index_put, has_places},
    {"aten::_unsafe_index_put", index_put, has_places},
}};

bool can_be_computed(const Node& n) {
  const auto supported = [](const Value* v) { return v->type().dtype <= DType::boolean; };
  const auto inputs = n.inputs();
  const auto& type = n.output().type();
  return type.dtype != DType::boolean && type.numel() > 0 && supported(&n.output()) &&
         std::all_of(inputs.begin(), inputs.end(), supported);
}

}  // namespace

std::optional<Scatter> scatter_of(const Node& node) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return node.op() == r.name; });
  if (row == rows.end() || node.outputs().size() != 1 || !can_be_computed(node) || !row->applies(node))
    return std::nullopt;
  auto made = row->make(node);
  if (std::find(made.sizes.begin(), made.sizes.end(), 0) != made.sizes.end()) return std::nullopt;
  return made;
}

std::vector<std::string> scatter_operators() {
  std::vector<std::string> names;
  names.reserve(rows.size());
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace graft::codegen
