#include "plan/in_place.h"

#include <algorithm>
#include <vector>

#include "codegen/views.h"
#include "ir/arguments.h"
#include "plan/step_values.h"

namespace graft::plan {
namespace {

using codegen::Instruction;
using codegen::Kernel;
using codegen::Op;
using codegen::root_of;
using ir::Value;

/// What a target computes for a store (value_emitter.h): the instructions that its value needs, each once for
/// a point of the loop nest. A reduction has its value from an earlier loop.
void reach(const Kernel& kernel, int from, std::vector<bool>& reached) {
  std::vector<int> todo{from};
  while (!todo.empty()) {
    const auto n = static_cast<size_t>(todo.back());
    todo.pop_back();
    if (reached[n]) continue;
    reached[n] = true;
    const auto& i = kernel.code[n];
    if (codegen::is_reduction(i.op)) continue;
    todo.insert(todo.end(), i.args.begin(), i.args.end());
    for (const auto& x : i.indirect) todo.push_back(x.value);
    if (i.guard >= 0) todo.push_back(i.guard);
  }
}

/// A kernel's points run in any order and at once, so that only the point that writes an element may read it.
/// At a point, values are computed when the first store needs them, stores come in their order, those of a
/// loop over the reduced dimensions before what it reduces, and those of rows after all such loops. So a load
/// comes before a store if that store, or one before it in the same loop, needs it.
class ReadsOf {
 public:
  ReadsOf(const codegen::Step& step, const Value& result, const Value& input)
      : step_(step), kernel_(step.kernel) {
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (kernel_.code[n].op == Op::store && buffer_of(kernel_.code[n]) == &result) stores_.push_back(n);
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (kernel_.code[n].op == Op::load && &root_of(*buffer_of(kernel_.code[n])) == &input)
        loads_.push_back(n);
  }

  bool come_before_the_write() const {
    if (stores_.size() != 1) return false;
    const auto& store = kernel_.code[stores_[0]];
    if (store.adds) return false;  // what it adds to is not what the input was
    if (loads_.empty()) return true;
    // A row is read to its end in one loop before the next begins; a loop after the store would read it
    // again.
    const bool in_last_loop = !store.full || store.phase + 1 >= kernel_.phases;
    if (kernel_.reduces_rows() || !in_last_loop || !writes_each_element_once(store)) return false;
    return std::all_of(loads_.begin(), loads_.end(),
                       [&](size_t n) { return is_at_place_of(store, kernel_.code[n]); }) &&
           are_early(store);
  }

 private:
  const Value* buffer_of(const Instruction& i) const { return step_.buffers[static_cast<size_t>(i.buffer)]; }

  bool writes_each_element_once(const Instruction& store) const {
    const auto& type = buffer_of(store)->type();
    const int64_t points = kernel_.kept_points() * (store.full ? kernel_.reduced_points() : 1);
    return is_injective(type) && points == type.numel();
  }

  bool is_at_place_of(const Instruction& store, const Instruction& load) const {
    return load.indirect.empty() && load.index == store.index && load.full == store.full &&
           offset_in_root(*buffer_of(load)) == 0 &&
           buffer_of(load)->type().dtype == buffer_of(store)->type().dtype;
  }

  bool are_early(const Instruction& store) const {
    std::vector<bool> before(kernel_.code.size()), after(kernel_.code.size());
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (const auto& i = kernel_.code[n]; i.op == Op::store && i.full == store.full)
        reach(kernel_, static_cast<int>(n), n <= stores_[0] ? before : after);
    return std::all_of(loads_.begin(), loads_.end(), [&](size_t n) {
      // What only loops need that are over by then has been read.
      return before[n] || (!store.full && !after[n]);
    });
  }

  const codegen::Step& step_;
  const Kernel& kernel_;
  std::vector<size_t> stores_, loads_;
};

bool makes(const codegen::Step& step, const Value& result) {
  return step.external ? step.external == result.producer()
                       : std::find(step.buffers.begin(), step.buffers.end(), &result) != step.buffers.end();
}

/// The step that makes the result, if none after it touches the input.
std::optional<size_t> last_to_touch(const codegen::Schedule& schedule, const Value& result,
                                    const Value& input) {
  std::optional<size_t> maker;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const auto touched = touched_by(schedule.steps[i]);
    if (maker && std::any_of(touched.begin(), touched.end(),
                             [&](const Value* value) { return &root_of(*value) == &input; }))
      return std::nullopt;
    if (!maker && makes(schedule.steps[i], result)) maker = i;
  }
  return maker;
}

}  // namespace

bool is_seen_otherwise(const ir::Graph& graph, const Value& result, const Value& input) {
  size_t times = 0;
  for (const auto* other : graph.results()) {
    if (!other) continue;
    const auto* root = &root_of(*other);
    if (root == &input || (other != &result && root == &result)) return true;
    times += other == &result;
  }
  return times != 1;
}

std::optional<size_t> kernel_that_may_write_into(const ir::Graph& graph, const codegen::Schedule& schedule,
                                                 const Value& result, const Value& input) {
  if (is_seen_otherwise(graph, result, input) || !is_injective(input.type())) return std::nullopt;
  const auto maker = last_to_touch(schedule, result, input);
  if (!maker || schedule.steps[*maker].external) return std::nullopt;
  return ReadsOf(schedule.steps[*maker], result, input).come_before_the_write() ? maker : std::nullopt;
}

bool may_be_written_over(const codegen::Step& step, const Value& result, const Value& read) {
  return result.type().bytes() == read.type().bytes() && is_injective(read.type()) &&
         ReadsOf(step, result, read).come_before_the_write();
}

std::optional<size_t> call_that_may_write_rows_into(const ir::Graph& graph, const codegen::Schedule& schedule,
                                                    const Value& result, const Value& input) {
  const auto& node = *result.producer();
  if (ir::value_of(node, "self") != &input || &root_of(*ir::value_of(node, "index")) == &input ||
      &root_of(*ir::value_of(node, "source")) == &input || is_seen_otherwise(graph, result, input) ||
      !is_injective(input.type()) || !ir::number_of(node, "dim"))
    return std::nullopt;
  const auto maker = last_to_touch(schedule, result, input);
  return maker && schedule.steps[*maker].external ? maker : std::nullopt;
}

bool lies_in_another(const Value& result, const codegen::Schedule& schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [&](const auto& step) { return step.onto && &step.nodes.back()->output() == &result; });
}

bool is_injective(const ir::TensorType& type) {
  if (type.numel() == 0) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < type.sizes.size(); ++i)
    if (type.sizes[i] > 1) dims.emplace_back(type.strides[i], type.sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reached = 0;  // by the dimensions inside: the distance of the last element from the first
  for (const auto& [stride, size] : dims) {
    if (stride <= reached) return false;
    reached += stride * (size - 1);
  }
  return true;
}

size_t reads_of(const Value& value) {
  size_t count = 0;
  for (const auto* user : value.users()) count += codegen::view_source(*user) ? reads_of(user->output()) : 1;
  return count;
}

}  // namespace graft::plan
