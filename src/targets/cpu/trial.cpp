#include "targets/cpu/trial.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "codegen/evaluate.h"
#include "targets/cpu/trial_memory.h"

namespace graft::cpu {
namespace {

using codegen::Kernel;
using codegen::Op;
using codegen::Position;

// Nanoseconds, about: evaluation in one round and in all, and at most for a single row; machine code the
// same.
constexpr double round_time = 40'000, trial_time = 160'000, longest_row = 700'000, longest_task = 700'000;
constexpr double least_round = 4'000;
constexpr int most_rounds = 32;
// To map a page that is touched for the first time.
constexpr double page_time = 1'000;
constexpr int64_t page = 4096;

/// Numbers as usual, whatever the caller's threads have set: denormals count, the nearest is taken.
class UsualArithmetic {
 public:
  UsualArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualArithmetic() { std::fesetenv(&before_); }
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

std::vector<Position> all_positions(int64_t extent) {
  std::vector<Position> made(static_cast<size_t>(extent));
  for (size_t i = 0; i < made.size(); ++i) made[i].at = static_cast<int64_t>(i);
  return made;
}

/// The first, the last and one in the middle, and one for all the rest.
std::vector<Position> thinned(int64_t extent, int64_t first, int64_t last) {
  if (extent <= first + last + 2) return all_positions(extent);
  std::vector<Position> made = all_positions(first);
  made.push_back({first, extent - first - last - 1});
  made.push_back({first + (extent - last - first) / 2, 1});
  for (int64_t at = extent - last; at < extent; ++at) made.push_back({at, 1});
  return made;
}

/// Of one instruction at one point: evaluated, and as machine code.
struct Times {
  double evaluated, compiled;
};
Times times_of(const codegen::Instruction& i) {
  switch (i.op) {
    case Op::constant:
      return {0, 0};
    case Op::load:
      return {25, i.indirect.empty() ? 0.4 : 2};
    case Op::store:
      return i.adds ? Times{200, 4} : Times{15, 0.4};
    case Op::fma:
    case Op::round_half:
    case Op::round_bf16:
      return {30, 0.4};
    case Op::reduce_argmax:
    case Op::reduce_argmin:
      return {40, 1};
    default:
      return codegen::is_expensive(i.op) ? Times{80, i.dtype == ir::DType::f64 ? 20.0 : 2.0} : Times{8, 0.3};
  }
}

/// What is tried: which tasks, and which points of them.
class Sampler {
 public:
  Sampler(const Kernel& kernel, const Plan& plan) : kernel_(kernel), plan_(plan) {
    points_.reduced.resize(kernel.dims.size());
    for (size_t d = 0; d < kernel.dims.size(); ++d)
      if (kernel.dims[d].reduced) points_.reduced[d] = all_positions(kernel.dims[d].extent);
    points_.deepest = deepest();
    for (const auto& i : kernel.code) (i.full ? in_row_ : once_per_row_) += times_of(i).evaluated;
  }

  /// Why it is not tried.
  std::string refusal() {
    if (plan_.tasks == 0 || kernel_.reduced_points() == 0) return "it has no points";
    if (reads_what_it_writes()) return "it reads what it writes";
    if (time_of_task() > longest_task) return "its tasks are long";
    if (kernel_.dims.size() > 60) return "it has many dimensions";
    if (time_of_row() > round_time && !thin_reduced() && time_of_row() > longest_row)
      return "its rows are long";
    if (kernel_.reduces_rows() && !take_all_rows()) return "it reduces many rows";
    return "";
  }

  /// The tasks of a round; their points are in points().
  std::vector<int64_t> tasks(int round) {
    if (kernel_.reduces_rows()) return {0};
    const int64_t last = plan_.tasks - 1;
    const int64_t candidates[] = {last, 0, plan_.tasks / 2, std::min<int64_t>(1, last),
                                  std::max<int64_t>(last - 1, 0)};
    std::vector<int64_t> chosen;
    points_.rows = 0;
    points_.kept.clear();
    for (int k = 0; k < 5; ++k) {
      const int64_t task = candidates[(round + k) % 5];
      if (std::find(chosen.begin(), chosen.end(), task) != chosen.end()) continue;
      const double time = time_of_points() + static_cast<double>(chosen.size()) * time_of_task();
      if (!chosen.empty() && time > round_time / 2) break;
      chosen.push_back(task);
      add_rows_of(task);
    }
    return chosen;
  }

  const codegen::Points& points() const { return points_; }
  /// To evaluate them.
  double time_of_points() const { return static_cast<double>(points_.rows) * time_of_row(); }
  /// Of machine code, and of the pages that it touches.
  double time_of_task() const {
    double time = 0;
    const double rows = kernel_.reduces_rows()                 ? static_cast<double>(kernel_.kept_points())
                        : plan_.vector_dim >= 0 && !plan_.rows ? static_cast<double>(plan_.block)
                                                               : 1;
    const double row = static_cast<double>(kernel_.reduced_points());
    for (const auto& i : kernel_.code) {
      time += times_of(i).compiled * rows * (i.full ? row * (i.phase + 1) : 1);
      if (i.buffer >= 0) time += pages_of_task(i) * page_time;
    }
    return time;
  }
  /// That one result may depend on.
  int64_t points_together() const {
    return (kernel_.reduces_rows() ? points_.rows : 1) * static_cast<int64_t>(points_in_row());
  }

 private:
  bool reads_what_it_writes() const {
    std::set<int> read, written;
    for (const auto& i : kernel_.code) {
      if (i.op == Op::load) read.insert(i.buffer);
      if (i.op == Op::store) written.insert(i.buffer);
    }
    return std::any_of(written.begin(), written.end(), [&](int buffer) { return read.contains(buffer); });
  }

  double pages_of_task(const codegen::Instruction& i) const {
    double reach = 1, points = 1;
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      const auto dim = static_cast<int>(d);
      const bool walked = kernel_.dims[d].reduced || kernel_.reduces_rows();
      const int64_t extent = walked ? kernel_.dims[d].extent : dim == plan_.vector_dim ? plan_.block : 1;
      if (!i.index.uses(dim)) continue;
      reach += static_cast<double>(std::abs(i.index.coefficient(dim)) * (extent - 1));
      points *= static_cast<double>(extent);
    }
    if (!i.index.is_affine()) reach = static_cast<double>(i.index.max() - i.index.min());
    for (const auto& x : i.indirect) reach += static_cast<double>(std::abs(x.stride) * (x.size - 1));
    const auto bytes = static_cast<double>(ir::size_of(kernel_.buffers[static_cast<size_t>(i.buffer)].dtype));
    return 1 + std::min(points, reach * bytes / page);
  }

  double points_in_row() const {
    double points = 1;
    for (size_t d = 0; d < kernel_.dims.size(); ++d)
      if (kernel_.dims[d].reduced) points *= static_cast<double>(points_.reduced[d].size());
    return points;
  }
  double time_of_row() const { return points_in_row() * in_row_ + once_per_row_; }

  bool thin_reduced() {
    bool any = false;
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      const auto& dim = kernel_.dims[d];
      if (!dim.reduced || !codegen::can_be_thinned(kernel_, static_cast<int>(d))) continue;
      const bool vector = static_cast<int>(d) == plan_.vector_dim;
      points_.reduced[d] =
          vector ? thinned(dim.extent, plan_.width + 2, dim.extent % plan_.width + plan_.width + 1)
                 : thinned(dim.extent, 2, 2);
      any |= static_cast<int64_t>(points_.reduced[d].size()) < dim.extent;
    }
    return any && time_of_row() <= longest_row;
  }

  /// For a reduction over rows; false if there are too many.
  bool take_all_rows() {
    for (const int64_t ends : {int64_t{1} << 40, int64_t{4}, int64_t{1}}) {
      std::vector<std::vector<Position>> positions(kernel_.dims.size(), std::vector<Position>(1));
      double rows = 1;
      for (size_t d = 0; d < kernel_.dims.size(); ++d) {
        const auto& dim = kernel_.dims[d];
        if (dim.reduced) continue;
        const bool thin = dim.extent > 2 * ends + 2 && codegen::can_be_thinned(kernel_, static_cast<int>(d));
        rows *= static_cast<double>(thin ? 2 * ends + 2 : dim.extent);
        if (rows * time_of_row() > longest_row) break;
        positions[d] = thin ? thinned(dim.extent, ends, ends) : all_positions(dim.extent);
      }
      if (rows * time_of_row() > longest_row) continue;
      points_.rows = static_cast<int64_t>(rows);
      for (int64_t row = 0; row < points_.rows; ++row) {
        int64_t rest = row;
        for (const auto& each : positions) {
          points_.kept.push_back(each[static_cast<size_t>(rest) % each.size()]);
          rest /= static_cast<int64_t>(each.size());
        }
      }
      return true;
    }
    return false;
  }

  /// The rows of a task, or of a long one its first and last.
  void add_rows_of(int64_t task) {
    int64_t block = 0, rest = task;
    const bool kept_vector = plan_.vector_dim >= 0 && !plan_.rows;
    if (kept_vector) {
      const int64_t inner = plan_.across ? plan_.tasks / plan_.blocks : plan_.blocks;
      block = plan_.across ? rest / inner : rest % inner;
      rest = plan_.across ? rest % inner : rest / inner;
    }
    std::vector<Position> row(kernel_.dims.size());
    for (size_t d = kernel_.dims.size(); d-- > 0;) {
      if (kernel_.dims[d].reduced || static_cast<int>(d) == plan_.vector_dim) continue;
      row[d].at = rest % kernel_.dims[d].extent;
      rest /= kernel_.dims[d].extent;
    }
    const auto add = [&] {
      points_.kept.insert(points_.kept.end(), row.begin(), row.end());
      ++points_.rows;
    };
    if (!kept_vector) {
      add();
      return;
    }
    const auto vector = static_cast<size_t>(plan_.vector_dim);
    const int64_t begin = block * plan_.block;
    const int64_t end = std::min(begin + plan_.block, kernel_.dims[vector].extent);
    // Pieces of the tail are of all smaller widths; before them a whole vector.
    const auto fit = static_cast<int64_t>(std::min(round_time / time_of_row(), 1e6));
    const int64_t last = std::clamp<int64_t>(fit / 2, 3, end % plan_.width + plan_.width);
    const int64_t first = std::clamp<int64_t>(fit / 4, 1, plan_.width + 2);
    for (int64_t at = begin; at < end; ++at) {
      if (at == begin + first) at = std::max(at, end - last);
      row[vector].at = at;
      add();
    }
  }

  /// Steps of a reduction that one term goes through: along the loop, across lanes, across parts.
  double deepest() const {
    int64_t loop = kernel_.reduced_points();
    if (plan_.rows) {
      const int64_t extent = kernel_.dims[static_cast<size_t>(plan_.vector_dim)].extent;
      loop = loop / extent * (extent / plan_.width + 8);
    }
    return static_cast<double>(loop + plan_.parts + (kernel_.reduces_rows() ? plan_.part : 0) + 32);
  }

  const Kernel& kernel_;
  const Plan& plan_;
  double in_row_ = 0, once_per_row_ = 0;  // to evaluate a point, and a row beside its points
  codegen::Points points_;
};

/// All stages of these tasks, each part.
void run_tasks(const Kernel& kernel, const Plan& plan, KernelFunction function, void* const* buffers,
               const std::vector<int64_t>& tasks, void* partials) {
  int32_t error = 0;  // where nothing is filled in, an index may well be outside
  const bool parts_first = plan.rows || kernel.reduces_rows();
  for (int stage = 0; stage < plan.stages; ++stage)
    for (const int64_t task : tasks)
      for (int64_t part = 0; part < (stage < plan.parted_stages ? plan.parts : 1); ++part) {
        const int64_t number = stage >= plan.parted_stages ? task
                               : parts_first               ? task * plan.parts + part
                                                           : part * plan.tasks + task;
        function(buffers, number, number + 1, &error, partials, stage);
      }
}

std::string text_of(const codegen::Stored& want, bool floating) {
  std::ostringstream text;
  text.precision(17);
  if (!floating) {
    text << want.whole.low;
    if (!want.whole.is_point()) text << " to " << want.whole.high;
    return text.str();
  }
  if (want.real.has_numbers()) text << want.real.low;
  if (want.real.low < want.real.high) text << " to " << want.real.high;
  if (want.real.nan) text << (want.real.has_numbers() ? " or nan" : "nan");
  return text.str();
}

/// The first result that is wrong.
std::string judge(const Kernel& kernel, const std::vector<codegen::Stored>& expected,
                  const TrialMemory& memory) {
  for (const auto& want : expected) {
    const bool floating = ir::is_floating(kernel.buffers[static_cast<size_t>(want.buffer)].dtype);
    const double number = floating ? memory.stored_number(want.buffer, want.element) : 0;
    const int64_t integer = floating ? 0 : memory.stored_integer(want.buffer, want.element);
    if (floating ? want.real.allows(number) : want.whole.allows(integer)) continue;
    std::ostringstream text;
    text.precision(17);
    text << "element " << want.element << " of b" << want.buffer << " is ";
    (floating ? text << number : text << integer) << ", expected " << text_of(want, floating);
    return text.str();
  }
  if (const int buffer = memory.overrun(); buffer >= 0)
    return "it writes outside of b" + std::to_string(buffer);
  return "";
}

}  // namespace

Trial try_kernel(const Kernel& kernel, const Plan& plan, KernelFunction function) {
  Trial trial;
  Sampler sampler(kernel, plan);
  trial.left_out = sampler.refusal();
  if (!trial.left_out.empty()) return trial;
  TrialMemory memory(kernel, sampler.points_together());
  const LazyMemory partials(static_cast<size_t>(std::max<int64_t>(plan.partial_words, 1)) * 8);
  if (!memory.available() || !partials.data()) {
    trial.left_out = "there is no memory of that size";
    return trial;
  }
  const UsualArithmetic usual;
  double time = 0;
  int64_t largest_index = int64_t{1} << 62;
  for (int round = 0; round < most_rounds && time < trial_time; ++round) {
    const auto tasks = sampler.tasks(round);
    time +=
        least_round + sampler.time_of_points() + sampler.time_of_task() * static_cast<double>(tasks.size());
    memory.start_round(round, largest_index);
    const auto expected = codegen::evaluate(kernel, sampler.points(), memory);
    if (!expected.in_range) {  // indices after some arithmetic: nearer to zero they may be inside
      largest_index = largest_index > 1 ? 1 : 0;
      continue;
    }
    if (!kernel.scatters())
      for (const auto& each : expected.stored) memory.spoil(each.buffer, each.element);
    run_tasks(kernel, plan, function, memory.buffers(), tasks, partials.data());
    trial.compared += static_cast<int64_t>(expected.stored.size());
    trial.fault = judge(kernel, expected.stored, memory);
    if (!trial.fault.empty()) return trial;
  }
  if (trial.compared == 0) trial.left_out = "what it reads depends on indices that are computed";
  return trial;
}

}  // namespace graft::cpu
