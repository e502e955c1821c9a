#include "capture/module_tree.h"

#include "support/trained_at_times.h"

namespace graft {
namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// An explicit instantiation may name private members ([temp.spec.general]): the one lawful way to the tables.
template <class Tag, typename Tag::type member>
struct Reveal {
  friend typename Tag::type reveal(Tag) { return member; }
};
struct ParametersTag {
  using type = Tensors torch::nn::Module::*;
  friend type reveal(ParametersTag);
};
struct BuffersTag {
  using type = Tensors torch::nn::Module::*;
  friend type reveal(BuffersTag);
};
struct ChildrenTag {
  using type = Children torch::nn::Module::*;
  friend type reveal(ChildrenTag);
};
template struct Reveal<ParametersTag, &torch::nn::Module::parameters_>;
template struct Reveal<BuffersTag, &torch::nn::Module::buffers_>;
template struct Reveal<ChildrenTag, &torch::nn::Module::children_>;

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

const Tensors& parameters_of(const torch::nn::Module& module) { return module.*reveal(ParametersTag{}); }
const Tensors& buffers_of(const torch::nn::Module& module) { return module.*reveal(BuffersTag{}); }
const Children& children_of(const torch::nn::Module& module) { return module.*reveal(ChildrenTag{}); }

const at::Tensor& ModuleTree::Slot::tensor() const {
  return (buffer ? buffers_of(*module) : parameters_of(*module))[index].value();
}

ModuleTree::ModuleTree(std::vector<std::shared_ptr<torch::nn::Module>> roots) : roots_(std::move(roots)) {
  const auto enter = [&](const torch::nn::Module& module, std::string path) {
    entries_.push_back({&module, std::move(path), parameters_of(module).size(), buffers_of(module).size(),
                        children_of(module).size(), 0, module.is_training()});
  };
  for (size_t i = 0; i < roots_.size(); ++i) enter(*roots_[i], roots_.size() == 1 ? "" : std::to_string(i));
  for (size_t i = 0; i < entries_.size(); ++i) {  // breadth first: the children of one module stand together
    const auto& module = *entries_[i].module;
    const auto path = entries_[i].path;
    entries_[i].first_child = entries_.size();
    for (const auto& child : children_of(module)) enter(*child.value(), join(path, child.key()));
    for (size_t k = 0; k < parameters_of(module).size(); ++k)
      slots_.push_back({join(path, parameters_of(module)[k].key()), &module, k, false,
                        dynamic_cast<const TrainedAtTimes*>(&module) != nullptr});
    for (size_t k = 0; k < buffers_of(module).size(); ++k)
      slots_.push_back({join(path, buffers_of(module)[k].key()), &module, k, true, false});
  }
}

std::optional<std::string> ModuleTree::changed() const {
  for (const auto& entry : entries_) {
    const auto at = [&] { return entry.path.empty() ? std::string("the module") : "module " + entry.path; };
    const auto& children = children_of(*entry.module);
    if (children.size() != entry.children) return at() + " has gained or lost a submodule";
    for (size_t i = 0; i < entry.children; ++i)
      if (children[i].value().get() != entries_[entry.first_child + i].module)
        return at() + " has another submodule " + children[i].key();
    if (parameters_of(*entry.module).size() != entry.parameters)
      return at() + " has gained or lost a parameter";
    if (buffers_of(*entry.module).size() != entry.buffers) return at() + " has gained or lost a buffer";
    if (entry.module->is_training() != entry.training)
      return at() + (entry.training ? " is in eval mode, was in training mode"
                                    : " is in training mode, was in eval mode");
  }
  return std::nullopt;
}

}  // namespace graft
