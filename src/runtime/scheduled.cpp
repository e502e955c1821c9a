#include "runtime/scheduled.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

#include "capture/ivalue.h"
#include "graft/error.h"
#include "runtime/action_times.h"
#include "runtime/arena_pool.h"
#include "runtime/packed_product.h"
#include "runtime/product.h"
#include "support/log.h"

namespace graft {
namespace {

using runtime::Action;
using runtime::bytes_of;
using runtime::Frame;
using runtime::none;
using runtime::Product;
using runtime::Slot;

class Scheduled : public Executable {
 public:
  Scheduled(runtime::Prepared program, int64_t unique_kernels, int64_t cache_hits)
      : program_(std::move(program)), unique_kernels_(unique_kernels), cache_hits_(cache_hits) {
    text_ = std::to_string(program_.launches) + " kernel launches (" + std::to_string(unique_kernels_) +
            " different), " + std::to_string(program_.extern_calls) + " calls, " +
            std::to_string(program_.arena_bytes) + " bytes of temporaries";
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    TORCH_CHECK(inputs.size() == program_.inputs, "the program takes ", program_.inputs, " inputs, got ",
                inputs.size());
    const at::AutoDispatchBelowADInplaceOrView plain;
    const runtime::ArenaPool::Loan memory(*arenas_, program_.arena_bytes);
    auto frame = take();
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory.start(), at::kCPU));
    std::move(inputs.begin(), inputs.end(), frame->table.begin());
    std::vector<at::Tensor> results;
    size_t next = 0;  // the action that is to be done
    try {
      look_at_table(*frame);
      look_at_weights(*frame);
      if (logs(LogTopic::times)) {
        for (; next < program_.actions.size(); ++next) timed(program_.actions[next], *frame, in_place);
        ++runs_;
      } else {
        for (; next < program_.actions.size(); ++next) perform(program_.actions[next], *frame, in_place);
      }
      for (const size_t slot : program_.last_views) make(slot, *frame, in_place);
      results.reserve(program_.results.size());
      for (const size_t slot : program_.results)
        results.push_back(slot == none ? at::Tensor() : frame->table[slot]);
    } catch (const std::exception& error) {
      give_back(std::move(frame));
      if (const auto changed = in_place ? changed_before(next) : ""; !changed.empty())
        throw Error(std::string(error.what()) + "\nThe call was given up half way: it has already changed " +
                    changed);
      throw;
    } catch (...) {
      give_back(std::move(frame));
      throw;
    }
    give_back(std::move(frame));
    return results;
  }

  ~Scheduled() override {
    if (logs(LogTopic::times)) log(LogTopic::times, runtime::times_of(program_.actions, runs_, text_));
  }

  int64_t kernels() const override { return unique_kernels_; }
  int64_t extern_calls() const override { return program_.extern_calls; }
  int64_t cache_hits() const override { return cache_hits_; }
  std::string describe() const override { return text_; }

 private:
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
    for (const auto* action : program_.packed)
      frame.packed[action->packed_number] = action->packed->packed_for(frame.table[action->b]);
    frame.watched.clear();
    for (const auto* action : program_.packed)
      if (const auto& packed = frame.packed[action->packed_number]; packed && packed->seen.parts() > 0)
        frame.watched.push_back({&packed->seen, &frame.table[action->b], &action->weight});
    if (frame.watched.empty()) return;
    try {
      for (int64_t look = 0; look < program_.looks_at_weights; ++look)
        if (!runtime::check_next_part(frame.watched, turn_++)) return look_at_weights(frame);
    } catch (const Mismatch&) {
      for (const auto* action : program_.packed) action->packed->forget();
      throw;
    }
  }

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
    frame->arena = c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(program_.arena_bytes),
                                at::DataPtr(nullptr, at::kCPU), /*allocator=*/nullptr, /*resizable=*/false);
    frame->table.resize(program_.slots.size());
    frame->kept.resize(program_.slots.size());
    frame->packed.resize(program_.packed.size());
    frame->pointers.resize(program_.most_buffers);
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
    frame->arena.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
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
      tensor = tensor_over(kept.take(bytes_of(slot.type)), slot.type, 0);
      if (!program_.keep_results || slot.into != none) kept.drop();  // most runs are in place: no need for it
    }
  }

  void timed(const Action& action, Frame& frame, bool in_place) const {
    const auto start = std::chrono::steady_clock::now();
    perform(action, frame, in_place);
    action.nanoseconds += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }

  void look_at_table(Frame& frame) const {
    if (program_.table == none) return;
    const auto& table = frame.table[program_.table];
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
      const auto& type = program_.slots[number].type;
      if (program_.slots[number].kind == Slot::Kind::made)
        tensor = at::empty_strided(type.sizes, type.strides, to_torch(type.dtype));
      // An input's memory may have others' between its elements.
      if (!type.is_dense())
        tensor.zero_();
      else if (const auto bytes = static_cast<size_t>(bytes_of(type)); bytes > 0)
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
      // Asking for a pointer to write copies a tensor that shares its memory (weights mapped from a file):
      // first, so that who reads the same tensor reads the copy.
      for (const bool written : {true, false})
        for (size_t i = 0; i < action.buffers.size(); ++i) {
          const auto& buffer = action.buffers[i];
          if (buffer.written != written) continue;
          const auto& tensor = frame.table[buffer.slot];
          auto* start = written ? tensor.data_ptr() : const_cast<void*>(tensor.const_data_ptr());
          frame.pointers[i] = static_cast<char*>(start) + buffer.bytes;
        }
      if (!action.launcher->launch(frame.pointers.data()))
        throw Error("[kernel] an index in the data is out of range, in " + action.what);
    } else if (action.product) {
      multiply(action, frame);
    } else if (in_place && action.update) {
      update(action, frame);
    } else if (action.call) {
      action.call->run(frame.table);
      for (const auto& [from, to] : action.moves) {
        frame.table[to].copy_(frame.table[from]);
        frame.table[from].reset();
      }
    }
    for (const size_t slot : action.dead) frame.table[slot].reset();
  }

  void update(const Action& action, Frame& frame) const {
    const auto& [input, index, source, out, dim] = *action.update;
    // index_copy_ would find a bad index when it has written by the ones before it.
    const int64_t size = frame.table[input].dim() == 0 ? 1 : frame.table[input].size(dim);
    const auto all = frame.table[index].contiguous();
    const auto* places = all.const_data_ptr<int64_t>();
    if (std::any_of(places, places + all.numel(), [&](int64_t at) { return at < 0 || at >= size; }))
      throw Error("[call] an index in the data is out of range, in " + action.what);
    frame.table[out] = frame.table[input];
    frame.table[out].index_copy_(dim, frame.table[index], frame.table[source]);
  }

  void multiply(const Action& action, Frame& frame) const {
    auto& out = frame.table[action.out];
    const auto& a = frame.table[action.a];
    const auto& b = frame.table[action.b];
    if (action.packed) {
      const auto bias = action.bias == none ? at::Tensor() : frame.table[action.bias];
      out = action.packed->run(a, b, bias, frame.packed[action.packed_number].get());
      out = out.view(program_.slots[action.out].type.sizes);
      return;
    }
    if (*action.product == Product::mm)
      runtime::multiply_into(out, a, b);
    else if (*action.product == Product::bmm)
      at::bmm_out(out, a, b);
    else
      runtime::multiply_and_add_into(out, frame.table[action.bias], a, b, action.beta, action.alpha);
  }

  runtime::Prepared program_;
  int64_t unique_kernels_, cache_hits_;
  std::string text_;
  std::shared_ptr<runtime::ArenaPool> arenas_ = runtime::ArenaPool::shared();
  std::atomic<int64_t> runs_{0};
  std::atomic<uint64_t> turn_{0};
  std::mutex pool_guard_;
  std::vector<std::unique_ptr<Frame>> pool_;
};

}  // namespace

std::unique_ptr<Executable> make_scheduled(const ir::Graph& graph, const codegen::Schedule& schedule,
                                           const CompiledKernels& kernels,
                                           const std::vector<at::Generator>& generators,
                                           const Bindings& bindings) {
  return std::make_unique<Scheduled>(
      runtime::prepare(graph, schedule, kernels.launchers, generators, bindings), kernels.unique,
      kernels.cache_hits);
}

}  // namespace graft
