#include "runtime/scheduled.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "capture/ivalue.h"
#include "graft/error.h"
#include "plan/step_values.h"
#include "runtime/action_times.h"
#include "runtime/arena_pool.h"
#include "runtime/data_error.h"
#include "runtime/recorded_runs.h"
#include "runtime/tensor_over.h"
#include "support/log.h"

namespace graft {
namespace {

using runtime::Action;
using runtime::Frame;
using runtime::none;
using runtime::Slot;

class Scheduled : public Executable {
 public:
  Scheduled(runtime::Prepared program, int64_t unique_kernels, int64_t cache_hits, bool record)
      : program_(std::move(program)),
        device_(*program_.device),
        unique_kernels_(unique_kernels),
        cache_hits_(cache_hits) {
    size_t first = program_.actions.size();
    for (const auto& written : program_.in_place) first = std::min(first, written.action);
    if (first < program_.actions.size()) first_write_ = &program_.actions[first];
    if (program_.last_check != none) last_check_ = &program_.actions[program_.last_check];
    if (record && !program_.not_recorded.empty())
      log(LogTopic::kernels, "runs are not recorded: " + program_.not_recorded);
    else if (record)
      recorded_.emplace(
          device_, written_inputs(), moving_inputs(),
          [this](std::vector<at::Tensor> inputs, const auto& kind, const auto& context, const auto& cut) {
            return launch(std::move(inputs), kind, context, cut);
          },
          [this](runtime::RunContext& context) { check_failure(context); });
    text_ = std::to_string(program_.launches) + " kernel launches (" + std::to_string(unique_kernels_) +
            " different), " + std::to_string(program_.extern_calls) + " calls, " +
            std::to_string(program_.arena_bytes) + " bytes of temporaries";
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    TORCH_CHECK(inputs.size() == program_.inputs, "the program takes ", program_.inputs, " inputs, got ",
                inputs.size());
    const at::AutoDispatchBelowADInplaceOrView plain;
    if (recorded_) {
      runtime::RecordedRuns::Kind kind{.in_place = in_place};
      if (program_.table != none) device_.columns_in_use(inputs[program_.table], kind.in_use);
      if (auto results = recorded_->run(inputs, kind)) return std::move(*results);
    }
    return run_plainly(std::move(inputs), in_place);
  }

  ~Scheduled() override {
    if (logs(LogTopic::times)) log(LogTopic::times, runtime::times_of(program_.actions, runs_, text_));
  }

  int64_t kernels() const override { return unique_kernels_; }
  int64_t extern_calls() const override { return program_.extern_calls; }
  int64_t cache_hits() const override { return cache_hits_; }
  std::string describe() const override { return text_; }

 private:
  /// A frame over the memory of this run, with its inputs.
  std::unique_ptr<Frame> begin(const runtime::ArenaPool::Loan& memory, std::vector<at::Tensor>& inputs) {
    auto frame = take();
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory.start(), device_.place()));
    std::move(inputs.begin(), inputs.end(), frame->table.begin());
    return frame;
  }

  std::vector<at::Tensor> end(Frame& frame, bool in_place) const {
    for (const size_t slot : program_.last_views) make(slot, frame, in_place);
    std::vector<at::Tensor> results;
    results.reserve(program_.results.size());
    for (const size_t slot : program_.results)
      results.push_back(slot == none ? at::Tensor() : frame.table[slot]);
    return results;
  }

  std::vector<at::Tensor> run_plainly(std::vector<at::Tensor> inputs, bool in_place) {
    const runtime::ArenaPool::Loan memory(*arenas_, program_.arena_bytes);
    auto frame = begin(memory, inputs);
    std::vector<at::Tensor> results;
    size_t next = 0;  // the action that is to be done
    try {
      look_at_table(*frame);
      look_at_weights(*frame);
      if (logs(LogTopic::times)) {
        for (; next < program_.actions.size(); ++next) timed(program_.actions[next], *frame, in_place);
        ++runs_;
      } else {
        for (; next < program_.actions.size(); ++next) checked(program_.actions[next], *frame, in_place);
      }
      // Where kernels look for marks before they write into inputs, a mark says that none has done so.
      const size_t done = std::exchange(next, frame->context->guards_writes() ? 0 : next);
      check_failure(*frame->context);
      next = done;
      results = end(*frame, in_place);
    } catch (const std::exception& error) {
      forget_failure(*frame);
      give_back(std::move(frame));
      if (const auto changed = in_place ? changed_before(next) : ""; !changed.empty())
        throw Error(std::string(error.what()) + "\nThe call was given up half way: it has already changed " +
                    changed);
      throw;
    } catch (...) {
      forget_failure(*frame);
      give_back(std::move(frame));
      throw;
    }
    give_back(std::move(frame));
    return results;
  }

  std::vector<bool> written_inputs() const {
    std::vector<bool> written(program_.inputs);
    for (const auto& each : program_.in_place) written[each.input] = true;
    return written;
  }

  /// Calls with other choices of adapters have other tables.
  std::vector<bool> moving_inputs() const {
    std::vector<bool> moving(program_.inputs);
    if (program_.table != none) moving[program_.table] = true;
    return moving;
  }

  /// For what is recorded: nothing is waited for.
  std::vector<at::Tensor> launch(std::vector<at::Tensor> inputs, const runtime::RecordedRuns::Kind& kind,
                                 const std::shared_ptr<runtime::RunContext>& context,
                                 const runtime::Device::Cut& cut) {
    const runtime::ArenaPool::Loan memory(*arenas_, program_.arena_bytes);
    auto frame = begin(memory, inputs);
    const auto own = std::exchange(frame->context, context);
    std::vector<at::Tensor> results;
    std::exception_ptr failed;
    try {
      frame->in_use = kind.in_use;
      for (const auto& action : program_.actions) {
        if (kind.in_place && &action == first_write_ && last_check_ && !context->guards_writes()) cut();
        perform(action, *frame, kind.in_place);
      }
      results = end(*frame, kind.in_place);
    } catch (...) {
      failed = std::current_exception();
    }
    frame->context = own;
    give_back(std::move(frame));
    if (failed) std::rethrow_exception(failed);
    return results;
  }

  /// The inputs that a run in place has written into when an action fails, in words. What fails by its data
  /// comes before the first of them (failures.h); this is for the rest, such as memory that ran out.
  std::string changed_before(size_t action) const {
    std::string names;
    for (const auto& written : program_.in_place)
      if (written.action < action)
        names +=
            (names.empty() ? "" : ", ") +
            (written.name.empty() ? "input " + std::to_string(written.input) : "\"" + written.name + "\"");
    return names;
  }

  /// All weights at one time, and before anything is done: this may find that one cannot be relied on.
  void look_at_weights(Frame& frame) {
    for (const auto* work : program_.packed) work->look_at_weight(frame);
    frame.watched.clear();
    for (const auto* work : program_.packed) work->watch_weight(frame);
    if (frame.watched.empty()) return;
    try {
      for (int64_t look = 0; look < program_.looks_at_weights; ++look)
        if (!runtime::check_next_part(frame.watched, turn_++)) return look_at_weights(frame);
    } catch (const Mismatch&) {
      for (const auto* work : program_.packed) work->forget_weight();
      throw;
    }
  }

  at::Tensor view_of(const at::Tensor& root, const Slot& slot) const {
    return root.as_strided(slot.type.sizes, slot.type.strides, root.storage_offset() + slot.place);
  }

  static at::Tensor tensor_over(const c10::Storage& storage, const ir::TensorType& type, int64_t offset) {
    return runtime::tensor_over(storage, to_torch(type.dtype), type.sizes, type.strides, offset);
  }

  std::unique_ptr<Frame> new_frame() const {
    auto frame = std::make_unique<Frame>();
    frame->arena =
        c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(program_.arena_bytes),
                     at::DataPtr(nullptr, device_.place()), /*allocator=*/nullptr, /*resizable=*/false);
    frame->table.resize(program_.slots.size());
    frame->kept.resize(program_.slots.size());
    frame->packed.resize(program_.packed.size());
    frame->pointers.resize(program_.most_buffers);
    frame->context = device_.make_context();
    for (size_t s = 0; s < program_.slots.size(); ++s) {
      const auto& slot = program_.slots[s];
      if (slot.kind == Slot::Kind::arena)
        frame->table[s] = tensor_over(frame->arena, slot.type, slot.place / ir::size_of(slot.type.dtype));
    }
    for (size_t s = 0; s < program_.slots.size(); ++s)
      if (program_.slots[s].kind == Slot::Kind::view && program_.stays(program_.slots[s]))
        frame->table[s] = view_of(frame->table[program_.slots[s].root], program_.slots[s]);
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
    for (size_t s = 0; s < program_.slots.size(); ++s)
      if (!program_.stays(program_.slots[s])) frame->table[s].reset();
    for (auto& packed : frame->packed) packed.reset();
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, device_.place()));
    const std::lock_guard<std::mutex> lock(pool_guard_);
    pool_.push_back(std::move(frame));
  }

  void make(size_t number, Frame& frame, bool in_place) const {
    const auto& slot = program_.slots[number];
    auto& tensor = frame.table[number];
    if (slot.kind == Slot::Kind::view) {
      tensor = view_of(frame.table[slot.root], slot);
    } else if (in_place && slot.into != none) {
      tensor = frame.table[slot.into];
    } else {
      auto& kept = frame.kept[number];
      tensor = tensor_over(kept.take(slot.type.bytes(), device_), slot.type, 0);
      // Most runs are in place: no need to keep what the others write.
      if (!program_.keep_results || slot.into != none || device_.has_pool()) kept.drop();
    }
  }

  void timed(const Action& action, Frame& frame, bool in_place) const {
    const auto start = std::chrono::steady_clock::now();
    checked(action, frame, in_place);
    action.nanoseconds += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }

  void look_at_table(Frame& frame) const {
    if (program_.table != none) device_.columns_in_use(frame.table[program_.table], frame.in_use);
  }

  void leave_otherwise(const Action& action, Frame& frame) const {
    if (action.else_from != none && action.else_to != action.else_from)
      frame.table[action.else_to].copy_(frame.table[action.else_from]);
    for (const size_t number : action.zeros) {
      auto& tensor = frame.table[number];
      const auto& type = program_.slots[number].type;
      if (program_.slots[number].kind == Slot::Kind::made)
        tensor = at::empty_strided(type.sizes, type.strides,
                                   at::dtype(to_torch(type.dtype)).device(to_torch(type.device)));
      // An input's memory may have others' between its elements.
      if (type.is_dense())
        device_.zero(tensor);
      else
        tensor.zero_();
    }
  }

  /// Where failures are seen late, they are looked for before an input is changed.
  void checked(const Action& action, Frame& frame, bool in_place) const {
    const auto& context = *frame.context;
    if (in_place && &action == first_write_ && !context.is_immediate() && !context.guards_writes())
      check_failure(*frame.context);
    perform(action, frame, in_place);
  }

  void perform(const Action& action, Frame& frame, bool in_place) const {
    for (const size_t slot : action.make) make(slot, frame, in_place);
    const bool needed =
        action.wanted_by.empty() || std::any_of(action.wanted_by.begin(), action.wanted_by.end(),
                                                [&](size_t slot) { return frame.in_use[slot]; });
    if (!needed)
      leave_otherwise(action, frame);
    else if (action.work)
      action.work->run(frame, in_place);
    if (action.is_kernel && frame.context->is_immediate()) check_failure(*frame.context);
    if (&action == last_check_) frame.context->end_checks();
    for (const size_t slot : action.dead) frame.table[slot].reset();
  }

  /// Of a run that was given up: it is not the next one's.
  static void forget_failure(Frame& frame) noexcept {
    try {
      frame.context->take_failure();
    } catch (const std::exception& error) {  // the device is lost: the next call will say so, too
      log(LogTopic::kernels, error.what());
    }
  }

  void check_failure(runtime::RunContext& context) const {
    if (program_.last_check == none) return;
    if (const auto mark = context.take_failure())
      throw runtime::DataError("[kernel] an index in the data is out of range, in " +
                               program_.actions[static_cast<size_t>(mark) - 1].what);
  }

  runtime::Prepared program_;
  const runtime::Device& device_;
  const Action* first_write_ = nullptr;  // of a run in place, into an input
  const Action* last_check_ = nullptr;   // the last that can fail by its data
  int64_t unique_kernels_, cache_hits_;
  std::string text_;
  std::shared_ptr<runtime::ArenaPool> arenas_ = runtime::ArenaPool::shared(device_);
  std::atomic<int64_t> runs_{0};
  std::atomic<uint64_t> turn_{0};
  std::mutex pool_guard_;
  std::vector<std::unique_ptr<Frame>> pool_;
  std::optional<runtime::RecordedRuns> recorded_;
};

}  // namespace

std::unique_ptr<Executable> make_scheduled(const ir::Graph& graph, const codegen::Schedule& schedule,
                                           const CompiledKernels& kernels,
                                           const std::vector<at::Generator>& generators,
                                           const Bindings& bindings, const runtime::Device& device) {
  return std::make_unique<Scheduled>(
      runtime::prepare(graph, schedule, kernels.launchers, generators, bindings, device), kernels.unique,
      kernels.cache_hits, bindings.record);
}

}  // namespace graft
