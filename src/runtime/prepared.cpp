#include "runtime/prepared.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "capture/ivalue.h"
#include "codegen/predicates.h"
#include "codegen/views.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "ir/product.h"
#include "plan/failures.h"
#include "plan/in_place.h"
#include "plan/memory_plan.h"
#include "plan/step_values.h"
#include "plan/waiting.h"
#include "runtime/epilogue.h"
#include "runtime/planned_call.h"
#include "runtime/row_updates.h"
#include "support/log.h"

namespace graft::runtime {
namespace {

using codegen::root_of;
using ir::Value;

class Preparation {
 public:
  explicit Preparation(const Device& device) : device_(device), place_(to_ir(device.place())) {
    program_.device = &device;
  }

  Prepared prepare(const ir::Graph& graph, const codegen::Schedule& schedule,
                   const std::vector<std::shared_ptr<const Launcher>>& launchers,
                   const std::vector<at::Generator>& generators, const Bindings& bindings) && {
    program_.keep_results = bindings.keep_results;
    measuring_ = bindings.measuring;
    for (const auto& input : graph.inputs()) add_slot(*input, Slot::Kind::input);
    program_.inputs = program_.slots.size();
    for (const size_t i : bindings.frozen) frozen_.insert(graph.inputs()[i].get());
    for (const size_t i : bindings.own) own_.insert(graph.inputs()[i].get());
    for (const auto& step : schedule.steps)
      if (step.external) pack(*step.external);
    watch_weights();
    for (const auto* result : graph.results())
      if (result) leaves_.insert(&root_of(*result));
    find_aliased(schedule);
    // Last first: one may lie in the memory of what lies in that of another.
    for (auto step = schedule.steps.rbegin(); step != schedule.steps.rend(); ++step)
      if (step->onto && leaves_.contains(&step->nodes.back()->output())) leaves_.insert(step->onto);
    const auto predicates = codegen::predicates(graph, schedule);
    find_epilogues(schedule, predicates);
    choose_memory(schedule);
    size_t kernel = 0;
    for (const auto& step : schedule.steps) {
      auto& action = program_.actions.emplace_back();
      heads_.push_back(step.with_last ? heads_.back() : program_.actions.size() - 1);
      if (step.external)
        call_of(action, graph, *step.external, generators);
      else if (const auto& launcher = launchers[kernel++]; !is_joined(step))
        kernel_of(step, launcher);
    }
    leave_out(schedule, predicates);
    for (const auto* result : graph.results()) program_.results.push_back(result ? slot_of(*result) : none);
    find_last_check(schedule);
    if (!bindings.in_place.empty()) {
      const size_t safe = safe_from(schedule);
      for (const auto& pair : bindings.in_place) write_into(graph, schedule, pair, safe);
      join_row_updates();
      if (logs(LogTopic::kernels)) log_in_place(graph, bindings.in_place);
    }
    plan(schedule);
    program_.launches = std::ranges::count_if(schedule.steps, [&](const auto& step) {
      return !step.external && !step.with_last && !is_joined(step);
    });
    if (bindings.record) program_.not_recorded = reason_not_to_record(schedule);
    return std::move(program_);
  }

 private:
  size_t add_slot(const Value& value, Slot::Kind kind) {
    program_.slots.push_back({kind, value.type()});
    numbers_[&value] = program_.slots.size() - 1;
    return program_.slots.size() - 1;
  }

  bool is_here(const Value& value) const { return value.type().device == place_; }

  std::optional<Planned> planned_by(const ir::Node& node) const {
    const auto planned = planned_call(node);
    return planned && is_here(node.output()) ? planned : std::nullopt;
  }

  /// The slot of any value; views get theirs when first asked for.
  size_t slot_of(const Value& value) {
    if (const auto found = numbers_.find(&value); found != numbers_.end()) return found->second;
    const auto& root = root_of(value);
    if (&root == &value)
      throw std::logic_error("value %" + std::to_string(value.id()) + " is used and never made");
    const size_t base = slot_of(root);
    const size_t slot = add_slot(value, Slot::Kind::view);
    program_.slots[slot].root = base;
    program_.slots[slot].place = plan::offset_in_root(value);
    return slot;
  }

  /// The weight [out, in] of a product with its transpose, b, if that is a frozen input as it is.
  const Value* frozen_weight(const Value& b) const {
    const auto* view = b.producer();
    if (!view ||
        (view->op() != "aten::t" && view->op() != "aten::transpose.int" && view->op() != "aten::permute"))
      return nullptr;
    const auto* weight = codegen::view_source(*view);
    const auto& type = weight->type();
    const bool transposed = b.type().sizes[0] == type.sizes[1] && b.type().strides[0] == type.strides[1];
    return frozen_.contains(weight) && transposed && type.is_contiguous() ? weight : nullptr;
  }

  void pack(const ir::Node& node) {
    const auto product = ir::as_product(node);
    if (!product || product->batched) return;
    const auto* weight = frozen_weight(*product->b);
    if (!weight || node.output().type().numel() == 0 || weight->type().numel() == 0) return;
    const auto& x = product->a->type();
    if (!x.is_contiguous() || !node.output().type().is_contiguous()) return;
    if (product->added && (product->added->type().sizes.size() != 1 || product->is_scaled())) return;
    auto packed =
        device_.pack(weight->type().dtype, x.sizes[0], x.sizes[1], weight->type().sizes[0], measuring_);
    if (!packed) return;
    packed_.emplace(&node, std::make_pair(std::move(packed), weight));
    // The more rows, the longer a call takes, and the more of a weight can be looked at in it.
    constexpr int64_t rows_for_a_look = 32, most = 8;
    program_.looks_at_weights = std::clamp(x.sizes[0] / rows_for_a_look, program_.looks_at_weights, most);
  }

  /// Weights may be written past their versions, but for what the program itself has made of others.
  void watch_weights() {
    int64_t bytes = 0;
    const auto watched = [&](const Value* weight) { return !own_.contains(weight); };
    for (const auto& [node, packed] : packed_)
      if (watched(packed.second)) bytes += packed.second->type().bytes();
    for (const auto& [node, packed] : packed_)
      if (watched(packed.second)) packed.first->watch(part_of_all(bytes));
  }

  /// A view that is a call (as_strided, a view with another dtype) gives a tensor over the memory of its
  /// argument, for as long as somebody has it: that memory cannot be part of the arena, nor be written into.
  void find_aliased(const codegen::Schedule& schedule) {
    for (const auto& step : schedule.steps)
      if (step.external && ir::kind_of(step.external->op()) == ir::OpKind::view)
        for (const auto* value : step.external->inputs()) {
          leaves_.insert(&root_of(*value));
          aliased_.insert(&root_of(*value));
        }
  }

  /// The product onto which another is added, if that can be done in its memory: nobody needs it as it was.
  const Value* added_onto(const ir::Node& node, const codegen::Schedule& schedule) const {
    const auto product = planned_by(node);
    if ((product != Planned::addmm && product != Planned::operator_into) || packed_.contains(&node))
      return nullptr;
    const auto* self = added_to(node);
    if (!self) return nullptr;
    const auto* onto = &root_of(*self);  // seen as it lies there, whatever views are between
    if (onto->type() != node.output().type() || self->type() != onto->type() ||
        plan::offset_in_root(*self) != 0 || plan::reads_of(*onto) != 1 || leaves_.contains(onto) ||
        leaves_.contains(&node.output()) || aliased_.contains(onto) || !numbers_.contains(onto))
      return nullptr;
    const bool is_product = std::any_of(schedule.steps.begin(), schedule.steps.end(), [&](const auto& step) {
      return step.external && step.external == onto->producer() && planned_by(*step.external);
    });
    return is_product ? onto : nullptr;
  }

  /// Lets products do what a kernel of one function would do after them.
  void find_epilogues(const codegen::Schedule& schedule, const codegen::Predicates& predicates) {
    const auto packed = [&](const Value& value) {
      return packed_.contains(value.producer()) && !leaves_.contains(&value) && !aliased_.contains(&value);
    };
    for (const auto& [product, function] : functions_after(schedule, predicates, packed)) {
      if (!packed_.at(product).first->join(*epilogue_of(*function), measuring_)) continue;
      joined_.insert(function);
      epilogues_[product] = &function->output();
      if (logs(LogTopic::kernels)) log(LogTopic::kernels, "in its product: " + ir::to_string(*function));
    }
  }

  bool is_joined(const codegen::Step& step) const {
    return step.nodes.size() == 1 && joined_.contains(step.nodes.front());
  }

  void choose_memory(const codegen::Schedule& schedule) {
    for (const auto* value : plan::results_that_wait(schedule, leaves_))
      if (!planned_by(*value->producer()) && is_here(*value)) waiting_.emplace(value, none);
    for (const auto& step : schedule.steps) {
      if (step.external) {
        if (const auto* onto = added_onto(*step.external, schedule)) {
          numbers_[&step.external->output()] = numbers_.at(onto);
          continue;
        }
        const bool planned = planned_by(*step.external) && !packed_.contains(step.external);
        for (const auto& output : step.external->outputs()) {
          const auto moved = waiting_.find(output.get());
          const bool moves = moved != waiting_.end();
          if (moves) moved->second = add_slot(*output, Slot::Kind::made);
          add_slot(*output, !planned && !moves               ? Slot::Kind::made
                            : leaves_.contains(output.get()) ? Slot::Kind::own
                                                             : Slot::Kind::arena);
        }
        continue;
      }
      for (size_t i = 0; i < step.buffers.size(); ++i) {
        if (!step.kernel.buffers[i].written || numbers_.contains(step.buffers[i])) continue;
        if (step.onto)
          numbers_[step.buffers[i]] = numbers_.at(step.onto);
        else
          add_slot(*step.buffers[i], is_joined(step)                     ? Slot::Kind::made
                                     : leaves_.contains(step.buffers[i]) ? Slot::Kind::own
                                                                         : Slot::Kind::arena);
      }
    }
  }

  /// With `with_last` the kernel is part of the launch before it, and has no launcher of its own.
  void kernel_of(const codegen::Step& step, std::shared_ptr<const Launcher> launcher) {
    auto& action = program_.actions[heads_.back()];
    std::vector<Pointer> buffers;
    for (const auto* value : step.buffers) {
      const bool written = step.kernel.buffers[buffers.size()].written;
      buffers.push_back({slot_of(root_of(*value)),
                         plan::offset_in_root(*value) * ir::size_of(value->type().dtype), written});
      action.uses.push_back(buffers.back().slot);
      if (written) action.writes.push_back(buffers.back().slot);
    }
    if (!step.with_last) {
      auto work = std::make_unique<KernelWork>(std::move(launcher), static_cast<int32_t>(heads_.back() + 1));
      launch_ = work.get();
      action.work = std::move(work);
    }
    launch_->add(buffers);
    program_.most_buffers = std::max(program_.most_buffers, launch_->buffers());
    action.is_kernel = true;
    for (const auto* node : step.nodes) {
      action.what = ir::to_string(*node);
      if (node->op() == "aten::embedding" || node->op() == "aten::gather") break;
    }
  }

  void call_of(Action& action, const ir::Graph& graph, const ir::Node& node,
               const std::vector<at::Generator>& generators) {
    action.what = ir::to_string(node);
    if (node.op() == "graft::boundary") return;  // it has done its part
    ++program_.extern_calls;
    for (const auto* value : node.inputs()) slot_of(*value);
    const auto planned = planned_by(node);
    if (planned == Planned::operator_into) {
      // Where no row asks for an adapter, the result is what it would be added to.
      if (const auto* added = added_to(node)) action.else_from = slot_of(*added);
      action.else_to = slot_of(node.output());
      action.uses.push_back(action.else_to);
      action.work = std::make_unique<CallWork>(
          AtenCall::into(node, [&](const Value& value) { return slot_of(value); }));
    } else if (planned) {
      action.work = product_work(action, graph, node, *planned);
    } else {
      const auto place_of = [&](const Value& value) {
        const auto moved = value.producer() == &node ? waiting_.find(&value) : waiting_.end();
        return moved == waiting_.end() ? slot_of(value) : moved->second;
      };
      std::vector<std::pair<size_t, size_t>> moves;
      AtenCall call(node, place_of, generators);
      for (const auto& output : node.outputs())
        if (const size_t made = place_of(*output); made != slot_of(*output))
          moves.emplace_back(made, slot_of(*output));
      action.work = std::make_unique<CallWork>(std::move(call), std::move(moves));
    }
  }

  std::unique_ptr<Work> product_work(Action& action, const ir::Graph& graph, const ir::Node& node,
                                     Planned planned) {
    const auto parts = *ir::as_product(node);
    const size_t a = slot_of(*parts.a);
    const size_t added = parts.added ? slot_of(*parts.added) : none;
    const auto passed_on = epilogues_.find(&node);
    const size_t out = slot_of(passed_on == epilogues_.end() ? node.output() : *passed_on->second);
    action.uses.push_back(out);
    action.else_from = added;
    action.else_to = out;
    const auto found = packed_.find(&node);
    if (found == packed_.end()) {
      const ProductWork::Slots slots{.a = a, .b = slot_of(*parts.b), .out = out, .added = added};
      const auto way =
          planned == Planned::bmm
              ? nullptr
              : device_.fastest_way(program_.slots[out].type, parts.added ? &parts.added->type() : nullptr,
                                    parts.a->type(), parts.b->type(), measuring_);
      return std::make_unique<ProductWork>(device_, product_of(planned), slots, parts.beta, parts.alpha, way);
    }
    auto& [product, weight] = found->second;
    auto work = std::make_unique<PackedWork>(
        std::move(product), PackedWork::Slots{.x = a, .weight = slot_of(*weight), .out = out, .bias = added},
        program_.slots[out].type.sizes, program_.packed.size(), graph.input_name(weight->index()));
    program_.packed.push_back(work.get());
    return work;
  }

  /// Notes which actions a run may leave out, and when.
  void leave_out(const codegen::Schedule& schedule, const codegen::Predicates& predicates) {
    if (!predicates.table || predicates.table->type().dtype != ir::DType::boolean) return;
    program_.table = slot_of(*predicates.table);
    using Otherwise = codegen::Predicates::Otherwise;
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      if (!predicates.steps[i]) continue;
      auto& action = program_.actions[i];
      const bool is_itself = predicates.otherwise[i] == Otherwise::self;
      if (is_itself && action.else_to == none) continue;  // its memory is not planned: it always runs
      action.wanted_by.assign(predicates.steps[i]->begin(), predicates.steps[i]->end());
      const auto* call = schedule.steps[i].external;
      if (is_itself) continue;
      action.else_from = none;
      const bool zeros = predicates.otherwise[i] == Otherwise::zeros;
      if (zeros) action.zeros = action.writes;
      // A call that makes its own tensors leaves zeros in any case: there must be something.
      if (call)
        for (const auto& output : call->outputs())
          if (const size_t slot = slot_of(*output); zeros || program_.slots[slot].kind == Slot::Kind::made)
            action.zeros.push_back(slot);
    }
  }

  /// The first action from which on nothing can fail by its data.
  size_t safe_from(const codegen::Schedule& schedule) const {
    std::vector<bool> always;
    always.reserve(program_.actions.size());
    for (const auto& action : program_.actions) always.push_back(action.wanted_by.empty());
    const auto failing = plan::steps_that_can_fail(schedule, always);
    size_t safe = failing.size();
    while (safe > 0 && !failing[safe - 1]) --safe;
    return safe;
  }

  /// The last kernel that can leave a mark.
  void find_last_check(const codegen::Schedule& schedule) {
    for (size_t i = 0; i < schedule.steps.size(); ++i)
      if (!schedule.steps[i].external &&
          std::ranges::any_of(schedule.steps[i].kernel.code,
                              [](const auto& instruction) { return !instruction.indirect.empty(); }))
        program_.last_check = i;
  }

  /// Lets a run in place write a result straight into the input whose new value it is, where it can: nobody
  /// needs what was there, and nothing can fail any more.
  void write_into(const ir::Graph& graph, const codegen::Schedule& schedule, const InPlace& pair,
                  size_t safe) {
    const auto* result = graph.results()[pair.result];
    const auto* input = graph.inputs()[pair.input].get();
    if (!result || !numbers_.contains(result) || result->type() != input->type() ||
        aliased_.contains(input) || aliased_.contains(result) || plan::lies_in_another(*result, schedule) ||
        is_written_into(pair.input))
      return;
    const auto* node = result->producer();
    if (node && node->op() == "aten::index_copy") {
      // It looks at its indices before it writes: it may be the last to fail.
      const auto call = plan::call_that_may_write_rows_into(graph, schedule, *result, *input);
      if (!call || *call + 1 < safe) return;
      auto& action = program_.actions[*call];
      auto work = std::make_unique<RowUpdateWork>(
          device_, std::move(action.work),
          RowUpdateWork::Slots{slot_of(*input), slot_of(*ir::value_of(*node, "index")),
                               slot_of(*ir::value_of(*node, "source")), slot_of(*result),
                               static_cast<int64_t>(*ir::number_of(*node, "dim"))},
          static_cast<int32_t>(*call + 1), action.what);
      row_updates_.emplace(*call, work.get());
      action.work = std::move(work);
      if (*call + 1 == safe) program_.last_check = *call;  // the ones after it write to the same places
      program_.in_place.push_back({*call, pair.input, graph.input_name(pair.input)});
      return;
    }
    auto& slot = program_.slots[numbers_.at(result)];
    if (slot.kind != Slot::Kind::own) return;
    const auto kernel = plan::kernel_that_may_write_into(graph, schedule, *result, *input);
    if (!kernel || *kernel < safe || is_read_beside(*input, *kernel, schedule)) return;
    slot.into = pair.input;
    program_.actions[heads_[*kernel]].work->guard_writes();
    program_.in_place.push_back({heads_[*kernel], pair.input, graph.input_name(pair.input)});
  }

  /// Updates that follow each other, with the same places, are done at once.
  void join_row_updates() {
    std::vector<const RowUpdateWork*> joined;  // that the first of them does
    size_t head = 0;                           // the action that it is the work of
    for (size_t i = 0; i < program_.actions.size(); ++i) {
      auto& action = program_.actions[i];
      if (!action.work) continue;
      const auto found = row_updates_.find(i);
      const auto* update = found == row_updates_.end() ? nullptr : found->second;
      const bool joins = update && !joined.empty() && action.wanted_by == program_.actions[head].wanted_by &&
                         std::ranges::all_of(joined, [&](const auto* before) {
                           return can_be_done_at_once(program_.slots, before->slots(), update->slots());
                         });
      if (!joins) {
        joined.clear();
        head = i;
      }
      if (update) joined.push_back(update);
      heads_[i] = joins ? head : heads_[i];
    }
    for (const auto& [i, update] : row_updates_) {
      if (heads_[i] == i) continue;
      row_updates_.at(heads_[i])->take_over(*update);
      program_.actions[i].work = nullptr;
    }
  }

  /// Whether another kernel of the same launch reads the input.
  bool is_read_beside(const Value& input, size_t kernel, const codegen::Schedule& schedule) const {
    for (size_t i = heads_[kernel]; i < heads_.size() && heads_[i] == heads_[kernel]; ++i)
      if (i != kernel && std::ranges::any_of(schedule.steps[i].buffers,
                                             [&](const Value* value) { return &root_of(*value) == &input; }))
        return true;
    return false;
  }

  void log_in_place(const ir::Graph& graph, const std::vector<InPlace>& pairs) const {
    std::string text = "written in place: " + std::to_string(program_.in_place.size()) + " of " +
                       std::to_string(pairs.size()) + " inputs that change";
    for (const auto& pair : pairs)
      if (!is_written_into(pair.input)) text += "; not \"" + graph.input_name(pair.input) + "\"";
    log(LogTopic::kernels, text);
  }

  bool is_written_into(size_t input) const {
    return std::any_of(program_.in_place.begin(), program_.in_place.end(),
                       [&](const WrittenInput& written) { return written.input == input; });
  }

  /// First and last action that a slot is used by; a view's root lives as long as the view.
  struct Lives {
    std::vector<size_t> first, last;
  };
  Lives lives_of(const codegen::Schedule& schedule) {
    // Views get their slots here, before there is a life for each.
    for (const auto& step : schedule.steps)
      if (step.external)
        for (const auto* value : step.external->inputs()) slot_of(*value);
    Lives lives{std::vector<size_t>(program_.slots.size(), none),
                std::vector<size_t>(program_.slots.size(), 0)};
    const auto use = [&](size_t slot, size_t step) {
      for (size_t s = slot; s != none; s = program_.slots[s].root) {
        lives.first[s] = std::min(lives.first[s], step);
        lives.last[s] = std::max(lives.last[s], step);
      }
    };
    for (size_t i = 0; i < program_.actions.size(); ++i) {
      for (const size_t slot : program_.actions[i].uses) use(slot, i);
      const auto* call = schedule.steps[i].external;
      if (!call) continue;
      for (const auto* value : call->inputs()) use(slot_of(*value), heads_[i]);
      for (const auto& output : call->outputs()) use(slot_of(*output), heads_[i]);
    }
    // An input that a result is written into is needed when that is made.
    for (size_t s = 0; s < program_.slots.size(); ++s)
      if (program_.slots[s].into != none && lives.first[s] != none)
        use(program_.slots[s].into, lives.first[s]);
    for (const size_t result : program_.results) {
      if (result == none) continue;
      if (program_.slots[result].kind == Slot::Kind::view && lives.first[result] == none)
        program_.last_views.push_back(result);
      use(result, program_.actions.size());
    }
    return lives;
  }

  /// The arena's plan, and what each action has to make and may drop.
  void plan(const codegen::Schedule& schedule) {
    const auto lives = lives_of(schedule);
    place_temporaries(schedule, lives);
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      const auto& slot = program_.slots[s];
      if (program_.stays(slot) || lives.first[s] == none) continue;
      if (lives.last[s] < program_.actions.size()) program_.actions[lives.last[s]].dead.push_back(s);
      const bool made_there = slot.kind == Slot::Kind::own ||
                              (slot.kind == Slot::Kind::view && lives.first[s] < program_.actions.size());
      if (made_there) program_.actions[lives.first[s]].make.push_back(s);
    }
  }

  bool is_temporary(size_t slot) const { return program_.slots[slot].kind == Slot::Kind::arena; }

  /// Results of kernels that lie where a value lay which nobody but that kernel needed any more: by slot,
  /// whose memory it is.
  std::unordered_map<size_t, size_t> written_over(const codegen::Schedule& schedule, const Lives& lives) {
    std::unordered_map<size_t, size_t> memory_of;
    std::unordered_set<size_t> taken;
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      const auto& step = schedule.steps[i];
      if (step.external || is_joined(step)) continue;
      for (size_t to = 0; to < step.buffers.size(); ++to) {
        const size_t result = slot_of(root_of(*step.buffers[to]));
        if (!step.kernel.buffers[to].written || !is_temporary(result) || lives.first[result] != heads_[i])
          continue;
        for (const auto* buffer : step.buffers) {
          const auto& read = root_of(*buffer);
          const size_t from = slot_of(read);
          if (from == result || !is_temporary(from) || lives.last[from] != heads_[i] ||
              lives.first[from] == heads_[i] || taken.contains(from) || is_read_beside(read, i, schedule) ||
              !plan::may_be_written_over(step, *step.buffers[to], read))
            continue;
          memory_of[result] = from;
          taken.insert(from);
          break;
        }
      }
    }
    return memory_of;
  }

  void place_temporaries(const codegen::Schedule& schedule, const Lives& lives) {
    const auto memory_of = written_over(schedule, lives);
    const auto first_in = [&](size_t slot) {
      for (auto at = memory_of.find(slot); at != memory_of.end(); at = memory_of.find(slot))
        slot = at->second;
      return slot;
    };
    std::vector<size_t> planned;
    std::vector<plan::BufferLife> buffers;
    std::unordered_map<size_t, size_t> place_of;  // in `buffers`, of who lies there first
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      if (!is_temporary(s) || lives.first[s] == none) continue;
      planned.push_back(s);
      const auto [place, is_new] = place_of.try_emplace(first_in(s), buffers.size());
      if (is_new) buffers.push_back({program_.slots[s].type.bytes(), lives.first[s], lives.last[s]});
      auto& life = buffers[place->second];
      life.first = std::min(life.first, lives.first[s]);
      life.last = std::max(life.last, lives.last[s]);
    }
    // Gradients pile up at the end of a run that gives its results away.
    const auto plan = program_.keep_results ? plan::plan_memory(buffers, device_.alignment())
                                            : plan::plan_without_largest(buffers, device_.alignment());
    for (const size_t s : planned) {
      const auto offset = plan.offsets[place_of.at(first_in(s))];
      if (offset < 0)
        program_.slots[s].kind = Slot::Kind::own;
      else
        program_.slots[s].place = offset;
    }
    program_.arena_bytes = plan.total;
  }

  std::string reason_not_to_record(const codegen::Schedule& schedule) const {
    if (!device_.can_record()) return "the device records nothing";
    if (program_.launches + program_.extern_calls == 0) return "it launches nothing";
    for (const auto& slot : program_.slots)
      if (slot.type.numel() > 0 && slot.type.device != place_ && slot.kind != Slot::Kind::view)
        return "it has values that are not on the device";
    for (const auto& step : schedule.steps)
      if (step.external && step.external->op() != "graft::boundary" && ir::must_run(*step.external))
        return "it draws random numbers, or calls what may have an effect: " + ir::to_string(*step.external);
    return {};
  }

  const Device& device_;
  ir::Device place_;  // the same
  Prepared program_;
  cache::Measuring measuring_;
  std::vector<size_t> heads_;                     // of each step, the action that does its work
  KernelWork* launch_ = nullptr;                  // the last one
  std::map<size_t, RowUpdateWork*> row_updates_;  // by action
  std::unordered_map<const Value*, size_t> numbers_;
  std::unordered_set<const Value*> leaves_;   // roots of results, and of what views that are calls see
  std::unordered_set<const Value*> aliased_;  // the latter
  std::unordered_map<const Value*, size_t> waiting_;  // moved when it is made: the slot that the call fills
  std::unordered_set<const Value*> frozen_, own_;
  std::unordered_map<const ir::Node*, std::pair<std::unique_ptr<PackedProduct>, const Value*>> packed_;
  std::unordered_map<const ir::Node*, const Value*> epilogues_;  // of a product: what it gives instead
  std::unordered_set<const ir::Node*> joined_;                   // that products do
};

}  // namespace

Prepared prepare(const ir::Graph& graph, const codegen::Schedule& schedule,
                 const std::vector<std::shared_ptr<const Launcher>>& launchers,
                 const std::vector<at::Generator>& generators, const Bindings& bindings,
                 const Device& device) {
  return Preparation(device).prepare(graph, schedule, launchers, generators, bindings);
}

}  // namespace graft::runtime
