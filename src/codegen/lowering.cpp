#include "codegen/lowering.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "codegen/scan.h"
#include "ir/arguments.h"

namespace graft::codegen {
namespace {

struct Reduction {
  const char* name;
  const char* dims;
  Op op;
};
constexpr Reduction reductions[] = {
    {"aten::sum", "", Op::reduce_sum},          {"aten::sum.dim_IntList", "dim", Op::reduce_sum},
    {"aten::prod", "", Op::reduce_prod},        {"aten::prod.dim_int", "dim", Op::reduce_prod},
    {"aten::amax", "dim", Op::reduce_max},      {"aten::amin", "dim", Op::reduce_min},
    {"aten::max", "", Op::reduce_max},          {"aten::min", "", Op::reduce_min},
    {"aten::any", "", Op::reduce_any},          {"aten::any.dim", "dim", Op::reduce_any},
    {"aten::any.dims", "dim", Op::reduce_any},  {"aten::all", "", Op::reduce_all},
    {"aten::all.dim", "dim", Op::reduce_all},   {"aten::all.dims", "dim", Op::reduce_all},
    {"aten::argmax", "dim", Op::reduce_argmax}, {"aten::argmin", "dim", Op::reduce_argmin},
};

const Reduction* find_reduction(const std::string& op) {
  for (const auto& r : reductions)
    if (op == r.name) return &r;
  return nullptr;
}

/// Of the memory that the value begins.
Index element_at(const ir::Value& value, const Place& place) {
  Index index;
  for (size_t i = 0; i < place.size(); ++i) index = index + place[i] * value.type().strides[i];
  return index;
}

/// Numbers by their bits: 0 and -0 are two, a NaN is equal to itself.
bool same_value(const Instruction& a, const Instruction& b) {
  return a.op == b.op && a.dtype == b.dtype && a.buffer == b.buffer && a.guard == b.guard &&
         a.integer == b.integer && a.over_rows == b.over_rows && a.by_columns == b.by_columns &&
         a.args == b.args && std::bit_cast<uint64_t>(a.number) == std::bit_cast<uint64_t>(b.number) &&
         a.indirect == b.indirect && a.index == b.index;
}

/// Of most of what same_value() compares.
uint64_t hash_of(const Instruction& i) {
  constexpr uint64_t prime = 0x9e3779b97f4a7c15;
  uint64_t hash = 0;
  const auto mix = [&](uint64_t x) { hash = (std::rotl(hash, 5) ^ x) * prime; };
  mix(static_cast<uint64_t>(i.op));
  mix(static_cast<uint64_t>(i.dtype));
  mix(static_cast<uint64_t>(i.buffer));
  mix(static_cast<uint64_t>(i.integer));
  mix(std::bit_cast<uint64_t>(i.number));
  for (const int arg : i.args) mix(static_cast<uint64_t>(arg));
  return hash;
}

}  // namespace

bool Lowering::Key::operator<(const Key& other) const {
  if (value != other.value) return value < other.value;
  if (guard != other.guard) return guard < other.guard;
  return std::lexicographical_compare(place.begin(), place.end(), other.place.begin(), other.place.end());
}

Lowering::Lowering(std::vector<Dimension> dims, const Limits& limits, Computed computed)
    : long_row_(limits.long_row), computed_(std::move(computed)) {
  kernel_.dims = std::move(dims);
  for (size_t i = 0; i < kernel_.dims.size(); ++i) {
    const auto& dim = kernel_.dims[i];
    const auto variable = Index::variable(static_cast<int>(i), dim.extent);
    all_ = all_ * dim.extent + variable;
    auto& own = dim.reduced ? reduced_ : kept_;
    own = own * dim.extent + variable;
  }
}

Place Lowering::full_place(const std::vector<int64_t>& sizes) const { return unravel(all_, sizes); }
Place Lowering::row_place(const std::vector<int64_t>& sizes) const { return unravel(kept_, sizes); }
Place Lowering::column_place(const std::vector<int64_t>& sizes) const { return unravel(reduced_, sizes); }

int Lowering::add(Instruction instruction) {
  const uint64_t hash = hash_of(instruction);
  const auto [first, last] = same_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (same_value(kernel_.code[static_cast<size_t>(at->second)], instruction)) return at->second;
  const int number = static_cast<int>(kernel_.code.size());
  same_.emplace(hash, number);
  kernel_.code.push_back(std::move(instruction));
  return number;
}

int Lowering::emit(Op op, ir::DType dtype, std::vector<int> args) {
  return add({.op = op, .dtype = dtype, .args = std::move(args)});
}

int Lowering::constant(ir::DType dtype, double number) {
  if (dtype == ir::DType::boolean) return integer(dtype, number != 0);  // a half is true
  if (!ir::is_floating(dtype)) return integer(dtype, static_cast<int64_t>(number));
  return add({.op = Op::constant, .dtype = in_register(dtype), .number = number});
}

int Lowering::integer(ir::DType dtype, int64_t number) {
  if (ir::is_floating(dtype)) return constant(dtype, static_cast<double>(number));
  return add(
      {.op = Op::constant, .dtype = dtype, .integer = dtype == ir::DType::boolean ? number != 0 : number});
}

int Lowering::iota(const Index& index) {
  if (index.is_constant()) return integer(ir::DType::i64, index.constant());
  return add({.op = Op::iota, .dtype = ir::DType::i64, .index = index});
}

int Lowering::cast(int instruction, ir::DType to) {
  to = in_register(to);
  return dtype(instruction) == to ? instruction : emit(Op::cast, to, {instruction});
}

int Lowering::convert(int instruction, ir::DType to) {
  const int wide = cast(instruction, to);
  if (to == ir::DType::f16) return emit(Op::round_half, ir::DType::f32, {wide});
  if (to == ir::DType::bf16) return emit(Op::round_bf16, ir::DType::f32, {wide});
  return wide;
}

/// Whether it is a number of the half type, whatever the data: a load, or one of several loads.
bool Lowering::fits(int instruction, ir::DType dtype, int depth) const {
  constexpr int deepest = 6;  // what was not looked at is rounded once more, which changes nothing
  const auto& i = kernel_.code[static_cast<size_t>(instruction)];
  const auto all = [&](size_t first) {
    return std::all_of(i.args.begin() + static_cast<int64_t>(first), i.args.end(),
                       [&](int arg) { return fits(arg, dtype, depth + 1); });
  };
  if (depth > deepest) return false;
  switch (i.op) {
    case Op::load:
      return kernel_.buffers[static_cast<size_t>(i.buffer)].dtype == dtype;
    case Op::round_half:
      return dtype == ir::DType::f16;
    case Op::round_bf16:
      return dtype == ir::DType::bf16;
    case Op::constant:
      return i.number == 0 || std::abs(i.number) == 1;
    case Op::select:
      return all(1);
    case Op::neg:
    case Op::abs:
    case Op::maximum:
    case Op::minimum:
    case Op::reduce_max:
    case Op::reduce_min:
      return all(0);
    default:
      return false;
  }
}

int Lowering::as_stored(int instruction, ir::DType dtype) {
  return !ir::is_half(dtype) || fits(instruction, dtype) ? instruction : convert(instruction, dtype);
}

int Lowering::at(const ir::Value& value, const Place& place, ir::DType dtype_wanted) {
  return cast(evaluate(value, place), dtype_wanted);
}

int Lowering::argument(const ir::Node& node, std::string_view name, const Place& place,
                       ir::DType dtype_wanted) {
  if (const auto* value = ir::value_of(node, name)) {
    const auto& sizes = value->type().sizes;
    Place own(place.end() - static_cast<int64_t>(sizes.size()), place.end());
    for (size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] == 1) own[i] = 0;
    return at(*value, own, dtype_wanted);
  }
  const auto* attribute = ir::attribute_of(node, name);
  if (attribute && std::holds_alternative<int64_t>(*attribute))
    return integer(in_register(dtype_wanted), std::get<int64_t>(*attribute));
  const auto number = ir::number_of(node, name);
  if (!number) throw std::logic_error(node.op() + " has no argument " + std::string(name));
  return constant(in_register(dtype_wanted), *number);
}

int Lowering::stored_argument(const ir::Node& node, std::string_view name, const Place& place,
                              ir::DType dtype_wanted) {
  const auto* value = ir::value_of(node, name);
  if (!value) return argument(node, name, place, dtype_wanted);
  const auto own = value->type().dtype;
  return cast(as_stored(argument(node, name, place, in_register(own)), own), dtype_wanted);
}

int Lowering::buffer_of(const ir::Value& value, bool written) {
  const auto [place, fresh] = buffer_numbers_.emplace(&value, static_cast<int>(buffers_.size()));
  if (fresh) {
    buffers_.push_back(&value);
    kernel_.buffers.push_back({value.type().dtype, written});
  }
  kernel_.buffers[static_cast<size_t>(place->second)].written |= written;
  return place->second;
}

int Lowering::load(const ir::Value& value, const Place& place,
                   const std::vector<Instruction::Indirect>& indirect) {
  accesses_.push_back({&value, place, !indirect.empty()});
  return add({.op = Op::load,
              .dtype = in_register(value.type().dtype),
              .buffer = buffer_of(value, false),
              .index = element_at(value, place),
              .indirect = indirect,
              .elements = value.type().span(),
              .guard = guard_});
}

// The table's own strides count, also where it is a view.
int Lowering::gather(const ir::Value& table, const Place& place,
                     const std::vector<Instruction::Indirect>& indirect) {
  return load(table, place, indirect);
}

int Lowering::guarded(int flag, const std::function<int()>& body) {
  const int before = guard_;
  guard_ = before < 0 ? flag : emit(Op::logical_and, ir::DType::boolean, {before, flag});
  const int result = body();
  guard_ = before;
  return result;
}

/// True if the value has one element for each row, and rows have several points.
bool Lowering::over_rows(const ir::Value& input) const {
  return input.type().numel() != kernel_.kept_points() * kernel_.reduced_points();
}

int Lowering::reduce(const ir::Node& node, const ir::Value& value, const Place& place) {
  const bool rows = over_rows(*ir::value_of(node, "self")),
             columns = crossed_by(node, kernel_.dims, long_row_).has_value();
  const auto& sizes = value.type().sizes;
  if (!(place == (rows ? once_place(sizes) : columns ? column_place(sizes) : row_place(sizes))))
    throw std::logic_error("a reduction is needed at another place than where it is computed");
  const auto& reduction = *find_reduction(node.op());
  const auto& input = *ir::value_of(node, "self");
  const auto from = rows ? row_place(input.type().sizes) : full_place(input.type().sizes);
  const auto out = in_register(value.type().dtype);
  const auto reduction_of = [&](ir::DType dtype, std::vector<int> args) {
    return add({.op = reduction.op,
                .dtype = dtype,
                .args = std::move(args),
                .over_rows = rows || columns,
                .by_columns = columns});
  };
  switch (reduction.op) {
    case Op::reduce_argmax:
    case Op::reduce_argmin: {
      // The place among the reduced dimensions, row-major, as the operator counts it.
      const auto dims = dims_reduced_by(node);
      Place reduced;
      std::vector<int64_t> sizes;
      for (const int64_t d : dims) {
        reduced.push_back(from[static_cast<size_t>(d)]);
        sizes.push_back(input.type().sizes[static_cast<size_t>(d)]);
      }
      const int x = as_stored(evaluate(input, from), input.type().dtype);
      return reduction_of(ir::DType::i64, {x, iota(linear(reduced, sizes))});
    }
    case Op::reduce_any:
    case Op::reduce_all: {
      const int x = as_stored(evaluate(input, from), input.type().dtype);
      const int flag =
          dtype(x) == ir::DType::boolean ? x : emit(Op::ne, ir::DType::boolean, {x, integer(dtype(x), 0)});
      return cast(reduction_of(ir::DType::boolean, {flag}), out);
    }
    default:
      return reduction_of(out, {at(input, from, out)});
  }
}

/// What ATen would convert first is: whole numbers of floating ones, and floats of doubles.
int Lowering::scan(const ir::Node& node, const ir::Value& value, const Place& place) {
  const auto& input = *ir::value_of(node, "self");
  if (!(place == full_place(value.type().sizes)))
    throw std::logic_error("a running sum is needed at another place than where it is computed");
  const auto made = *scan_of(node);
  const auto to = value.type().dtype;
  int x = evaluate(input, place);
  if (input.type().dtype != to) x = convert(as_stored(x, input.type().dtype), to);
  return cast(emit(made.op, made.dtype, {cast(x, made.dtype)}), to);
}

int Lowering::evaluate(const ir::Value& value, const Place& place) {
  const auto* node = value.producer();
  // A reduction is over the whole row, whoever asks: a guard of the asking place must not reach its loads.
  if (guard_ >= 0 && node && is_kernel_reduction(*node) && computed_(value)) {
    const int guard = std::exchange(guard_, -1);
    const int result = evaluate(value, place);
    guard_ = guard;
    return result;
  }
  const Key key{&value, place, guard_};
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  int result = -1;
  if (node && view_source(*node))
    result = evaluate(*view_source(*node), map_view(value, place));
  else if (node && computed_(value))
    result = is_kernel_reduction(*node) ? reduce(*node, value, place)
             : scan_of(*node)           ? scan(*node, value, place)
                                        : (*find_lowering(*node))(*this, *node, place);
  else
    result = load(value, place, {});
  known_.emplace(key, result);
  return result;
}

void Lowering::store(const ir::Value& value, const Place& place, int instruction) {
  const auto& type = value.type();
  for (size_t i = 0; i < type.sizes.size(); ++i)
    if (type.strides[i] == 0 && type.sizes[i] > 1)
      throw std::logic_error("%" + std::to_string(value.id()) + " has several elements at one place");
  kernel_.code.push_back({.op = Op::store,
                          .dtype = dtype(instruction),
                          .args = {instruction},
                          .buffer = buffer_of(value, true),
                          .index = element_at(value, place)});
}

void Lowering::add_at(const ir::Value& result, int instruction, const Place& place,
                      const std::vector<Instruction::Indirect>& indirect, int flag) {
  kernel_.code.push_back({.op = Op::store,
                          .dtype = dtype(instruction),
                          .args = {instruction},
                          .buffer = buffer_of(result, true),
                          .index = element_at(result, place),
                          .indirect = indirect,
                          .guard = flag,
                          .adds = true});
}

void Lowering::put_at(const ir::Value& result, int instruction, const Place& place,
                      const std::vector<Instruction::Indirect>& indirect) {
  add_at(result, instruction, place, indirect);
  kernel_.code.back().takes = true;
}

Kernel Lowering::finish() && {
  analyse(kernel_);
  return std::move(kernel_);
}

bool is_pointwise(const ir::Node& node) {
  return node.outputs().size() == 1 && find_lowering(node) != nullptr;
}

bool is_expensive(const ir::Node& node) {
  const auto& result = node.output();
  Lowering alone(space_over(result.type().sizes), {}, [&](const ir::Value& v) { return &v == &result; });
  alone.evaluate(result, alone.full_place(result.type().sizes));
  // What lies at a place that is data is looked for in memory once; and where one of several things is read
  // (a cat), all of their flags are computed for it.
  int alternatives = 0;
  for (const auto& i : alone.code()) {
    if (is_expensive(i.op) || !i.indirect.empty()) return true;
    alternatives += i.op == Op::load && i.guard >= 0;
  }
  return alternatives > 1;
}

bool is_kernel_reduction(const ir::Node& node) {
  const auto* reduction = find_reduction(node.op());
  if (!reduction) return false;
  const auto* input = ir::value_of(node, "self");
  if (!input || input->type().numel() == 0) return false;  // an empty one has rules of its own
  // Over one element it is no reduction; decompositions make it a copy.
  if (node.output().type().numel() == input->type().numel()) return false;
  const auto dtype = node.output().type().dtype;
  // Sums of narrow whole numbers are 64 bits wide by then; complex numbers have no kernels.
  return ir::size_of(dtype) <= 8 && dtype != ir::DType::c64 && input->type().dtype != ir::DType::c64 &&
         input->type().dtype != ir::DType::c128 && dtype != ir::DType::c128;
}

std::vector<std::string> reduction_operators() {
  std::vector<std::string> names;
  for (const auto& r : reductions) names.emplace_back(r.name);
  return names;
}

bool finds_place(const ir::Node& node) {
  const auto* reduction = find_reduction(node.op());
  return reduction && (reduction->op == Op::reduce_argmax || reduction->op == Op::reduce_argmin);
}

int64_t points_of(const ir::Node& node) {
  return is_pointwise(node) ? node.output().type().numel() : ir::value_of(node, "self")->type().numel();
}

std::optional<Space> crossed_by(const ir::Node& node, const Space& space, int64_t long_row) {
  const int64_t rows = kept_points(space), row = points(space) / std::max<int64_t>(rows, 1);
  if (is_pointwise(node) || !is_kernel_reduction(node) || finds_place(node) || rows < 2 || row < 2 ||
      row > long_row || !space.back().reduced || points_of(node) != points(space))
    return std::nullopt;
  // Flags are not kept in memory between parts; and of bytes any() gives bytes, which comes after the flags.
  const auto op = find_reduction(node.op())->op;
  if (op == Op::reduce_any || op == Op::reduce_all || node.output().type().dtype == ir::DType::boolean)
    return std::nullopt;
  return crossed(space, space_over(ir::value_of(node, "self")->type().sizes, dims_reduced_by(node)));
}

std::vector<int64_t> dims_reduced_by(const ir::Node& node) {
  const auto* reduction = find_reduction(node.op());
  return ir::reduced_dims(node, reduction->dims, ir::value_of(node, "self")->type().sizes.size());
}

}  // namespace graft::codegen
