// Kernels that turn out to belong together.
#include <algorithm>
#include <deque>

#include "codegen/fuser.h"

namespace graft::codegen {
namespace {

/// In an order that does not depend on where they lie.
std::vector<Unit*> latest_first(const std::set<Unit*>& units) {
  std::vector<Unit*> sorted(units.begin(), units.end());
  std::sort(sorted.begin(), sorted.end(), [](Unit* a, Unit* b) { return a->number > b->number; });
  return sorted;
}

}  // namespace

void Fuser::join_units() {
  std::deque<Unit*> pending;
  for (auto& unit : units_)
    if (unit->open()) pending.push_back(unit.get());
  std::unordered_set<const Unit*> gone;
  for (; !pending.empty(); pending.pop_front()) {
    auto* unit = pending.front();
    if (gone.contains(unit)) continue;
    for (auto* target : latest_first(reads_[unit]))
      if (target->open() && target->era == unit->era && joined(*unit, *target)) {
        gone.insert(unit);
        pending.push_back(target);  // it may read more than before
        break;
      }
  }
  for (auto& unit : units_)
    if (unit->open() && !gone.contains(unit.get())) take_columns(*unit, gone);
  for (auto& unit : units_)
    if (unit->role == Unit::Role::scatters || unit->role == Unit::Role::scans) take_producers(*unit, gone);
  std::erase_if(units_, [&](const auto& unit) { return gone.contains(unit.get()); });
}

void Fuser::take_columns(Unit& rows, std::unordered_set<const Unit*>& gone) {
  const auto crosses = [&](const Node* n) {
    return crossed_by(*n, rows.space, limits_.long_row).has_value();
  };
  while (true) {
    const auto from = latest_first(reads_[&rows]);  // with each that is taken there may be more
    const auto taken = std::find_if(from.begin(), from.end(), [&](Unit* read) {
      if (!read->open() || read->era != rows.era ||
          std::none_of(read->nodes.begin(), read->nodes.end(), crosses))
        return false;
      const bool otherwise = std::any_of(
          from.begin(), from.end(), [&](Unit* other) { return other != read && waits_for({other}, *read); });
      return !otherwise && joined(*read, rows);
    });
    if (taken == from.end()) return;
    gone.insert(*taken);
  }
}

void Fuser::take_producers(Unit& taking, std::unordered_set<const Unit*>& gone) {
  // It has no more tasks than it has points to keep: with few, what it adds is better computed by a kernel of
  // its own.
  if (kept_points(taking.space) < limits_.scatter_points) return;
  while (true) {
    const auto from = latest_first(reads_[&taking]);
    const auto taken = std::find_if(from.begin(), from.end(), [&](Unit* read) {
      return read->open() && read->era == taking.era &&
             std::all_of(read->nodes.begin(), read->nodes.end(),
                         [&](const Node* node) {
                           return is_pointwise(*node) && read_only_by(node->output(), *read, taking);
                         }) &&
             joined(*read, taking);
    });
    if (taken == from.end()) break;
    gone.insert(*taken);
  }
  std::rotate(taking.nodes.begin(), taking.nodes.begin() + 1, taking.nodes.end());  // it comes last
}

bool Fuser::read_only_by(const Value& value, const Unit& a, const Unit& b) const {
  if (materialised_.contains(&value)) return false;
  return std::all_of(value.users().begin(), value.users().end(), [&](const Node* user) {
    if (view_source(*user)) return read_only_by(user->output(), a, b);
    const auto& unit = *units_of_.at(user);
    if (&unit != &a && &unit != &b) return false;
    // What a scatter adds to has to lie in memory before it begins.
    const auto scatter = scatter_of(*user);
    return !scatter || !scatter->onto || &root_of(*scatter->onto) != &root_of(value);
  });
}

bool Fuser::joined(Unit& unit, Unit& into) {
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
  wait_until(into, unit.latest);
  for (auto* read : reads_[&unit]) {
    readers_[read].erase(&unit);
    if (read != &into) reads(into, *read);
  }
  reads_.erase(&unit);
  for (auto* reader : readers_[&unit]) {
    reads_[reader].erase(&unit);
    if (reader != &into) reads(*reader, into);
  }
  readers_.erase(&unit);
  return true;
}

}  // namespace graft::codegen
