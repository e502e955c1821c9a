// Writes every ATen call made on this thread into a graph, while one is at work.
//
// The code that is recorded runs as it always does: on its own tensors, with autograd above and ATen's
// kernels below. One dispatch key is switched on for the thread, under autograd and the bookkeeping of views;
// its fallback sees each call with plain tensors, writes it down and lets it pass. What no graph can hold
// ends the recording, not the code. Writes into memory become new values (capture/memory.h).
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/call_watcher.h"
#include "capture/effects.h"
#include "capture/functional_form.h"
#include "capture/memory.h"
#include "capture/saved_storages.h"
#include "capture/trace.h"
#include "ir/graph.h"

namespace graft {

class Recorder : public CallWatcher {
 public:
  /// Calls made while one lives are not recorded.
  class Pause {
   public:
    Pause();

   private:
    c10::impl::ExcludeDispatchKeyGuard off_;
  };

  /// Called for a tensor that no recorded call made: names the graph input it becomes.
  using NameOutside = std::function<std::string(const at::Tensor&)>;

  /// Recording lasts as long as the object lives. One per thread. `throws`: what no graph can hold is a
  /// GraphBreak, thrown where it happens. `assumes`: that two tensors are equal, or are not, may be taken for
  /// granted (runtime/assumption.h).
  Recorder(NameOutside name_outside, bool throws, bool assumes = true);
  ~Recorder() override;

  /// Why no graph holds what the code did; empty while one does.
  const std::string& broken() const { return reason_; }
  const std::string& backtrace() const { return backtrace_; }
  /// After the first break, too: what reads values is noted, and what is written to is kept for undo().
  void list_breaks() { lists_breaks_ = true; }
  /// Why, for all of them, if they are listed; else for the first.
  const std::vector<std::string>& breaks() const { return breaks_; }
  /// Whether it is a value that the code reads: all before it, and all after it, may be in graphs.
  bool broken_by_read() const { return by_read_; }
  /// From now on nothing is recorded. The first reason counts.
  void give_up(const std::string& reason, const std::string& backtrace = "", bool by_read = false);

  struct Input {
    c10::weak_intrusive_ptr<c10::TensorImpl> outside;  ///< the tensor of the caller, the module or elsewhere
    at::Tensor before;  ///< what it held before the code wrote to it; undefined if that never happened
    std::shared_ptr<Memory::Region> region;
    bool required_grad;
    const torch::autograd::Node* history;
    at::Tensor tensor() const { return at::Tensor(outside.lock()); }
  };
  /// The graph input that an outside tensor becomes; the same tensor has one.
  size_t input(const at::Tensor& tensor, const std::string& name);
  const std::vector<Input>& inputs() const { return inputs_; }
  /// Which input a tensor is; nothing for others.
  std::optional<size_t> input_of(const at::Tensor& tensor) const;

  /// The graph's value of a tensor as it is now; null if the graph has none, or the recording ended.
  ir::Value* find(const at::Tensor& tensor);
  std::optional<Memory::Place> place_of(const at::Tensor& tensor) const { return memory_.find(tensor); }
  /// Also of a tensor object that was made without the dispatcher (data(), a view with another dtype) over
  /// memory that is known; of an input's own only if asked for.
  std::optional<Memory::Place> adopt(const at::Tensor& tensor, bool of_inputs);
  bool is_over_memory_made_here(const at::Tensor& tensor) const;
  /// What a sparse tensor that the backward pass made consists of (the gradient of an embedding that wants
  /// such).
  struct SparseParts {
    ir::Value *indices, *values;
  };
  std::optional<SparseParts> sparse_parts(const at::Tensor& tensor) const;

  ir::Graph& graph() { return graph_; }
  std::vector<at::Generator>& generators() { return generators_; }
  /// What the graph takes for granted, in order.
  const std::vector<bool>& assumptions() const { return assumptions_; }
  /// The states that these generators were in before the code drew from them, one each.
  const std::vector<at::Tensor>& generator_states() const { return generator_states_; }

  /// The first call whose result is still alive somewhere, in words; empty if none. `results` are those that
  /// may be.
  std::string escaped(const std::vector<at::Tensor>& results) const;

  /// Puts back what the inputs held before, and the memory that they had.
  void undo() const;
  /// What comes now is run to see what it does, besides the caller's call (its backward pass): what would
  /// write to an input, or draw random numbers, is an Error before it does.
  void allow_no_effects() { effects_ = false; }
  /// Nothing is recorded from now on; what was recorded stays.
  void stop();

  /// Notices when the code takes the tensor's data pointer: what it reads there is a value on the host, and
  /// what it writes nobody records.
  void watch_pointer(const at::Tensor& tensor) { pointers_.add(tensor); }

  /// The code begins with these tensors over the memory that they have now.
  void watch_memory(const std::vector<at::Tensor>& tensors);

  /// The code begins with this generator as it stands now.
  void watch_generator(const at::Generator& generator) { draws_.add(generator); }
  bool leaves_a_generator_set_back() const { return draws_.leaves_one_set_back(); }

  /// What the function called, call by call. Once, when it has given its outputs.
  std::shared_ptr<const Trace> finish_trace(const std::vector<at::Tensor>& outputs);

  /// These C++ numbers, by their calls, are inputs. `name` is told of each when its call comes, and names it.
  void make_inputs_of(std::vector<Trace::NumberPlace> numbers, std::function<std::string(size_t)> name) {
    number_places_ = std::move(numbers);
    name_number_ = std::move(name);
    if (!number_places_.empty()) watch_from_the_first();
  }
  void on_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;

  void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) override;
  void on_pointer(c10::StorageImpl* storage) override;

 private:
  struct Call;
  struct Write;
  void record_pure(Call& call);
  void record_sparse(Call& call);
  void record_write(Call& call);
  void record_new_sizes(Call& call);
  void run_write(Call& call, const FunctionalForm& form, Write& write);
  bool may_write(const at::Tensor& tensor, const c10::OperatorHandle& op);
  static bool reads_what_it_writes(const Call& call, const FunctionalForm& form, const Write& write);
  void enter_result(const Call& call, const at::Tensor& made, ir::Value& value);
  void enter_resized(const Call& call, const at::Tensor& tensor, ir::Value& value);
  ir::Node& add_node(const c10::OperatorHandle& op, std::vector<ir::NamedArgument> arguments,
                     std::vector<ir::TensorType> types);
  ir::Value* use(const at::Tensor& tensor, const c10::OperatorHandle& op, bool reads);
  std::optional<std::vector<ir::NamedArgument>> arguments_of(const Call& call, const c10::OperatorHandle& as);
  std::optional<ir::Attribute> attribute_of(const c10::IValue& value, const c10::Type& type);
  bool answer(const Call& call);
  static bool answer_gradient_of_product(const Call& call);
  bool answer_gradient_of_extremum(const Call& call);
  bool answer_comparison(const Call& call);
  bool answer_bincount(const Call& call);
  void note_assumption(const Call& call, bool answer);
  bool refuse(const Call& call);
  void break_at(const c10::OperatorHandle& op, const std::string& why, bool by_read = false,
                const std::string& origin = "");
  void note_later_break(const Call& call);
  std::string scope_of(const std::vector<ir::NamedArgument>& arguments) const;
  std::string origin_of(const Call& call);

  void refuse_effects(const Call& call) const;
  void find_draws_here(const Call& call);
  ir::Node& drawing_node(const Call& call, const c10::OperatorHandle& as,
                         std::vector<ir::NamedArgument> arguments, std::vector<ir::TensorType> types);
  void note_draw();
  void enter_numbers(const Call& call);
  bool is_number_input(size_t argument) const;

  NameOutside name_outside_;
  bool throws_, assumes_, effects_ = true, by_read_ = false;
  std::string reason_, backtrace_;
  bool lists_breaks_ = false;
  std::vector<std::string> breaks_;
  SavedStorages written_later_;
  ir::Graph graph_;
  Memory memory_{graph_};
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> generator_states_;
  std::vector<bool> assumptions_;
  DrawWatch draws_;
  std::vector<ir::Node*> drawn_;  // for each draw the node whose numbers it gave
  struct Draw {
    std::optional<DrawWatch::Place> place;  // if the call draws any
    std::vector<ir::Node*> before;          // earlier draws that began there, too
    ir::Node* node = nullptr;
  };
  Draw draw_;  // of this call
  struct HeldTensor {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    at::Tensor before;  // another one over its memory
  };
  std::vector<HeldTensor> held_;
  std::vector<Input> inputs_;
  std::unordered_map<const c10::TensorImpl*, size_t> input_numbers_;
  PointerWatch pointers_;
  struct KnownSparse {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    SparseParts parts;
  };
  std::vector<KnownSparse> sparse_;
  TraceWriter trace_{[this](const at::Tensor& tensor) { return input_of(tensor); }};
  bool tracing_ = true;
  std::vector<Trace::NumberPlace> number_places_;
  std::function<std::string(size_t)> name_number_;
  std::vector<at::Tensor> numbers_;  // that are inputs
  bool has_number_inputs_ = false, within_answer_ = false;
  bool on_ = true, was_multithreaded_, was_caching_casts_;
};

}  // namespace graft
