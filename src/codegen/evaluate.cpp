#include "codegen/evaluate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "codegen/totals.h"

namespace graft::codegen {
namespace {

using ir::DType;

/// One value for each lane, or one for all of them.
struct Register {
  std::vector<Real> real;  // of a floating type
  std::vector<Whole> whole;
  void resize(DType dtype, size_t lanes) {
    if (ir::is_floating(dtype))
      real.resize(lanes);
    else
      whole.resize(lanes);
  }
  const Real& real_at(size_t lane) const { return real[real.size() == 1 ? 0 : lane]; }
  const Whole& whole_at(size_t lane) const { return whole[whole.size() == 1 ? 0 : lane]; }
};

/// A reduction over rows while they come; by column where it has them.
struct RowTotals {
  std::vector<RealTotal> real;
  std::vector<WholeTotal> whole;
  std::vector<BestPlace> place;
};

class Evaluator {
 public:
  Evaluator(const Kernel& kernel, const Points& points, Elements& elements)
      : kernel_(kernel),
        points_(points),
        elements_(elements),
        registers_(kernel.code.size()),
        totals_(kernel.code.size()),
        variables_(kernel.dims.size()),
        used_(kernel.code.size()) {
    for (size_t n = 0; n < kernel.code.size(); ++n)
      for (size_t d = 0; d < kernel.dims.size(); ++d)
        if (kernel.code[n].index.uses(static_cast<int>(d))) used_[n] |= uint64_t{1} << d;
    for (size_t d = 0; d < kernel.dims.size(); ++d)
      if (kernel.dims[d].reduced) row_points_ *= points.reduced[d].size();
  }

  Evaluated run() {
    if (kernel_.reduced_points() == 1)
      run_side_by_side();
    else
      run_rows();
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (kernel_.code[n].once) finish(n);
    for (auto& [element, total] : sums_) keep_sum(element, total);
    for (auto& [element, stored] : taken_) made_.stored.push_back(stored);
    return std::move(made_);
  }

 private:
  // --- points

  /// No reduced dimension: rows are points, many at once.
  void run_side_by_side() {
    constexpr size_t at_once = 512;
    const auto rows = static_cast<size_t>(points_.rows);
    for (size_t begin = 0; begin < rows; begin += at_once) {
      lanes_ = std::min(at_once, rows - begin);
      counts_.assign(lanes_, 1);
      thinned_.assign(lanes_, 0);
      for (size_t d = 0; d < variables_.size(); ++d) {
        variables_[d].resize(lanes_);
        for (size_t lane = 0; lane < lanes_; ++lane) place(d, lane, kept(begin + lane, d));
      }
      run_code();
    }
  }

  void run_rows() {
    lanes_ = row_points_;
    std::vector<int64_t> counts(lanes_, 1);
    std::vector<uint64_t> thinned(lanes_, 0);
    size_t each = lanes_;  // lanes between steps of a dimension, the last one's the least
    for (size_t d = 0; d < variables_.size(); ++d) {
      variables_[d].resize(lanes_);
      if (!kernel_.dims[d].reduced) continue;
      const auto& positions = points_.reduced[d];
      each /= positions.size();
      for (size_t lane = 0; lane < lanes_; ++lane) {
        const auto& position = positions[lane / each % positions.size()];
        variables_[d][lane] = position.at;
        counts[lane] *= position.count;
        if (position.count > 1) thinned[lane] |= uint64_t{1} << d;
      }
    }
    for (size_t row = 0; row < static_cast<size_t>(points_.rows); ++row) {
      counts_ = counts;
      thinned_ = thinned;
      row_count_ = 1;
      for (size_t d = 0; d < variables_.size(); ++d) {
        if (kernel_.dims[d].reduced) continue;
        const auto& position = kept(row, d);
        std::fill(variables_[d].begin(), variables_[d].end(), position.at);
        row_count_ *= position.count;
        if (position.count > 1)
          for (auto& lane : thinned_) lane |= uint64_t{1} << d;
      }
      run_code();
    }
  }

  const Position& kept(size_t row, size_t dim) const { return points_.kept[row * variables_.size() + dim]; }

  void place(size_t dim, size_t lane, const Position& position) {
    variables_[dim][lane] = position.at;
    counts_[lane] *= position.count;
    if (position.count > 1) thinned_[lane] |= uint64_t{1} << dim;
  }

  bool side_by_side() const { return kernel_.reduced_points() == 1; }

  size_t lanes_of(const Instruction& i) const {
    if (i.op == Op::constant) return 1;
    if (i.once) return i.column && !side_by_side() ? lanes_ : 1;
    return side_by_side() || i.full ? lanes_ : 1;
  }

  // --- instructions

  void run_code() {
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (i.over_rows)
        add_row(n);
      else if (!i.once)
        compute(n);
    }
  }

  const Instruction& code(int n) const { return kernel_.code[static_cast<size_t>(n)]; }
  const Register& reg(int n) const { return registers_[static_cast<size_t>(n)]; }

  void compute(size_t n) {
    const auto& i = kernel_.code[n];
    const size_t lanes = lanes_of(i);
    auto& to = registers_[n];
    if (i.op == Op::store) {
      store(i, lanes);
      return;
    }
    if (is_reduction(i.op)) {
      reduce(i, to);
      return;
    }
    to.resize(i.dtype, lanes);
    if (is_scan(i.op)) {
      scan(i, lanes, to);
      return;
    }
    switch (i.op) {
      case Op::constant:
        if (ir::is_floating(i.dtype))
          to.real[0] = Real::exactly(nearest(i.dtype, i.number));
        else
          to.whole[0] = Whole::exactly(wrapped(i.dtype, i.integer));
        break;
      case Op::iota:
        indices(i.index, lanes, places_);
        for (size_t lane = 0; lane < lanes; ++lane) to.whole[lane] = Whole::exactly(places_[lane]);
        break;
      case Op::load:
        load(i, used_[n], lanes, to);
        break;
      case Op::cast:
        cast(i, lanes, to);
        break;
      case Op::round_half:
      case Op::round_bf16: {
        const auto dtype = i.op == Op::round_half ? DType::f16 : DType::bf16;
        for (size_t lane = 0; lane < lanes; ++lane)
          to.real[lane] = rounded(dtype, reg(i.args[0]).real_at(lane));
        break;
      }
      case Op::select:
        select(i, lanes, to);
        break;
      case Op::fma:
        for (size_t lane = 0; lane < lanes; ++lane)
          to.real[lane] = fused(i.dtype, reg(i.args[0]).real_at(lane), reg(i.args[1]).real_at(lane),
                                reg(i.args[2]).real_at(lane));
        break;
      default:
        arithmetic(i, lanes, to);
    }
  }

  void arithmetic(const Instruction& i, size_t lanes, Register& to) {
    const auto from = code(i.args[0]).dtype;
    const auto& a = reg(i.args[0]);
    const auto& b = reg(i.args.back());
    const bool unary = i.args.size() == 1;
    const auto each = [&](auto& results, const auto& f) {
      for (size_t lane = 0; lane < lanes; ++lane) results[lane] = f(lane);
    };
    if (!ir::is_floating(from)) {
      if (const auto f = unary ? whole_unary(i.op) : nullptr)
        return each(to.whole, [&](size_t lane) { return f(from, a.whole_at(lane)); });
      if (const auto f = unary ? nullptr : whole_binary(i.op))
        return each(to.whole, [&](size_t lane) { return f(from, a.whole_at(lane), b.whole_at(lane)); });
    } else if (unary) {
      if (const auto f = real_unary(i.op))
        return each(to.real, [&](size_t lane) { return f(from, a.real_at(lane)); });
      if (const auto f = real_test(i.op))
        return each(to.whole, [&](size_t lane) { return f(a.real_at(lane)); });
    } else {
      if (const auto f = real_binary(i.op))
        return each(to.real, [&](size_t lane) { return f(from, a.real_at(lane), b.real_at(lane)); });
      if (const auto f = real_comparison(i.op))
        return each(to.whole, [&](size_t lane) { return f(a.real_at(lane), b.real_at(lane)); });
    }
    if (ir::is_floating(i.dtype))
      each(to.real, [](size_t) { return Real::anything(); });
    else
      each(to.whole, [&](size_t) { return Whole::anything(i.dtype); });
  }

  static void convert(DType from, const Register& x, size_t lane, DType dtype, Real& real, Whole& whole) {
    if (ir::is_floating(dtype))
      real = ir::is_floating(from) ? rounded(dtype, x.real_at(lane)) : to_real(dtype, x.whole_at(lane));
    else
      whole = ir::is_floating(from) ? to_whole(dtype, x.real_at(lane)) : to_whole(dtype, x.whole_at(lane));
  }

  void cast(const Instruction& i, size_t lanes, Register& to) {
    Real real;
    Whole whole;
    for (size_t lane = 0; lane < lanes; ++lane) {
      convert(code(i.args[0]).dtype, reg(i.args[0]), lane, i.dtype, real, whole);
      if (ir::is_floating(i.dtype))
        to.real[lane] = real;
      else
        to.whole[lane] = whole;
    }
  }

  void select(const Instruction& i, size_t lanes, Register& to) {
    const auto& a = reg(i.args[1]);
    const auto& b = reg(i.args[2]);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const auto flag = reg(i.args[0]).whole_at(lane);
      const bool both = !flag.is_point(), first = flag.low == 1;
      if (ir::is_floating(i.dtype))
        to.real[lane] = both    ? hull(a.real_at(lane), b.real_at(lane))
                        : first ? a.real_at(lane)
                                : b.real_at(lane);
      else
        to.whole[lane] = both    ? hull(a.whole_at(lane), b.whole_at(lane))
                         : first ? a.whole_at(lane)
                                 : b.whole_at(lane);
    }
  }

  // --- memory

  void indices(const Index& index, size_t lanes, std::vector<int64_t>& to) const {
    to.assign(lanes, index.constant());
    std::vector<int64_t> inside;
    for (const auto& [coefficient, atom] : index.terms()) {
      if (atom->kind == Atom::Kind::variable) {
        const auto& variable = variables_[static_cast<size_t>(atom->variable)];
        for (size_t lane = 0; lane < lanes; ++lane) to[lane] += coefficient * variable[lane];
        continue;
      }
      indices(atom->inside, lanes, inside);
      for (size_t lane = 0; lane < lanes; ++lane) {
        const int64_t rest = (inside[lane] % atom->divisor + atom->divisor) % atom->divisor;
        to[lane] += coefficient *
                    (atom->kind == Atom::Kind::remainder ? rest : (inside[lane] - rest) / atom->divisor);
      }
    }
  }

  Whole guard_at(const Instruction& i, size_t lane) const {
    return i.guard >= 0 ? reg(i.guard).whole_at(lane) : Whole::exactly(1);
  }

  /// The element at a place part of which is data; nothing where that is not known.
  std::optional<int64_t> element_at(const Instruction& i, size_t lane) {
    int64_t element = places_[lane];
    for (const auto& x : i.indirect) {
      const auto value = reg(x.value).whole_at(lane);
      if (!value.is_point()) return {};
      const int64_t at = x.wraps && value.low < 0 ? value.low + x.size : value.low;
      if (at < 0 || at >= x.size) {
        made_.in_range = false;
        return {};
      }
      element += at * x.stride;
    }
    if (elements_.has(i.buffer, element)) return element;
    made_.in_range = false;
    return {};
  }

  /// What a wrong guard would read must not be zero by chance.
  void fill(const Instruction& i, size_t lane) {
    if (!i.indirect.empty() || !elements_.has(i.buffer, places_[lane])) return;
    if (ir::is_floating(i.dtype))
      elements_.number(i.buffer, places_[lane]);
    else
      elements_.integer(i.buffer, places_[lane]);
  }

  void load(const Instruction& i, uint64_t used, size_t lanes, Register& to) {
    indices(i.index, lanes, places_);
    const bool floating = ir::is_floating(i.dtype);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const auto guard = guard_at(i, lane);
      Real real = guard.low == 1 ? Real{} : Real::anything();
      Whole whole = guard.low == 1 ? Whole{} : Whole::anything(i.dtype);
      if (thinned_[lane] & used) {
        // zero
      } else if (guard.low == 0) {
        fill(i, lane);
      } else {
        const auto element = element_at(i, lane);
        if (floating)
          real = element ? Real::exactly(elements_.number(i.buffer, *element)) : Real::anything();
        else
          whole = element ? Whole::exactly(elements_.integer(i.buffer, *element)) : Whole::anything(i.dtype);
      }
      if (floating)
        to.real[lane] = real;
      else
        to.whole[lane] = whole;
    }
  }

  void store(const Instruction& i, size_t lanes) {
    indices(i.index, lanes, places_);
    if (i.adds) {
      add_to_elements(i, lanes);
      return;
    }
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    for (size_t lane = 0; lane < lanes; ++lane) {
      Stored stored{i.buffer, places_[lane], {}, {}};
      convert(code(i.args[0]).dtype, reg(i.args[0]), lane, dtype, stored.real, stored.whole);
      made_.stored.push_back(stored);
    }
  }

  struct ElementSum {
    int buffer;
    RealTotal real;
    WholeTotal whole;
  };

  void add_to_elements(const Instruction& i, size_t lanes) {
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    const bool floating = ir::is_floating(dtype);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const auto guard = guard_at(i, lane);
      if (guard.high == 0) continue;
      const auto element = element_at(i, lane);
      if (!element || guard.low == 0) {  // where it goes is not known
        made_.in_range = false;
        continue;
      }
      if (i.takes) {
        Stored stored{i.buffer, *element, {}, {}};
        convert(code(i.args[0]).dtype, reg(i.args[0]), lane, dtype, stored.real, stored.whole);
        taken_.insert_or_assign(*element, stored);
        continue;
      }
      auto found = sums_.find(*element);
      if (found == sums_.end()) {
        found = sums_
                    .emplace(*element,
                             ElementSum{
                                 i.buffer, {Op::reduce_sum, dtype, points_.deepest}, {Op::reduce_sum, dtype}})
                    .first;
        if (floating)
          found->second.real.add(Real::exactly(elements_.number(i.buffer, *element)));
        else
          found->second.whole.add(Whole::exactly(elements_.integer(i.buffer, *element)));
      }
      if (floating)
        found->second.real.add(reg(i.args[0]).real_at(lane));
      else
        found->second.whole.add(reg(i.args[0]).whole_at(lane));
    }
  }

  void keep_sum(int64_t element, const ElementSum& sum) {
    const auto dtype = kernel_.buffers[static_cast<size_t>(sum.buffer)].dtype;
    Stored stored{sum.buffer, element, {}, {}};
    if (ir::is_floating(dtype))
      stored.real = rounded(dtype, sum.real.result());
    else
      stored.whole = sum.whole.result();
    made_.stored.push_back(stored);
  }

  // --- reductions

  /// The lanes of a row come in the order of its points. Where there is one point it is all of its row.
  void scan(const Instruction& i, size_t lanes, Register& to) {
    const auto op = i.op == Op::scan_sum ? Op::reduce_sum : Op::reduce_prod;
    const auto& x = reg(i.args[0]);
    constexpr double any_depth = 1e18;
    RealTotal real(op, i.dtype, any_depth);
    WholeTotal whole(op, i.dtype);
    for (size_t lane = 0; lane < lanes; ++lane) {
      if (side_by_side()) real = RealTotal(op, i.dtype, any_depth), whole = WholeTotal(op, i.dtype);
      if (ir::is_floating(i.dtype)) {
        real.add(x.real_at(lane));
        to.real[lane] = real.result();
      } else {
        whole.add(x.whole_at(lane));
        to.whole[lane] = whole.result();
      }
    }
  }

  void reduce(const Instruction& i, Register& to) {
    const auto from = code(i.args[0]).dtype;
    const auto& x = reg(i.args[0]);
    const bool places = i.args.size() == 2, floating = ir::is_floating(from);
    const size_t results = side_by_side() ? lanes_ : 1, terms = side_by_side() ? 1 : lanes_;
    to.resize(places ? DType::i64 : from, results);
    for (size_t result = 0; result < results; ++result) {
      RealTotal real(i.op, from, points_.deepest);
      WholeTotal whole(i.op, from);
      BestPlace best(i.op);
      for (size_t term = 0; term < terms; ++term) {
        const size_t lane = result + term;
        if (places && floating)
          best.add(x.real_at(lane), reg(i.args[1]).whole_at(lane));
        else if (places)
          best.add(x.whole_at(lane), reg(i.args[1]).whole_at(lane));
        else if (floating)
          real.add(x.real_at(lane), side_by_side() ? 1 : counts_[lane]);
        else
          whole.add(x.whole_at(lane), side_by_side() ? 1 : counts_[lane]);
      }
      if (places)
        to.whole[result] = best.result();
      else if (floating)
        to.real[result] = real.result();
      else
        to.whole[result] = whole.result();
    }
  }

  /// What this row (or these points) gives to a reduction over rows.
  void add_row(size_t n) {
    const auto& i = kernel_.code[n];
    const auto from = code(i.args[0]).dtype;
    const auto& x = reg(i.args[0]);
    auto& totals = totals_[n];
    const size_t columns = i.column && !side_by_side() ? lanes_ : 1;
    if (totals.place.empty()) {
      totals.real.assign(columns, RealTotal(i.op, from, points_.deepest));
      totals.whole.assign(columns, WholeTotal(i.op, from));
      totals.place.assign(columns, BestPlace(i.op));
    }
    const size_t lanes = side_by_side() ? lanes_ : columns;
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t column = side_by_side() ? 0 : lane;
      const int64_t count = side_by_side() ? counts_[lane] : row_count_;
      if (i.args.size() == 2) {
        const auto& place = reg(i.args[1]).whole_at(lane);
        if (ir::is_floating(from))
          totals.place[column].add(x.real_at(lane), place);
        else
          totals.place[column].add(x.whole_at(lane), place);
      } else if (ir::is_floating(from)) {
        totals.real[column].add(x.real_at(lane), count);
      } else {
        totals.whole[column].add(x.whole_at(lane), count);
      }
    }
  }

  /// What is there when all rows are done.
  void finish(size_t n) {
    const auto& i = kernel_.code[n];
    if (!i.over_rows) {
      compute(n);
      return;
    }
    const auto from = code(i.args[0]).dtype;
    auto& totals = totals_[n];
    auto& to = registers_[n];
    to.resize(i.args.size() == 2 ? DType::i64 : from, totals.place.size());
    for (size_t column = 0; column < totals.place.size(); ++column)
      if (i.args.size() == 2)
        to.whole[column] = totals.place[column].result();
      else if (ir::is_floating(from))
        to.real[column] = totals.real[column].result();
      else
        to.whole[column] = totals.whole[column].result();
  }

  const Kernel& kernel_;
  const Points& points_;
  Elements& elements_;
  std::vector<Register> registers_;
  std::vector<RowTotals> totals_;
  std::map<int64_t, ElementSum> sums_;  // of a kernel that scatters, by element of its one buffer
  std::map<int64_t, Stored> taken_;     // of one whose elements take a place

  size_t row_points_ = 1, lanes_ = 0;
  int64_t row_count_ = 1;
  std::vector<std::vector<int64_t>> variables_;  // by dimension and lane
  std::vector<int64_t> counts_;                  // by lane: how many points it stands for
  std::vector<uint64_t> thinned_;                // by lane: dimensions whose position stands for many
  std::vector<uint64_t> used_;                   // by instruction: dimensions in its index
  std::vector<int64_t> places_;
  Evaluated made_;
};

}  // namespace

Evaluated evaluate(const Kernel& kernel, const Points& points, Elements& elements) {
  return Evaluator(kernel, points, elements).run();
}

}  // namespace graft::codegen
