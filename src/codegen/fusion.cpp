#include "codegen/fusion.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "codegen/lowering.h"
#include "codegen/space.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft::codegen {
namespace {

using ir::Graph;
using ir::Node;
using ir::Value;

// Larger kernels gain nothing and cost registers and compile time.
constexpr size_t max_nodes = 48, max_buffers = 20;
// A value is computed again where it is needed if that takes at most so many cheap instructions and loads.
constexpr int max_inline_cost = 8, max_inline_leaves = 3;
// Rows so few and so long want several threads each, which a kernel that goes on over all rows cannot give
// them.
constexpr int64_t few_rows = 64, long_row = 1 << 14;

/// A kernel in the making, or a call.
struct Unit {
  bool external = false;
  std::vector<const Node*> nodes;
  Space space;
  size_t first = 0, position = 0;  // places of its first and its last node in the graph
  size_t number = 0;
  size_t era = 0;  // how many boundaries come before it
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph) {}

  Schedule run() {
    find_materialised();
    size_t position = 0;
    for (const auto& node : graph_.nodes()) place(*node, position++);
    join_units();
    return order();
  }

 private:
  bool fusible(const Node& node) const { return is_pointwise(node) || is_kernel_reduction(node); }
  Unit* unit_of(const Value& value) const {
    const auto* node = root_of(value).producer();
    const auto found = node ? units_of_.find(node) : units_of_.end();
    return found == units_of_.end() ? nullptr : found->second;
  }

  /// Values that lie in memory whatever happens: results, arguments of calls, tables that are gathered from.
  void find_materialised() {
    for (const auto* result : graph_.results())
      if (result) materialised_.insert(&root_of(*result));
    for (const auto& node : graph_.nodes()) {
      if (view_source(*node)) continue;
      if (!fusible(*node)) {
        for (const auto* value : node->inputs()) materialised_.insert(&root_of(*value));
      } else {
        for (const auto* value : gathered_arguments(*node)) materialised_.insert(&root_of(*value));
      }
    }
  }

  struct Cost {
    int instructions = 0;
    std::set<const Value*> leaves;
  };
  const Cost& cost(const Value& value) {
    const auto& root = root_of(value);
    if (const auto found = costs_.find(&root); found != costs_.end()) return found->second;
    Cost total;
    const auto* node = root.producer();
    if (!node || materialised_.contains(&root) || !is_pointwise(*node)) {
      total.leaves.insert(&root);
    } else {
      total.instructions = expensive(*node) ? 100 : 1;
      for (const auto* input : node->inputs()) {
        const auto& part = cost(*input);
        total.instructions += part.instructions;
        total.leaves.insert(part.leaves.begin(), part.leaves.end());
      }
    }
    return costs_.emplace(&root, std::move(total)).first->second;
  }

  static bool expensive(const Node& node) {
    static const std::unordered_set<std::string> dear = {"aten::exp",           "aten::log",
                                                         "aten::tanh",          "aten::sigmoid",
                                                         "aten::erf",           "aten::gelu",
                                                         "aten::silu",          "aten::pow.Tensor_Tensor",
                                                         "aten::sin",           "aten::cos",
                                                         "aten::log1p",         "aten::expm1",
                                                         "aten::gelu_backward", "aten::silu_backward",
                                                         "aten::softplus",      "aten::elu",
                                                         "aten::elu_backward",  "aten::softplus_backward",
                                                         "aten::cat",           "aten::stack",
                                                         "aten::embedding",     "aten::index.Tensor",
                                                         "aten::gather",        "aten::index_select",
                                                         "aten::tan",           "aten::erfc",
                                                         "aten::exp2",          "aten::log2",
                                                         "aten::log10"};
    return dear.contains(node.op());
  }

  /// Computed again where it is needed, rather than loaded.
  bool inlined(const Value& value) {
    const auto& root = root_of(value);
    if (!root.producer() || materialised_.contains(&root) || !is_pointwise(*root.producer())) return false;
    const auto& c = cost(root);
    return c.instructions <= max_inline_cost && static_cast<int>(c.leaves.size()) <= max_inline_leaves;
  }

  void place(const Node& node, size_t position) {
    if (view_source(node)) return;
    era_ += node.op() == "graft::boundary";
    if (fusible(node))
      for (Unit* unit : candidates(node))
        if (const auto space = unit->era == era_ ? fits(node, *unit) : std::nullopt) {
          unit->nodes.push_back(&node);
          unit->space = *space;
          unit->position = position;
          enter(node, *unit);
          return;
        }
    auto& unit = *units_.emplace_back(std::make_unique<Unit>());
    unit.external = !fusible(node);
    unit.nodes = {&node};
    unit.first = unit.position = position;
    unit.number = units_.size() - 1;
    unit.era = era_;
    if (is_pointwise(node))
      unit.space = space_over(node.output().type().sizes);
    else if (!unit.external)
      unit.space = space_over(ir::value_of(node, "self")->type().sizes, dims_reduced_by(node));
    enter(node, unit);
  }

  void enter(const Node& node, Unit& unit) {
    units_of_[&node] = &unit;
    for (const auto* input : node.inputs()) {
      if (auto* from = unit_of(*input); from && from != &unit) reads_[&unit].insert(from);
      users_[&root_of(*input)].push_back(&unit);
    }
  }

  /// A node goes into a kernel when it is met; that two kernels belong together may show only by what comes
  /// later. A kernel goes into one that it reads if all its nodes do.
  void join_units() {
    std::deque<Unit*> pending;
    for (auto& unit : units_)
      if (!unit->external) pending.push_back(unit.get());
    std::unordered_set<const Unit*> gone;
    for (; !pending.empty(); pending.pop_front()) {
      auto* unit = pending.front();
      if (gone.contains(unit)) continue;
      for (auto* target : latest_first(reads_[unit]))
        if (!target->external && target->era == unit->era && joined(*unit, *target)) {
          gone.insert(unit);
          pending.push_back(target);  // it may read more than before
          break;
        }
    }
    for (auto& unit : units_)
      if (!unit->external && !gone.contains(unit.get())) take_columns(*unit, gone);
    std::erase_if(units_, [&](const auto& unit) { return gone.contains(unit.get()); });
  }

  /// In an order that does not depend on where they lie.
  static std::vector<Unit*> latest_first(const std::set<Unit*>& units) {
    std::vector<Unit*> sorted(units.begin(), units.end());
    std::sort(sorted.begin(), sorted.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
    return sorted;
  }

  /// Into a kernel of rows go those that it reads and that sum the same points by columns.
  void take_columns(Unit& rows, std::unordered_set<const Unit*>& gone) {
    const auto crosses = [&](const Node* n) { return column_level(n->output(), rows.space); };
    while (true) {
      const auto from = latest_first(reads_[&rows]);  // with each that is taken there may be more
      const auto taken = std::find_if(from.begin(), from.end(), [&](Unit* read) {
        if (read->external || read->era != rows.era ||
            std::none_of(read->nodes.begin(), read->nodes.end(), crosses))
          return false;
        const bool otherwise = std::any_of(from.begin(), from.end(), [&](Unit* other) {
          return other != read && waits_for({other}, *read);
        });
        return !otherwise && joined(*read, rows);
      });
      if (taken == from.end()) return;
      gone.insert(*taken);
    }
  }

  /// Moves all nodes into the other kernel, or none.
  bool joined(Unit& unit, Unit& into) {
    const Unit before = into;
    into.first = std::min(into.first, unit.first);
    bool fit = true;
    for (const auto* node : unit.nodes) {
      const auto space = fits(*node, into);
      fit = space.has_value();
      if (!fit) break;
      into.nodes.push_back(node);
      into.space = *space;
      units_of_[node] = &into;
    }
    // Those that were there may read what has come, elsewhere than where it is computed.
    const auto still_fits = [&](const Node* node) { return accesses_fit(*node, into, into.space); };
    if (fit && reads_[&into].contains(&unit))
      fit = std::all_of(before.nodes.begin(), before.nodes.end(), still_fits);
    if (!fit) {
      for (const auto* moved : unit.nodes) units_of_[moved] = &unit;
      into = before;
      return false;
    }
    into.position = std::max(into.position, unit.position);
    for (auto* read : reads_[&unit])
      if (read != &into) reads_[&into].insert(read);
    reads_.erase(&unit);
    for (auto& [reader, read] : reads_)
      if (read.erase(&unit) > 0 && reader != &into) read.insert(&into);
    return true;
  }

  /// Kernels that make what the node reads, then those that read the same; the latest first.
  std::vector<Unit*> candidates(const Node& node) {
    std::vector<Unit*> found;
    const auto add = [&](Unit* unit) {
      if (unit && !unit->external && std::find(found.begin(), found.end(), unit) == found.end())
        found.push_back(unit);
    };
    std::vector<const Value*> leaves;
    for (const auto* input : node.inputs()) {
      add(unit_of(*input));
      if (inlined(*input))
        leaves.insert(leaves.end(), cost(*input).leaves.begin(), cost(*input).leaves.end());
      else
        leaves.push_back(&root_of(*input));
    }
    for (const auto* leaf : leaves) add(unit_of(*leaf));
    std::sort(found.begin(), found.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
    std::vector<Unit*> siblings;
    for (const auto* leaf : leaves) {
      const auto& users = users_[leaf];
      for (size_t i = users.size(), tried = 0; i-- > 0 && tried < 4; ++tried)
        if (!users[i]->external && std::find(found.begin(), found.end(), users[i]) == found.end())
          siblings.push_back(users[i]);
    }
    std::sort(siblings.begin(), siblings.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
    siblings.erase(std::unique(siblings.begin(), siblings.end()), siblings.end());
    // Kernels that only share an input need not wait for each other otherwise: small ones are not worth the
    // bond.
    for (auto* unit : siblings)
      if (points(unit->space) == node_points(node)) found.push_back(unit);
    return found;
  }

  static int64_t node_points(const Node& node) {
    return is_pointwise(node) ? node.output().type().numel() : ir::value_of(node, "self")->type().numel();
  }

  /// The kernel's space with the node in it, if they can be one.
  std::optional<Space> fits(const Node& node, const Unit& unit) {
    if (unit.nodes.size() >= max_nodes || node_points(node) == 0) return std::nullopt;
    auto space = united_space(node, unit);
    if (!space || depends_otherwise(node, unit) || !accesses_fit(node, unit, *space)) return std::nullopt;
    return space;
  }

  static std::optional<Space> united_space(const Node& node, const Unit& unit) {
    if (!is_pointwise(node)) {
      const auto& sizes = ir::value_of(node, "self")->type().sizes;
      if (reduces_rows(node, unit.space)) return refine_kept(unit.space, sizes);
      if (node_points(node) != points(unit.space)) return std::nullopt;
      if (auto space = crossed_by(node, unit.space)) return space;
      return unite(unit.space, space_over(sizes, dims_reduced_by(node)));
    }
    const auto& sizes = node.output().type().sizes;
    if (node_points(node) == points(unit.space)) return refine(unit.space, sizes);
    if (node_points(node) == kept_points(unit.space)) return refine_kept(unit.space, sizes);
    if (once_level(node.output(), unit.space) &&
        std::any_of(unit.nodes.begin(), unit.nodes.end(),
                    [&](const Node* n) { return reduces_rows(*n, unit.space); }))
      return unit.space;
    return std::nullopt;
  }

  /// A reduction of one number a row, to one number.
  static bool reduces_rows(const Node& node, const Space& space) {
    const int64_t rows = kept_points(space), row = points(space) / std::max<int64_t>(rows, 1);
    return !is_pointwise(node) && once_level(node.output(), space) && node_points(node) == rows &&
           space.back().reduced && (rows >= few_rows || row <= long_row);
  }

  /// The space of a kernel of rows, with a reduction in it that is over the rows for each of their points.
  static std::optional<Space> crossed_by(const Node& node, const Space& space) {
    const int64_t rows = kept_points(space), row = points(space) / std::max<int64_t>(rows, 1);
    if (is_pointwise(node) || !is_kernel_reduction(node) || finds_place(node) || rows < 2 || row < 2 ||
        row > long_row || !space.back().reduced || node_points(node) != points(space) ||
        node.output().type().dtype == ir::DType::boolean)
      return std::nullopt;
    return crossed(space, space_over(ir::value_of(node, "self")->type().sizes, dims_reduced_by(node)));
  }

  static bool column_level(const Value& value, const Space& space) {
    return value.producer() && crossed_by(*value.producer(), space).has_value();
  }

  /// True if something that the node reads outside the kernel itself waits for the kernel.
  bool depends_otherwise(const Node& node, const Unit& unit) {
    std::vector<const Unit*> from;
    for (const auto* input : node.inputs())
      if (const auto* read = unit_of(*input); read && read != &unit) from.push_back(read);
    return waits_for(std::move(from), unit);
  }

  /// Whether one of them is the unit, or reads something that waits for it.
  bool waits_for(std::vector<const Unit*> stack, const Unit& unit) {
    std::unordered_set<const Unit*> seen;
    while (!stack.empty()) {
      const auto* at = stack.back();
      stack.pop_back();
      if (at == &unit) return true;
      // What ended before the kernel began cannot wait for it.
      if (at->position < unit.first || !seen.insert(at).second) continue;
      const auto found = reads_.find(at);
      if (found == reads_.end()) continue;
      for (const auto* next : found->second) stack.push_back(next);
    }
    return false;
  }

  /// Itself, not what it is a view of.
  bool made_by(const Value& value, const Unit& unit) const {
    const auto found = value.producer() ? units_of_.find(value.producer()) : units_of_.end();
    return found != units_of_.end() && found->second == &unit;
  }

  static bool row_level(const Value& value, const Space& space) {
    return points(space) != value.type().numel();
  }

  /// There when all rows are done, and for none of them.
  static bool once_level(const Value& value, const Space& space) {
    return value.type().numel() == 1 && kept_points(space) > 1 && kept_points(space) != points(space);
  }

  static Place own_place(const Lowering& lowering, const Value& value, const Space& space) {
    if (column_level(value, space)) return lowering.column_place(value.type().sizes);
    if (once_level(value, space)) return Lowering::once_place(value.type().sizes);
    return row_level(value, space) ? lowering.row_place(value.type().sizes)
                                   : lowering.full_place(value.type().sizes);
  }

  /// Whether the node reads the kernel's values where the kernel computes them (or may compute them again).
  bool accesses_fit(const Node& node, const Unit& unit, const Space& space) {
    const auto inside = [&](const Value& v) { return made_by(v, unit); };
    Lowering trial(space, [&](const Value& v) { return &v == &node.output() || (!inside(v) && inlined(v)); });
    try {
      trial.evaluate(node.output(), own_place(trial, node.output(), space));
    } catch (const std::logic_error&) {
      return false;
    }
    std::set<const Value*> buffers;
    for (const auto& access : trial.accesses()) {
      const auto& value = root_of(*access.value);
      buffers.insert(&value);
      if (!inside(value)) continue;
      if (access.gathered) return false;
      if (column_level(value, space)) return false;
      // No row can use it, nor can what is reduced over the rows.
      if (once_level(value, space) && !(once_level(node.output(), space) && is_pointwise(node))) return false;
      if (access.place == own_place(trial, value, space)) continue;
      if (!is_pointwise(*value.producer()) || !inlined(value)) return false;
      // Computed again elsewhere, it would need there what the kernel has only here: a reduction, say.
      const auto& leaves = cost(value).leaves;
      if (std::any_of(leaves.begin(), leaves.end(), [&](const Value* leaf) { return inside(*leaf); }))
        return false;
    }
    for (const auto* n : unit.nodes)
      for (const auto* input : n->inputs())
        if (!inside(root_of(*input))) buffers.insert(&root_of(*input));
    return buffers.size() <= max_buffers;
  }

  Step make_step(const Unit& unit, const std::set<const Value*>& wanted) {
    Step step;
    const auto inside = [&](const Value& v) { return made_by(v, unit); };
    Lowering lowering(unit.space, [&](const Value& v) { return inside(v) || inlined(v); });
    for (const auto* node : unit.nodes) {
      const auto& output = node->output();
      if (wanted.contains(&output)) lowering.store(output, own_place(lowering, output, unit.space));
    }
    step.nodes = unit.nodes;
    step.buffers = lowering.buffers();
    step.kernel = std::move(lowering).finish();
    return step;
  }

  /// From the results backwards: only what is wanted is made. Then forwards, in the order of the graph as far
  /// as possible.
  Schedule order() {
    std::set<const Value*> wanted;
    const auto want = [&](const Value& value) { wanted.insert(&root_of(value)); };
    for (const auto* result : graph_.results())
      if (result) want(*result);
    std::unordered_map<const Unit*, Step> steps;
    std::unordered_map<const Unit*, std::set<const Unit*>> needs;
    for (const auto* unit : reversed()) {
      const bool used = std::any_of(unit->nodes.begin(), unit->nodes.end(), [&](const Node* n) {
        return std::any_of(n->outputs().begin(), n->outputs().end(),
                           [&](const auto& o) { return wanted.contains(o.get()); });
      });
      if (!used && !(unit->external && ir::must_run(*unit->nodes[0]))) continue;
      auto& step = steps[unit];
      std::vector<const Value*> reads;
      if (unit->external) {
        step.external = unit->nodes[0];
        for (const auto* value : step.external->inputs()) reads.push_back(value);
      } else {
        step = make_step(*unit, wanted);
        for (size_t i = 0; i < step.buffers.size(); ++i)
          if (!step.kernel.buffers[i].written) reads.push_back(step.buffers[i]);
      }
      for (const auto* value : reads) {
        want(*value);
        if (const auto* from = unit_of(*value); from && from != unit) needs[unit].insert(from);
      }
    }
    return forwards(steps, needs);
  }

  /// Units so that each comes after all that read it.
  std::vector<const Unit*> reversed() {
    std::vector<const Unit*> order;
    std::unordered_set<const Unit*> done;
    const std::function<void(const Unit*)> visit = [&](const Unit* unit) {
      if (!done.insert(unit).second) return;
      for (const auto* from : reads_[unit]) visit(from);
      order.push_back(unit);
    };
    for (const auto& unit : units_) visit(unit.get());
    std::reverse(order.begin(), order.end());
    return order;
  }

  Schedule forwards(std::unordered_map<const Unit*, Step>& steps,
                    std::unordered_map<const Unit*, std::set<const Unit*>>& needs) {
    // Calls that draw random numbers or act on the outside keep their order.
    const Unit* before = nullptr;
    for (const auto& unit : units_)
      if (unit->external && ir::must_run(*unit->nodes[0])) {
        if (before) needs[unit.get()].insert(before);
        before = unit.get();
      }
    std::vector<const Unit*> pending;
    for (const auto& unit : units_)
      if (steps.contains(unit.get())) pending.push_back(unit.get());
    std::sort(pending.begin(), pending.end(),
              [](const Unit* a, const Unit* b) { return a->position < b->position; });
    Schedule schedule;
    std::unordered_set<const Unit*> done;
    const std::function<void(const Unit*)> visit = [&](const Unit* unit) {
      if (!done.insert(unit).second) return;
      std::vector<const Unit*> first(needs[unit].begin(), needs[unit].end());
      std::sort(first.begin(), first.end(),
                [](const Unit* a, const Unit* b) { return a->position < b->position; });
      for (const auto* from : first) visit(from);
      schedule.steps.push_back(std::move(steps.at(unit)));
    };
    for (const auto* unit : pending) visit(unit);
    return schedule;
  }

  const Graph& graph_;
  std::unordered_set<const Value*> materialised_;
  std::unordered_map<const Value*, Cost> costs_;
  std::vector<std::unique_ptr<Unit>> units_;
  size_t era_ = 0;
  std::unordered_map<const Node*, Unit*> units_of_;
  std::unordered_map<const Unit*, std::set<Unit*>> reads_;
  std::unordered_map<const Value*, std::vector<Unit*>> users_;
};

}  // namespace

const Value& root_of(const Value& value) {
  const auto* at = &value;
  while (at->producer()) {
    const auto* source = view_source(*at->producer());
    if (!source) break;
    at = source;
  }
  return *at;
}

Schedule schedule(const Graph& graph) { return Fuser(graph).run(); }

std::string to_string(const Schedule& schedule) {
  std::ostringstream text;
  size_t kernels = 0;
  for (const auto& step : schedule.steps) {
    if (step.external) {
      text << "call " << ir::to_string(*step.external) << "\n";
      continue;
    }
    text << "kernel " << kernels++ << " over";
    for (const auto& dim : step.kernel.dims) text << " " << dim.extent << (dim.reduced ? " reduced" : "");
    text << "\n";
    for (size_t i = 0; i < step.buffers.size(); ++i)
      text << "  " << (step.kernel.buffers[i].written ? "writes" : "reads") << " %" << step.buffers[i]->id()
           << ": " << ir::to_string(step.buffers[i]->type()) << "\n";
    for (const auto* node : step.nodes) text << "    " << ir::to_string(*node) << "\n";
  }
  return text.str();
}

}  // namespace graft::codegen
