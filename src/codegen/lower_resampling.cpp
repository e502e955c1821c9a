// Images and rows made larger, as instructions: padding by what lies inside, and upsampling. Where an element
// comes from follows from its own place alone.
#include <algorithm>

#include "codegen/lower_math.h"
#include "ir/upsampling.h"

namespace graft::codegen {
namespace {

using ir::DType;
using ir::Node;
using ir::Value;

const Value& self(const Node& n) { return *ir::value_of(n, "self"); }
int64_t size(const Value& v, size_t dim) { return v.type().sizes[dim]; }
int64_t stride(const Value& v, size_t dim) { return v.type().strides[dim]; }

// --- padding

/// From -pad to size - 1 + pad, into 0 to size - 1.
using Fold = int (*)(const Math&, int place, int last);
int reflected(const Math& m, int place, int last) {
  return m.sub(last, m.of(Op::abs, m.sub(last, m.of(Op::abs, place))));
}
int nearest_inside(const Math& m, int place, int last) {
  return m.min(m.max(place, m.l.integer(DType::i64, 0)), last);
}

struct Padding {
  int64_t before, after;
};
/// The last dimensions have paddings, the innermost first.
std::vector<Padding> paddings_of(const Node& n) {
  const auto pads = *ir::ints_of(n, "padding");
  std::vector<Padding> found;
  for (size_t i = 0; i + 1 < pads.size(); i += 2) found.push_back({pads[i], pads[i + 1]});
  return found;
}

/// What stands beside a row: one element of it for some places.
struct Beside {
  Op op;  // of the place and the number
  int64_t place, from;
};
std::vector<Beside> reflected_sides(const Padding& pad, int64_t size) {
  std::vector<Beside> found;
  for (int64_t i = 1; i <= pad.before; ++i) found.push_back({Op::eq, -i, i});
  for (int64_t i = 1; i <= pad.after; ++i) found.push_back({Op::eq, size - 1 + i, size - 1 - i});
  return found;
}
std::vector<Beside> nearest_sides(const Padding& pad, int64_t size) {
  std::vector<Beside> found;
  if (pad.before > 0) found.push_back({Op::lt, 0, 0});
  if (pad.after > 0) found.push_back({Op::ge, size, size - 1});
  return found;
}

/// Which row is arithmetic, once a row. Within it, what lies inside is read as it lies; gathering each
/// element would take longer than ATen's copies.
Lower padded_by(Fold fold, std::vector<Beside> (*sides)(const Padding&, int64_t)) {
  return [=](Lowering& l, const Node& n, const Place& p) {
    const Math m{l, DType::i64};
    const auto& x = self(n);
    const auto paddings = paddings_of(n);
    auto place = p;
    std::vector<Instruction::Indirect> row;
    for (size_t i = 0; i < paddings.size(); ++i) {
      const size_t dim = p.size() - 1 - i;
      place[dim] = p[dim] - paddings[i].before;
      if (i == 0 || (paddings[i].before == 0 && paddings[i].after == 0)) continue;
      const int from = fold(m, l.iota(place[dim]), l.integer(DType::i64, size(x, dim) - 1));
      row.push_back({from, stride(x, dim), size(x, dim), false});
      place[dim] = 0;
    }
    const auto along = place.back();
    const int64_t length = x.type().sizes.back();
    const auto flag = [&](Op op, int64_t number) {
      return l.emit(op, DType::boolean, {l.iota(along), l.integer(DType::i64, number)});
    };
    const auto beside = sides(paddings[0], length);
    if (beside.empty()) return l.gather(x, place, row);
    int made =
        l.guarded(m.both(flag(Op::ge, 0), flag(Op::lt, length)), [&] { return l.gather(x, place, row); });
    for (const auto& side : beside) {
      place.back() = side.from;
      made = l.emit(Op::select, out(n), {flag(side.op, side.place), l.gather(x, place, row), made});
    }
    return made;
  };
}

/// A reflected row is looked at element by element: more of them are faster copied.
constexpr int64_t most_reflected = 8;
bool pads_outwards(const Node& n) {
  const auto paddings = paddings_of(n);
  return std::all_of(paddings.begin(), paddings.end(),
                     [](const auto& pad) { return pad.before >= 0 && pad.after >= 0; }) &&
         self(n).type().numel() > 0;
}
bool reflects_little(const Node& n) {
  return pads_outwards(n) && paddings_of(n)[0].before + paddings_of(n)[0].after <= most_reflected;
}

// --- upsampling

/// Each element several times.
int nearest_element(Lowering& l, const Node& n, const Place& p) {
  auto place = p;
  for (size_t dim = 2; dim < p.size(); ++dim)
    place[dim] = p[dim] / (size(n.output(), dim) / size(self(n), dim));
  return l.evaluate(self(n), place);
}

std::function<bool(const Node&)> nearest_applies(bool exact) {
  return [exact](const Node& n) {
    const auto& x = self(n);
    const size_t rank = x.type().sizes.size();
    if (!floats(n) || rank < 3) return false;
    for (size_t dim = 2; dim < rank; ++dim) {
      const int64_t from = size(x, dim), to = size(n.output(), dim);
      // Other factors make a quotient for each element, which takes longer than ATen's table.
      if (to % from != 0 || !ir::takes_quotients(n, exact, dim, from, to)) return false;
    }
    return true;
  };
}

}  // namespace

void add_resampling(LowerTable& table) {
  for (const char* dims : {"1d", "2d", "3d"}) {
    const std::string d = dims;
    table["aten::reflection_pad" + d] = {padded_by(reflected, reflected_sides), reflects_little};
    table["aten::replication_pad" + d] = {padded_by(nearest_inside, nearest_sides), pads_outwards};
    table["aten::upsample_nearest" + d] = {nearest_element, nearest_applies(false)};
    table["aten::_upsample_nearest_exact" + d] = {nearest_element, nearest_applies(true)};
  }
}

bool reads_by_place(const Node& node) {
  return (node.op().starts_with("aten::reflection_pad") || node.op().starts_with("aten::replication_pad")) &&
         !node.op().ends_with("_backward");
}

}  // namespace graft::codegen
