// A module and its submodules as the compiler sees them: where every parameter and buffer lives, and whether
// the tree is still the one that was captured.
//
// A slot is a place in a module's own table, not a tensor: what stands there may be replaced between calls,
// and the compiled code takes what is there now.
#pragma once
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

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

  ModuleTree() = default;
  /// The modules are kept alive. Several roots (what a function works on) get their number as first name.
  explicit ModuleTree(std::vector<std::shared_ptr<torch::nn::Module>> roots);

  const std::vector<Slot>& slots() const { return slots_; }
  /// Null while the tree has the modules, names and training flags of the time when it was made; else what
  /// changed.
  std::optional<std::string> changed() const;

 private:
  struct Entry {
    const torch::nn::Module* module;
    std::string path;
    size_t parameters, buffers, children;
    size_t first_child;  // into entries_, children follow each other
    bool training;
  };
  std::vector<std::shared_ptr<torch::nn::Module>> roots_;
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;
};

}  // namespace graft
