// A world in which a stateful program lives: its module, its tensors and what earlier calls gave. The same
// program makes the same world each time, aliasing included, so one is run eagerly, one compiled and one in
// float64, and what can be seen in them is compared.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>

#include <map>
#include <memory>

#include "stateful_program.h"

namespace graft::stateful {

/// A body with its state as a module. It reads its parameters from the module's own table in every call.
class Cell : public torch::nn::Module {
 public:
  Cell(const Program& program, const Tensors& state, bool wide);
  Tensors forward(Tensors given) { return call(given); }
  /// The same, of a function that takes a reference.
  Tensors call(Tensors& given);
  /// The tensor's place; for parameters the module's own, so that assigning replaces the parameter.
  Tensor& slot(size_t state);
  Watch watch;
  int64_t host = 0;

 private:
  const Program* program_;
  Tensors tensors_;  // those that are no parameters
  bool wide_;
};

/// Numbered blocks, as the layers of a model: a block's first result is the next one's first argument where
/// it has the shape.
class Stack : public torch::nn::Module {
 public:
  explicit Stack(const std::vector<std::shared_ptr<Cell>>& cells);
  Tensors forward(Tensors given);

 private:
  std::vector<std::shared_ptr<Cell>> cells_;
};

/// Something that a caller can look at after a call.
struct Seen {
  enum Sort : uint8_t { result, argument, state, kept, gradient };
  std::string name;
  Tensor tensor;
  Sort sort;
};

using Callee = std::function<Tensors(Tensors&)>;

class World {
 public:
  World(const Program& program, bool wide);

  /// What happens to the state before a call.
  void before(const Call& call);
  /// Makes the arguments, calls, takes gradients.
  void call(const Call& call, const Callee& callee);
  /// The arguments of a call, the index last. Gives no tensor of the state unless the call says so.
  Tensors make_arguments(const Call& call);
  std::vector<Seen> seen() const;
  /// In words: was it the call itself or its gradients that threw last.
  bool in_backward() const { return in_backward_; }

  Callee eager() const;
  std::vector<std::shared_ptr<Cell>> cells;
  std::shared_ptr<Stack> stack;
  Tensor generator_state;

 private:
  Tensor& state(size_t which) { return cells[which / states_ % cells.size()]->slot(which % states_); }
  void change(const Event& event, uint64_t seed);
  void give_values(Path path, size_t which, uint64_t seed);
  Tensor argument(size_t i, const Call& call, const Tensors& made, std::map<at::ScalarType, Tensor>& bases);
  void differentiate(const Call& call);
  Tensors leaves() const;

  const Program& program_;
  bool wide_, in_backward_ = false;
  size_t states_;
  std::vector<std::shared_ptr<std::vector<char>>> blobs_;
  Tensors given_, results_, kept_, new_leaves_, gradients_;
};

/// A step of training as a callee that gives the loss: written out by hand, and by compile_step().
Callee eager_step(const Program& program, const World& world);
Callee compiled_step(const Program& program, const World& world);

/// Values of a type by the seed alone.
Tensor numbers(const Type& type, uint64_t seed, Data data, Sort sort, bool wide);

}  // namespace graft::stateful
