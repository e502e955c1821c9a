#include "runtime/scheduled.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "capture/ivalue.h"
#include "codegen/predicates.h"
#include "codegen/views.h"
#include "graft/error.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "runtime/action.h"
#include "runtime/action_times.h"
#include "runtime/arena_pool.h"
#include "runtime/epilogue.h"
#include "runtime/in_place.h"
#include "runtime/memory_plan.h"
#include "runtime/packed_product.h"
#include "runtime/product.h"
#include "runtime/waiting.h"
#include "support/log.h"

namespace graft {
namespace {

using codegen::root_of;
using ir::Value;
using runtime::Action;
using runtime::bytes_of;
using runtime::Frame;
using runtime::none;
using runtime::offset_in_root;
using runtime::Product;
using runtime::product_of;
using runtime::Slot;

class Scheduled : public Executable {
 public:
  Scheduled(const ir::Graph& graph, const codegen::Schedule& schedule, CompiledKernels kernels,
            const std::vector<at::Generator>& generators, const Bindings& bindings)
      : kernels_(std::move(kernels)), keep_results_(bindings.keep_results), measuring_(bindings.measuring) {
    for (const auto& input : graph.inputs()) add_slot(*input, Slot::Kind::input);
    inputs_ = slots_.size();
    for (const size_t i : bindings.frozen) frozen_.insert(graph.inputs()[i].get());
    for (const auto& step : schedule.steps)
      if (step.external) pack(*step.external);
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
      auto& action = actions_.emplace_back();
      if (step.external)
        call_of(action, *step.external, generators);
      else if (const auto& launcher = kernels_.launchers[kernel++]; !is_joined(step))
        kernel_of(action, step, launcher);
    }
    leave_out(schedule, predicates);
    for (const auto* result : graph.results()) results_.push_back(result ? slot_of(*result) : none);
    for (const auto& pair : bindings.in_place) write_into(graph, schedule, pair);
    plan(schedule);
    text_ = std::to_string(kernel - joined_.size()) + " kernel launches (" + std::to_string(kernels_.unique) +
            " different), " + std::to_string(extern_calls_) + " calls, " + std::to_string(arena_bytes_) +
            " bytes of temporaries";
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    TORCH_CHECK(inputs.size() == inputs_, "the program takes ", inputs_, " inputs, got ", inputs.size());
    const at::AutoDispatchBelowADInplaceOrView plain;
    const runtime::ArenaPool::Loan memory(*arenas_, arena_bytes_);
    auto frame = take();
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory.start(), at::kCPU));
    std::move(inputs.begin(), inputs.end(), frame->table.begin());
    std::vector<at::Tensor> results;
    try {
      look_at_table(*frame);
      if (logs(LogTopic::times)) {
        for (const auto& action : actions_) timed(action, *frame, in_place);
        ++runs_;
      } else {
        for (const auto& action : actions_) perform(action, *frame, in_place);
      }
      for (const size_t slot : last_views_) make(slot, *frame, in_place);
      results.reserve(results_.size());
      for (const size_t slot : results_) results.push_back(slot == none ? at::Tensor() : frame->table[slot]);
    } catch (...) {
      give_back(std::move(frame));
      throw;
    }
    give_back(std::move(frame));
    return results;
  }

  ~Scheduled() override {
    if (logs(LogTopic::times)) log(LogTopic::times, runtime::times_of(actions_, runs_, text_));
  }

  int64_t kernels() const override { return kernels_.unique; }
  int64_t extern_calls() const override { return extern_calls_; }
  int64_t cache_hits() const override { return kernels_.cache_hits; }
  std::string describe() const override { return text_; }

 private:
  // --- building

  size_t add_slot(const Value& value, Slot::Kind kind) {
    slots_.push_back({kind, value.type()});
    numbers_[&value] = slots_.size() - 1;
    return slots_.size() - 1;
  }

  /// The slot of any value; views get theirs when first asked for.
  size_t slot_of(const Value& value) {
    if (const auto found = numbers_.find(&value); found != numbers_.end()) return found->second;
    const auto& root = root_of(value);
    if (&root == &value)
      throw std::logic_error("value %" + std::to_string(value.id()) + " is used and never made");
    const size_t base = slot_of(root);
    const size_t slot = add_slot(value, Slot::Kind::view);
    slots_[slot].root = base;
    slots_[slot].place = offset_in_root(value);
    return slot;
  }

  /// The weight [out, in] of a product with its transpose, if that is a frozen input as it is.
  const Value* frozen_weight(const ir::Node& node) const {
    const auto* b = ir::value_of(node, "mat2");
    const auto* view = b ? b->producer() : nullptr;
    if (!view ||
        (view->op() != "aten::t" && view->op() != "aten::transpose.int" && view->op() != "aten::permute"))
      return nullptr;
    const auto* weight = codegen::view_source(*view);
    const auto& type = weight->type();
    const bool transposed = b->type().sizes[0] == type.sizes[1] && b->type().strides[0] == type.strides[1];
    return frozen_.contains(weight) && transposed && type.dtype == ir::DType::f32 && type.is_contiguous()
               ? weight
               : nullptr;
  }

  void pack(const ir::Node& node) {
    const bool add = node.op() == "aten::addmm";
    if (node.op() != "aten::mm" && !add) return;
    const auto* weight = frozen_weight(node);
    if (!weight || node.output().type().numel() == 0 || weight->type().numel() == 0) return;
    const auto& x = ir::value_of(node, add ? "mat1" : "self")->type();
    if (!x.is_contiguous() || !node.output().type().is_contiguous()) return;
    if (add &&
        (ir::value_of(node, "self")->type().sizes.size() != 1 ||
         ir::number_of(node, "alpha").value_or(1) != 1 || ir::number_of(node, "beta").value_or(1) != 1))
      return;
    auto packed = PackedProduct::make(x.sizes[0], x.sizes[1], weight->type().sizes[0], measuring_);
    if (packed) packed_.emplace(&node, std::make_pair(std::move(packed), weight));
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
    const auto product = product_of(node);
    if ((product != Product::addmm && product != Product::low_rank) || packed_.contains(&node))
      return nullptr;
    const auto* self = ir::value_of(node, "self");
    const auto* onto = &root_of(*self);  // seen as it lies there, whatever views are between
    if (onto->type() != node.output().type() || self->type() != onto->type() || offset_in_root(*self) != 0 ||
        runtime::reads_of(*onto) != 1 || leaves_.contains(onto) || leaves_.contains(&node.output()) ||
        aliased_.contains(onto) || !numbers_.contains(onto))
      return nullptr;
    const bool is_product = std::any_of(schedule.steps.begin(), schedule.steps.end(), [&](const auto& step) {
      return step.external && step.external == onto->producer() && product_of(*step.external);
    });
    return is_product ? onto : nullptr;
  }

  /// Lets products do what a kernel of one function would do after them.
  void find_epilogues(const codegen::Schedule& schedule, const codegen::Predicates& predicates) {
    const auto packed = [&](const Value& value) {
      return packed_.contains(value.producer()) && !leaves_.contains(&value) && !aliased_.contains(&value);
    };
    for (const auto& [product, function] : runtime::functions_after(schedule, predicates, packed)) {
      if (!packed_.at(product).first->join(*runtime::epilogue_of(*function), measuring_)) continue;
      joined_.insert(function);
      epilogues_[product] = &function->output();
      if (logs(LogTopic::kernels)) log(LogTopic::kernels, "in its product: " + ir::to_string(*function));
    }
  }

  bool is_joined(const codegen::Step& step) const {
    return step.nodes.size() == 1 && joined_.contains(step.nodes.front());
  }

  void choose_memory(const codegen::Schedule& schedule) {
    for (const auto* value : runtime::results_that_wait(schedule))
      if (!leaves_.contains(value) && !product_of(*value->producer())) waiting_.emplace(value, none);
    for (const auto& step : schedule.steps) {
      if (step.external) {
        if (const auto* onto = added_onto(*step.external, schedule)) {
          numbers_[&step.external->output()] = numbers_.at(onto);
          continue;
        }
        const bool planned = product_of(*step.external) && !packed_.contains(step.external);
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

  void kernel_of(Action& action, const codegen::Step& step, std::shared_ptr<const Launcher> launcher) {
    action.launcher = std::move(launcher);
    for (const auto* value : step.buffers) {
      const auto& root = root_of(*value);
      const bool written = step.kernel.buffers[action.buffers.size()].written;
      action.buffers.push_back(
          {slot_of(root), offset_in_root(*value) * ir::size_of(value->type().dtype), written});
    }
    for (const auto* node : step.nodes) {
      action.what = ir::to_string(*node);
      if (node->op() == "aten::embedding" || node->op() == "aten::gather") break;
    }
  }

  void call_of(Action& action, const ir::Node& node, const std::vector<at::Generator>& generators) {
    action.what = ir::to_string(node);
    if (node.op() == "graft::boundary") return;  // it has done its part
    ++extern_calls_;
    for (const auto* value : node.inputs()) slot_of(*value);
    const auto product = product_of(node);
    if (product == Product::low_rank) {
      action.call = std::make_unique<AtenCall>(
          AtenCall::into(node, [&](const Value& value) { return slot_of(value); }));
      return;
    }
    action.product = product;
    if (action.product) {
      const bool add = action.product == Product::addmm;
      action.a = slot_of(*ir::value_of(node, add ? "mat1" : "self"));
      action.b = slot_of(*ir::value_of(node, "mat2"));
      if (add) action.bias = slot_of(*ir::value_of(node, "self"));
      action.alpha = ir::number_of(node, "alpha").value_or(1);
      action.beta = ir::number_of(node, "beta").value_or(1);
      const auto passed_on = epilogues_.find(&node);
      action.out = slot_of(passed_on == epilogues_.end() ? node.output() : *passed_on->second);
      if (const auto found = packed_.find(&node); found != packed_.end()) {
        action.packed = std::move(found->second.first);
        action.b = slot_of(*found->second.second);
      }
      return;
    }
    const auto place_of = [&](const Value& value) {
      const auto moved = value.producer() == &node ? waiting_.find(&value) : waiting_.end();
      return moved == waiting_.end() ? slot_of(value) : moved->second;
    };
    action.call = std::make_unique<AtenCall>(node, place_of, generators);
    for (const auto& output : node.outputs())
      if (const size_t made = place_of(*output); made != slot_of(*output))
        action.moves.emplace_back(made, slot_of(*output));
  }

  /// Notes which actions a run may leave out, and when.
  void leave_out(const codegen::Schedule& schedule, const codegen::Predicates& predicates) {
    if (!predicates.table || predicates.table->type().dtype != ir::DType::boolean) return;
    table_ = slot_of(*predicates.table);
    for (size_t i = 0; i < schedule.steps.size(); ++i) {
      if (!predicates.steps[i]) continue;
      auto& action = actions_[i];
      action.wanted_by.assign(predicates.steps[i]->begin(), predicates.steps[i]->end());
      const auto* call = schedule.steps[i].external;
      using Otherwise = codegen::Predicates::Otherwise;
      action.else_self = predicates.otherwise[i] == Otherwise::self;
      if (action.else_self) continue;
      const bool zeros = predicates.otherwise[i] == Otherwise::zeros;
      for (const auto& buffer : action.buffers)
        if (buffer.written && zeros) action.zeros.push_back(buffer.slot);
      // A call that makes its own tensors leaves zeros in any case: there must be something.
      if (call)
        for (const auto& output : call->outputs())
          if (const size_t slot = slot_of(*output); zeros || slots_[slot].kind == Slot::Kind::made)
            action.zeros.push_back(slot);
    }
  }

  /// Lets a run in place write a result straight into the input whose new value it is, where it can.
  void write_into(const ir::Graph& graph, const codegen::Schedule& schedule, const InPlace& pair) {
    const auto* result = graph.results()[pair.result];
    const auto* input = graph.inputs()[pair.input].get();
    if (!result || !numbers_.contains(result) || result->type() != input->type() ||
        aliased_.contains(input) || aliased_.contains(result) || runtime::lies_in_another(*result, schedule))
      return;
    if (const auto* node = result->producer(); node && node->op() == "aten::index_copy") {
      if (!runtime::rows_may_be_written_into(graph, schedule, *result, *input)) return;
      for (size_t i = 0; i < schedule.steps.size(); ++i)
        if (schedule.steps[i].external == node)
          actions_[i].update = {slot_of(*input), slot_of(*ir::value_of(*node, "index")),
                                slot_of(*ir::value_of(*node, "source")), slot_of(*result),
                                static_cast<int64_t>(*ir::number_of(*node, "dim"))};
      return;
    }
    auto& slot = slots_[numbers_.at(result)];
    if (slot.kind == Slot::Kind::own && runtime::kernel_may_write_into(graph, schedule, *result, *input))
      slot.into = pair.input;
  }

  /// Arena tensors and views of them are made once per frame; the rest comes and goes with a run.
  bool stays(const Slot& slot) const {
    return (slot.kind == Slot::Kind::view ? slots_[slot.root].kind : slot.kind) == Slot::Kind::arena;
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
    Lives lives{std::vector<size_t>(slots_.size(), none), std::vector<size_t>(slots_.size(), 0)};
    const auto use = [&](size_t slot, size_t step) {
      for (size_t s = slot; s != none; s = slots_[s].root) {
        lives.first[s] = std::min(lives.first[s], step);
        lives.last[s] = std::max(lives.last[s], step);
      }
    };
    for (size_t i = 0; i < actions_.size(); ++i) {
      for (const auto& buffer : actions_[i].buffers) use(buffer.slot, i);
      if (actions_[i].out != none) use(actions_[i].out, i);
      const auto* call = schedule.steps[i].external;
      if (!call) continue;
      for (const auto* value : call->inputs()) use(slot_of(*value), i);
      for (const auto& output : call->outputs()) use(slot_of(*output), i);
    }
    for (const size_t result : results_) {
      if (result == none) continue;
      if (slots_[result].kind == Slot::Kind::view && lives.first[result] == none)
        last_views_.push_back(result);
      use(result, actions_.size());
    }
    return lives;
  }

  /// The arena's plan, and what each action has to make and may drop.
  void plan(const codegen::Schedule& schedule) {
    const auto lives = lives_of(schedule);
    place_temporaries(lives);
    for (size_t s = 0; s < slots_.size(); ++s) {
      const auto& slot = slots_[s];
      if (stays(slot) || lives.first[s] == none) continue;
      if (lives.last[s] < actions_.size()) actions_[lives.last[s]].dead.push_back(s);
      const bool made_there =
          slot.kind == Slot::Kind::own || (slot.kind == Slot::Kind::view && lives.first[s] < actions_.size());
      if (made_there) actions_[lives.first[s]].make.push_back(s);
    }
    for (const auto& action : actions_) most_buffers_ = std::max(most_buffers_, action.buffers.size());
  }

  void place_temporaries(const Lives& lives) {
    std::vector<size_t> planned;
    for (size_t s = 0; s < slots_.size(); ++s)
      if (slots_[s].kind == Slot::Kind::arena && lives.first[s] != none) planned.push_back(s);
    std::vector<runtime::BufferLife> buffers;
    buffers.reserve(planned.size());
    for (const size_t s : planned)
      buffers.push_back({bytes_of(slots_[s].type), lives.first[s], lives.last[s]});
    // Gradients pile up at the end of a run that gives its results away.
    const auto plan = keep_results_ ? runtime::plan_memory(buffers) : runtime::plan_without_largest(buffers);
    for (size_t i = 0; i < planned.size(); ++i) {
      auto& slot = slots_[planned[i]];
      if (plan.offsets[i] < 0)
        slot.kind = Slot::Kind::own;
      else
        slot.place = plan.offsets[i];
    }
    arena_bytes_ = plan.total;
  }

  // --- running

  at::Tensor view_of(const at::Tensor& root, const Slot& slot) const {
    return root.as_strided(slot.type.sizes, slot.type.strides, root.storage_offset() + slot.place);
  }

  static at::Tensor tensor_over(const c10::Storage& storage, const ir::TensorType& type, int64_t offset) {
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                           c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                           at::scalarTypeToTypeMeta(to_torch(type.dtype)));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type.sizes, type.strides, offset);
    return tensor;
  }

  std::unique_ptr<Frame> new_frame() const {
    auto frame = std::make_unique<Frame>();
    frame->arena = c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(arena_bytes_),
                                at::DataPtr(nullptr, at::kCPU), /*allocator=*/nullptr, /*resizable=*/false);
    frame->table.resize(slots_.size());
    frame->kept.resize(slots_.size());
    frame->pointers.resize(most_buffers_);
    for (size_t s = 0; s < slots_.size(); ++s) {
      const auto& slot = slots_[s];
      if (slot.kind == Slot::Kind::arena)
        frame->table[s] = tensor_over(frame->arena, slot.type, slot.place / ir::size_of(slot.type.dtype));
    }
    for (size_t s = 0; s < slots_.size(); ++s)
      if (slots_[s].kind == Slot::Kind::view && stays(slots_[s]))
        frame->table[s] = view_of(frame->table[slots_[s].root], slots_[s]);
    return frame;
  }

  std::unique_ptr<Frame> take() {
    {
      const std::lock_guard<std::mutex> lock(pool_guard_);
      if (!pool_.empty()) {
        auto frame = std::move(pool_.back());
        pool_.pop_back();
        return frame;
      }
    }
    return new_frame();
  }

  void give_back(std::unique_ptr<Frame> frame) {
    for (size_t s = 0; s < slots_.size(); ++s)
      if (!stays(slots_[s])) frame->table[s].reset();
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
    const std::lock_guard<std::mutex> lock(pool_guard_);
    pool_.push_back(std::move(frame));
  }

  void make(size_t number, Frame& frame, bool in_place) const {
    const auto& slot = slots_[number];
    auto& tensor = frame.table[number];
    if (slot.kind == Slot::Kind::view) {
      tensor = view_of(frame.table[slot.root], slot);
    } else if (in_place && slot.into != none) {
      tensor = frame.table[slot.into];
    } else {
      // Fresh pages cost more than the arithmetic on them: take the memory of an earlier run if it came back.
      auto& kept = frame.kept[number];
      if (!kept || kept.use_count() > 1) kept = at::empty({bytes_of(slot.type)}, at::kByte).storage();
      tensor = tensor_over(kept, slot.type, 0);
      if (!keep_results_ || slot.into != none) kept = {};  // most runs are in place and do not need it
    }
  }

  void timed(const Action& action, Frame& frame, bool in_place) const {
    const auto start = std::chrono::steady_clock::now();
    perform(action, frame, in_place);
    action.nanoseconds += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }

  void look_at_table(Frame& frame) const {
    if (table_ == none) return;
    const auto& table = frame.table[table_];
    frame.in_use.assign(static_cast<size_t>(table.size(1)), 0);
    const auto* cells = table.const_data_ptr<bool>();
    for (int64_t row = 0; row < table.size(0); ++row)
      for (int64_t slot = 0; slot < table.size(1); ++slot)
        frame.in_use[static_cast<size_t>(slot)] |= cells[row * table.stride(0) + slot * table.stride(1)];
  }

  void leave_otherwise(const Action& action, Frame& frame) const {
    if (action.else_self && action.out != action.bias)
      frame.table[action.out].copy_(frame.table[action.bias]);
    for (const size_t number : action.zeros) {
      auto& tensor = frame.table[number];
      const auto& type = slots_[number].type;
      if (slots_[number].kind == Slot::Kind::made)
        tensor = at::empty_strided(type.sizes, type.strides, to_torch(type.dtype));
      if (const auto bytes = static_cast<size_t>(bytes_of(type)); bytes > 0)
        std::memset(tensor.data_ptr(), 0, bytes);
    }
  }

  void perform(const Action& action, Frame& frame, bool in_place) const {
    for (const size_t slot : action.make) make(slot, frame, in_place);
    const bool needed =
        action.wanted_by.empty() || std::any_of(action.wanted_by.begin(), action.wanted_by.end(),
                                                [&](size_t slot) { return frame.in_use[slot]; });
    if (!needed) {
      leave_otherwise(action, frame);
    } else if (action.launcher) {
      for (size_t i = 0; i < action.buffers.size(); ++i) {
        const auto& buffer = action.buffers[i];
        const auto& tensor = frame.table[buffer.slot];
        // Asking for a pointer to write copies a tensor that shares its memory (weights mapped from a file).
        auto* start = buffer.written ? tensor.data_ptr() : const_cast<void*>(tensor.const_data_ptr());
        frame.pointers[i] = static_cast<char*>(start) + buffer.bytes;
      }
      if (!action.launcher->launch(frame.pointers.data()))
        throw Error("[kernel] an index in the data is out of range, in " + action.what);
    } else if (action.product) {
      multiply(action, frame);
    } else if (in_place && action.update) {
      const auto& [input, index, source, out, dim] = *action.update;
      frame.table[out] = frame.table[input];
      frame.table[out].index_copy_(dim, frame.table[index], frame.table[source]);
    } else if (action.call) {
      action.call->run(frame.table);
      for (const auto& [from, to] : action.moves) {
        frame.table[to].copy_(frame.table[from]);
        frame.table[from].reset();
      }
    }
    for (const size_t slot : action.dead) frame.table[slot].reset();
  }

  void multiply(const Action& action, Frame& frame) const {
    auto& out = frame.table[action.out];
    const auto& a = frame.table[action.a];
    const auto& b = frame.table[action.b];
    if (action.packed) {
      const auto bias = action.bias == none ? at::Tensor() : frame.table[action.bias];
      // A tensor of inference mode has no version to go by.
      out = b.is_inference() ? action.packed->run_plain(a, b, bias) : action.packed->run(a, b, bias);
      out = out.view(slots_[action.out].type.sizes);
      return;
    }
    if (*action.product == Product::mm)
      runtime::multiply_into(out, a, b);
    else if (*action.product == Product::bmm)
      at::bmm_out(out, a, b);
    else
      runtime::multiply_and_add_into(out, frame.table[action.bias], a, b, action.beta, action.alpha);
  }

  CompiledKernels kernels_;
  std::vector<Slot> slots_;
  std::unordered_map<const Value*, size_t> numbers_;  // while building
  std::unordered_set<const Value*> leaves_;   // roots of results, and of what views that are calls see
  std::unordered_set<const Value*> aliased_;  // the latter
  std::unordered_map<const Value*, size_t> waiting_;  // moved when it is made: the slot that the call fills
  std::unordered_set<const Value*> frozen_;
  std::unordered_map<const ir::Node*, std::pair<std::unique_ptr<PackedProduct>, const Value*>> packed_;
  std::unordered_map<const ir::Node*, const Value*> epilogues_;  // of a product: what it gives instead
  std::unordered_set<const ir::Node*> joined_;                   // that products do
  std::deque<Action> actions_;
  std::vector<size_t> results_, last_views_;
  bool keep_results_;
  runtime::Measuring measuring_;
  std::shared_ptr<runtime::ArenaPool> arenas_ = runtime::ArenaPool::shared();
  size_t inputs_ = 0, most_buffers_ = 0, table_ = none;
  int64_t arena_bytes_ = 0, extern_calls_ = 0;
  std::atomic<int64_t> runs_{0};
  std::string text_;
  std::mutex pool_guard_;
  std::vector<std::unique_ptr<Frame>> pool_;
};

}  // namespace

std::unique_ptr<Executable> make_scheduled(const ir::Graph& graph, const codegen::Schedule& schedule,
                                           CompiledKernels kernels,
                                           const std::vector<at::Generator>& generators,
                                           const Bindings& bindings) {
  return std::make_unique<Scheduled>(graph, schedule, std::move(kernels), generators, bindings);
}

}  // namespace graft
