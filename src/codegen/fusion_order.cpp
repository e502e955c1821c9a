// From kernels in the making to steps in order.
#include <algorithm>
#include <functional>
#include <stdexcept>

#include "codegen/fuser.h"
#include "ir/op_traits.h"

namespace graft::codegen {
namespace {

/// A kernel that reads more temporaries than it writes: sums of a gradient's rows, say. What it reads may be
/// in nobody's way any more once it has run.
bool makes_little(const Step& step) {
  if (step.external) return false;
  int64_t read = 0, written = 0;
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    const auto& root = root_of(*step.buffers[i]);
    const int64_t bytes = root.type().bytes();
    if (step.kernel.buffers[i].written)
      written += bytes;
    else if (root.producer())
      read += bytes;
  }
  return written < read;
}

}  // namespace

Step Fuser::make_start(const Unit& unit) {
  Step step;
  const auto& output = unit.nodes[0]->output();
  Lowering lowering(unit.space, limits_, [&](const Value& v) { return inlined(v); });
  const auto place = lowering.full_place(output.type().sizes);
  const auto* onto = scatter_of(*unit.nodes[0])->onto;
  lowering.store(
      output, place,
      onto ? lowering.evaluate(*onto, place) : lowering.integer(in_register(output.type().dtype), 0));
  step.nodes = unit.nodes;
  step.buffers = lowering.buffers();
  step.kernel = std::move(lowering).finish();
  return step;
}

Step Fuser::make_step(const Unit& unit, const std::set<const Value*>& wanted) {
  if (unit.role == Unit::Role::starts) return make_start(unit);
  Step step;
  const auto inside = [&](const Value& v) { return made_by(v, unit); };
  Lowering lowering(unit.space, limits_, [&](const Value& v) { return inside(v) || inlined(v); });
  for (const auto* node : unit.nodes) {
    const auto& output = node->output();
    if (const auto scatter = scatter_of(*node))
      scatter->add(lowering, lowering.full_place(scatter->sizes));
    else if (wanted.contains(&output))
      lowering.store(output, own_place(lowering, output, unit.space));
  }
  step.nodes = unit.nodes;
  step.onto = unit.onto;
  step.buffers = lowering.buffers();
  step.kernel = std::move(lowering).finish();
  return step;
}

Schedule Fuser::order() {
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
      if (unit->onto) reads.push_back(unit->onto);
      if (unit->start) needs[unit].insert(unit->start);
    }
    for (const auto* value : reads) {
      want(*value);
      if (const auto* from = unit_of(*value); from && from != unit) needs[unit].insert(from);
    }
  }
  return forwards(steps, needs);
}

std::vector<const Unit*> Fuser::reversed() {
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

std::unordered_map<const Unit*, size_t> Fuser::turns_of(
    const std::vector<const Unit*>& units, const std::unordered_map<const Unit*, Step>& steps,
    std::unordered_map<const Unit*, std::set<const Unit*>>& needs) {
  // From where on it could run: kernels hold nodes from far apart, and the last is often a small one.
  std::unordered_map<const Unit*, size_t> ready;
  const std::function<size_t(const Unit*)> ready_at = [&](const Unit* unit) {
    if (const auto found = ready.find(unit); found != ready.end()) return found->second;
    size_t at = unit->first;
    for (const auto* from : needs[unit]) at = std::max(at, ready_at(from));
    ready.emplace(unit, at);
    return at;
  };
  std::unordered_map<const Unit*, size_t> turns;
  for (const auto* unit : units)
    turns.emplace(unit, makes_little(steps.at(unit)) ? ready_at(unit) : unit->position);
  return turns;
}

Schedule Fuser::forwards(std::unordered_map<const Unit*, Step>& steps,
                         std::unordered_map<const Unit*, std::set<const Unit*>>& needs) {
  for (size_t i = 1; i < in_order_.size(); ++i) needs[in_order_[i]].insert(in_order_[i - 1]);
  std::vector<const Unit*> pending;
  for (const auto& unit : units_)
    if (steps.contains(unit.get())) pending.push_back(unit.get());
  const auto turns = turns_of(pending, steps, needs);
  std::sort(pending.begin(), pending.end(), [&](const Unit* a, const Unit* b) {
    return std::pair(turns.at(a), a->position) < std::pair(turns.at(b), b->position);
  });
  Schedule schedule;
  std::unordered_set<const Unit*> begun, done;
  const std::function<void(const Unit*)> visit = [&](const Unit* unit) {
    if (done.contains(unit)) return;
    if (!begun.insert(unit).second) throw std::logic_error("[codegen] kernels wait for each other");
    std::vector<const Unit*> first(needs[unit].begin(), needs[unit].end());
    std::sort(first.begin(), first.end(),
              [](const Unit* a, const Unit* b) { return a->position < b->position; });
    for (const auto* from : first) visit(from);
    done.insert(unit);
    schedule.steps.push_back(std::move(steps.at(unit)));
  };
  for (const auto* unit : pending) visit(unit);
  return schedule;
}

}  // namespace graft::codegen
