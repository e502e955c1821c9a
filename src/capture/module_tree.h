// A module and its submodules as the compiler sees them: where every parameter and buffer lives, and whether
// the tree is still the one that was captured.
//
// A slot is a place in a module's own table, not a tensor: what stands there may be replaced between calls,
// and the compiled code takes what is there now.
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "capture/module_options.h"
#include "support/guarded_state.h"

namespace graft {

/// torch keeps a module's tables to itself; named_parameters() copies them, which costs microseconds per
/// module and call. These give the tables as they are.
const torch::OrderedDict<std::string, at::Tensor>& parameters_of(const torch::nn::Module& module);
const torch::OrderedDict<std::string, at::Tensor>& buffers_of(const torch::nn::Module& module);
const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>& children_of(
    const torch::nn::Module& module);

class ModuleTree {
 public:
  struct Slot {
    std::string path;  ///< "model.layers.3.mlp.up_proj.weight"
    const torch::nn::Module* module;
    size_t index;  ///< in the module's table
    bool buffer;
    bool at_times;  ///< a parameter of a module that is TrainedAtTimes
    const at::Tensor& tensor() const;
  };

  ModuleTree();
  /// The roots are kept alive. Several of them (what a function works on) get their number as first name.
  explicit ModuleTree(std::vector<std::shared_ptr<torch::nn::Module>> roots);
  ~ModuleTree();

  const std::vector<Slot>& slots() const { return slots_; }
  /// Null while the tree is the one that it was when it was made: the same modules with the same classes,
  /// names, order, training flags and options (of libtorch's layers); the same names of parameters and
  /// buffers in the same order; tensors in the same slots, of which those and only those are one tensor, or
  /// share memory, that did so then. Else what changed.
  std::optional<std::string> changed() const;
  /// Of what a capture over this tree has read: that which changed() does not see to already.
  std::vector<StateRead> beyond(const std::vector<StateRead>& reads) const;

 private:
  struct Entry;
  struct Options {
    size_t entry;
    ReadOptions read;
    uint64_t then;
  };
  struct HeldTensors;
  struct Ties;
  bool as_held(const HeldTensors& held) const;
  std::optional<std::string> changed(const Entry& entry) const;
  std::optional<std::string> ties_changed() const;

  std::vector<std::shared_ptr<torch::nn::Module>> roots_;
  std::vector<Entry> entries_;
  std::vector<Options> options_;
  std::vector<Slot> slots_;
  /// Of all entries: children, parameters, buffers. In one place, for the way through them in every call.
  std::vector<std::string> names_;
  std::shared_ptr<const Ties> ties_;
  /// The tensors of the last call, which were found to be tied as ties_ says: while they are in place nothing
  /// need be compared.
  mutable std::mutex held_guard_;
  mutable std::shared_ptr<const HeldTensors> held_;
};

}  // namespace graft
