// Writes every ATen call made on this thread into a graph, while one is at work.
//
// Two dispatch keys are switched on for the thread. The upper one stands above autograd and swaps each
// outside tensor (parameter, buffer, whatever the code reaches) for a stand-in, so that autograd,
// functionalisation and the graph all see one leaf. The lower one stands under autograd and functionalisation
// and writes down what arrives: calls on plain tensors, with no mutation and no aliasing left.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace graft {

class Recorder {
 public:
  /// Whether one is at work on this thread.
  static bool active();

  /// What the code being recorded sees of a tensor: its stand-in; the tensor itself where nothing is
  /// recorded.
  static at::Tensor seen(const at::Tensor& tensor);

  /// Calls made while one lives are not recorded.
  class Pause {
   public:
    Pause();

   private:
    c10::impl::ExcludeDispatchKeyGuard off_;
  };

  /// Calls made while one lives are on plain tensors, as from inside functionalisation: recorded, nothing
  /// stood in.
  class Below {
   public:
    Below();

   private:
    c10::impl::ExcludeDispatchKeyGuard off_;
  };

  /// Called for a tensor that is no stand-in and has none yet: names the graph input it becomes.
  struct Outside {
    std::string name;
    bool requires_grad;  ///< whether the graph is differentiated by it
  };
  using NameOutside = std::function<Outside(const at::Tensor&)>;

  /// Recording lasts as long as the object lives. One per thread.
  explicit Recorder(NameOutside name_outside);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The stand-in of an outside tensor: a functional leaf with the same values, an input of the graph from
  /// now on. The same tensor has one stand-in.
  at::Tensor stand_in(const at::Tensor& tensor, const Outside& as);

  struct Input {
    c10::weak_intrusive_ptr<c10::TensorImpl> outside;  ///< the tensor it stands for
    at::Tensor stand_in;
    at::Tensor value;  ///< what the graph sees of it
    ir::Value* in_graph;
  };
  const std::vector<Input>& inputs() const { return inputs_; }

  /// The graph's name of a plain tensor; null for one that no recorded call made.
  ir::Value* find(const at::Tensor& value) const;
  ir::Graph& graph() { return graph_; }
  std::vector<at::Generator>& generators() { return generators_; }

  /// The first call whose result is still alive somewhere although the code has returned, in words; empty if
  /// none. `results` are those that may be.
  std::string escaped(const std::vector<at::Tensor>& results) const;

  // The two fallbacks.
  void swap_in(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  struct Name {
    c10::weak_intrusive_ptr<c10::TensorImpl> alive;
    ir::Value* value;
  };
  void enter(const at::Tensor& tensor, ir::Value* value);
  const at::Tensor* known_stand_in(const at::Tensor& tensor) const;
  at::Tensor swapped(const at::Tensor& tensor);
  ir::Value* use(const at::Tensor& tensor, const c10::OperatorHandle& op);
  std::vector<ir::NamedArgument> arguments_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  void refuse_breaks(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  [[noreturn]] void break_at(const c10::OperatorHandle& op, const std::string& why) const;
  std::string scope_of(const std::vector<ir::NamedArgument>& arguments) const;

  NameOutside name_outside_;
  ir::Graph graph_;
  std::vector<at::Generator> generators_;
  std::vector<Input> inputs_;
  std::unordered_map<c10::TensorImpl*, size_t> stand_ins_;  // outside tensor -> inputs_
  // Named by address; an address may be used again after a tensor's death, so a weak pointer guards each name
  // and nothing lives longer than it does in eager.
  std::unordered_map<c10::TensorImpl*, Name> names_;
  std::string last_scope_;
  bool was_multithreaded_, was_reapplying_views_, was_caching_casts_;
};

}  // namespace graft
