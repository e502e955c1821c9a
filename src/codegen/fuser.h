// Nodes into kernels. The class is cut into files: fusion.cpp has what is placed where, fusion_fit.cpp what
// can be one kernel, fusion_join.cpp kernels that turn out to belong together, fusion_order.cpp the way from
// kernels in the making to steps in order. For those files alone.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "codegen/fusion.h"
#include "codegen/lowering.h"
#include "codegen/scan.h"
#include "codegen/scatter.h"
#include "codegen/space.h"

namespace graft::codegen {

/// A kernel in the making, or a call.
struct Unit {
  bool external = false;
  std::vector<const ir::Node*> nodes;
  Space space;
  size_t first = 0, position = 0;  // places of its first and its last node in the graph
  size_t latest = 0;               // the last place of all that it waits for, itself included; or a later one
  size_t number = 0;
  size_t era = 0;  // how many boundaries come before it
  /// What adds elements at places that are data is two kernels, with which no other is joined: one writes
  /// what the result is before, the other adds. The first is left out where the result may lie in the memory
  /// of what it is before. Nor is another joined with what scans.
  enum class Role : uint8_t { plain, starts, scatters, scans } role = Role::plain;
  const Unit* start = nullptr;      // scatters: the first of the two
  const ir::Value* onto = nullptr;  // scatters: or whose memory it adds to

  bool open() const { return !external && role == Role::plain; }
};

class Fuser {
 public:
  Fuser(const ir::Graph& graph, const Limits& limits)
      : graph_(graph), limits_(limits), device_(ir::device_of(graph).value_or(ir::Device())) {}
  Schedule run();

 private:
  using Node = ir::Node;
  using Value = ir::Value;

  /// What has to do with another device (a number on the CPU, a copy from there) is a call.
  bool fusible(const Node& node) const {
    return (is_pointwise(node) || is_kernel_reduction(node) || scatter_of(node) ||
            (limits_.scans && scan_of(node))) &&
           ir::is_on(node, device_);
  }
  Unit* unit_of(const Value& value) const;

  /// Values that lie in memory whatever happens: results, arguments of calls, tables that are gathered from.
  void find_materialised();

  struct Cost {
    int instructions = 0;
    std::set<const Value*> leaves;
  };
  const Cost& cost(const Value& value);
  /// Computed again where it is needed, rather than loaded.
  bool inlined(const Value& value);

  void place(const Node& node, size_t position);
  void place_scatter(const Node& node, const Scatter& scatter, size_t position);
  Unit& new_unit(const Node& node, size_t position);
  void enter(const Node& node, Unit& unit);
  void enter(const Value& input, Unit& unit);
  void reads(Unit& unit, Unit& from) {
    reads_[&unit].insert(&from);
    readers_[&from].insert(&unit);
    wait_until(unit, from.latest);
  }
  /// It waits for something at this place, and so do all that wait for it.
  void wait_until(Unit& unit, size_t place);
  /// Whose memory a scatter may add to, its result being that before: nobody else needs it. Null: none.
  const Value* memory_to_add_to(const Value& onto, const Value& result);
  /// Kernels that make what the node reads, then those that read the same; the latest first.
  std::vector<Unit*> candidates(const Node& node);

  // --- what fits

  /// The kernel's space with the node in it, if they can be one.
  std::optional<Space> fits(const Node& node, const Unit& unit);
  /// True if something that the node reads outside the kernel itself waits for the kernel.
  bool depends_otherwise(const Node& node, const Unit& unit);
  /// Whether one of them is the unit, or reads something that waits for it.
  bool waits_for(std::vector<const Unit*> stack, const Unit& unit);
  /// Itself, not what it is a view of.
  bool made_by(const Value& value, const Unit& unit) const;
  /// Whether the node reads the kernel's values where the kernel computes them (or may compute them again).
  bool accesses_fit(const Node& node, const Unit& unit, const Space& space);
  /// Where in the kernel's space a value of it is computed.
  Place own_place(const Lowering& lowering, const Value& value, const Space& space) const;

  // --- joining

  /// A node goes into a kernel when it is met; that two kernels belong together may show only by what comes
  /// later. A kernel goes into one that it reads if all its nodes do.
  void join_units();
  /// Into a kernel of rows go those that it reads and that sum the same points by columns.
  void take_columns(Unit& rows, std::unordered_set<const Unit*>& gone);
  /// Into a kernel that scatters go those that compute only what it adds, into one that scans its argument.
  void take_producers(Unit& taking, std::unordered_set<const Unit*>& gone);
  bool read_only_by(const Value& value, const Unit& a, const Unit& b) const;
  /// Moves all nodes into the other kernel, or none.
  bool joined(Unit& unit, Unit& into);

  // --- steps in order

  Step make_step(const Unit& unit, const std::set<const Value*>& wanted);
  Step make_start(const Unit& unit);
  /// From the results backwards: only what is wanted is made. Then forwards, in the order of the graph as far
  /// as possible.
  Schedule order();
  /// Units so that each comes after all that read it.
  std::vector<const Unit*> reversed();
  /// When each has its turn: with its last node in the graph, or, if it makes little of much, as soon as it
  /// can.
  static std::unordered_map<const Unit*, size_t> turns_of(
      const std::vector<const Unit*>& units, const std::unordered_map<const Unit*, Step>& steps,
      std::unordered_map<const Unit*, std::set<const Unit*>>& needs);
  Schedule forwards(std::unordered_map<const Unit*, Step>& steps,
                    std::unordered_map<const Unit*, std::set<const Unit*>>& needs);

  const ir::Graph& graph_;
  const Limits limits_;
  const ir::Device device_;  // that kernels are for
  std::unordered_set<const Value*> materialised_;
  std::unordered_map<const Value*, Cost> costs_;
  std::vector<std::unique_ptr<Unit>> units_;
  size_t era_ = 0;
  std::unordered_map<const Node*, Unit*> units_of_;
  /// Calls that draw random numbers or act on the outside. Each waits for the one before it as if it read
  /// from that, so that no kernel joins what comes before the one with what comes after the other.
  std::vector<Unit*> in_order_;
  std::unordered_map<const Unit*, std::set<Unit*>> reads_, readers_;  // the one is the other, reversed
  std::unordered_map<const Value*, std::vector<Unit*>> users_;
};

}  // namespace graft::codegen
