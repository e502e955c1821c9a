// Tensors made from no data, as instructions: constants and numbers that depend on the place alone.
#include "codegen/lower_tables.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;

Lower filled_with(int64_t number) {
  return [number](Lowering& l, const Node& n, const Place&) { return l.integer(out(n), number); };
}

int fill(Lowering& l, const Node& n, const Place& p) {
  const char* name = n.argument("fill_value") ? "fill_value" : n.argument("s") ? "s" : "value";
  return l.argument(n, name, p, out(n));
}

int arange(Lowering& l, const Node& n, const Place& p) {
  // Whole steps stay whole numbers; torch computes start + i * step in the result's type.
  const auto* start = ir::attribute_of(n, "start");
  const auto* step = ir::attribute_of(n, "step");
  const bool whole = (!start || std::holds_alternative<int64_t>(*start)) &&
                     (!step || std::holds_alternative<int64_t>(*step));
  if (whole)
    return l.convert(l.iota(p[0] * ir::int_of(n, "step").value_or(1) + ir::int_of(n, "start").value_or(0)),
                     n.output().type().dtype);
  const auto dtype = out(n);
  const int i = l.cast(l.iota(p[0]), dtype);
  const int scaled = l.emit(Op::mul, dtype, {i, l.constant(dtype, ir::number_of(n, "step").value_or(1))});
  return l.emit(Op::add, dtype, {scaled, l.constant(dtype, ir::number_of(n, "start").value_or(0))});
}

bool arange_applies(const Node& n) {
  const auto whole = [&](const char* name) { return !ir::attribute_of(n, name) || ir::int_of(n, name); };
  return ir::is_floating(n.output().type().dtype) || (whole("start") && whole("step"));
}

int eye(Lowering& l, const Node& n, const Place& p) {
  return l.cast(l.emit(Op::eq, DType::boolean, {l.iota(p[0]), l.iota(p[1])}), out(n));
}

/// Keeps what lies on one side of a diagonal.
Lower triangle(Op keep) {
  return [keep](Lowering& l, const Node& n, const Place& p) {
    const auto offset = p.back() - p[p.size() - 2];
    const int flag = l.emit(keep, DType::boolean,
                            {l.iota(offset), l.integer(DType::i64, ir::int_of(n, "diagonal").value_or(0))});
    return l.emit(Op::select, out(n), {flag, l.evaluate(*ir::value_of(n, "self"), p), l.integer(out(n), 0)});
  };
}

}  // namespace

void add_creation(LowerTable& table) {
  for (const char* name :
       {"aten::zeros", "aten::zeros_like", "aten::new_zeros", "aten::empty.memory_format", "aten::empty_like",
        "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided", "aten::zero"})
    table[name] = {filled_with(0)};
  for (const char* name : {"aten::ones", "aten::ones_like", "aten::new_ones"}) table[name] = {filled_with(1)};
  for (const char* name : {"aten::full", "aten::full_like", "aten::new_full", "aten::scalar_tensor",
                           "aten::fill.Scalar", "aten::fill.Tensor", "graft::number"})
    table[name] = {fill};
  for (const char* name : {"aten::arange", "aten::arange.start", "aten::arange.start_step"})
    table[name] = {arange, arange_applies};
  table["aten::eye"] = {eye};
  table["aten::eye.m"] = {eye};
  table["aten::tril"] = {triangle(Op::le)};
  table["aten::triu"] = {triangle(Op::ge)};
}

}  // namespace graft::codegen
