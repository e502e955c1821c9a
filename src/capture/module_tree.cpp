#include "capture/module_tree.h"

#include <algorithm>
#include <typeinfo>
#include <unordered_map>

#include "capture/ivalue.h"
#include "capture/training_flag.h"
#include "support/trained_at_times.h"

namespace graft {
namespace {

using torch::nn::Module;
using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<Module>>;

// An explicit instantiation may name private members ([temp.spec.general]): the one lawful way to the tables.
template <class Tag, typename Tag::type member>
struct Reveal {
  friend typename Tag::type reveal(Tag) { return member; }
};
struct ParametersTag {
  using type = Tensors Module::*;
  friend type reveal(ParametersTag);
};
struct BuffersTag {
  using type = Tensors Module::*;
  friend type reveal(BuffersTag);
};
struct ChildrenTag {
  using type = Children Module::*;
  friend type reveal(ChildrenTag);
};
template struct Reveal<ParametersTag, &Module::parameters_>;
template struct Reveal<BuffersTag, &Module::buffers_>;
template struct Reveal<ChildrenTag, &Module::children_>;

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

template <class Table>
std::vector<std::string> keys_of(const Table& table) {
  std::vector<std::string> keys;
  for (const auto& item : table) keys.push_back(item.key());
  return keys;
}

template <class Table>
bool has_keys(const Table& table, const std::vector<std::string>& keys) {
  if (table.size() != keys.size()) return false;
  for (size_t i = 0; i < keys.size(); ++i)
    if (table[i].key() != keys[i]) return false;
  return true;
}

/// What differs between the names of a table that has not those names.
template <class Table>
std::string key_change(const Table& table, const std::vector<std::string>& keys, const std::string& what) {
  for (const auto& item : table)
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end())
      return " has gained " + what + " " + item.key();
  for (const auto& key : keys)
    if (!table.contains(key)) return " has lost " + what + " " + key;
  return " has its " + what + "s in another order";
}

/// For each place the first that is equal to it; null is like nothing.
std::vector<uint32_t> first_equal(const std::vector<const void*>& all) {
  std::unordered_map<const void*, uint32_t> seen;
  std::vector<uint32_t> first;
  first.reserve(all.size());
  for (uint32_t i = 0; i < all.size(); ++i)
    first.push_back(all[i] ? seen.emplace(all[i], i).first->second : i);
  return first;
}

}  // namespace

const Tensors& parameters_of(const Module& module) { return module.*reveal(ParametersTag{}); }
const Tensors& buffers_of(const Module& module) { return module.*reveal(BuffersTag{}); }
const Children& children_of(const Module& module) { return module.*reveal(ChildrenTag{}); }

const at::Tensor& ModuleTree::Slot::tensor() const {
  return (buffer ? buffers_of(*module) : parameters_of(*module))[index].value();
}

struct ModuleTree::Entry {
  const Module* module;
  /// Its block outlives the module: another at the same address has another.
  std::weak_ptr<Module> owner;
  const std::type_info* type;
  std::string path;
  std::vector<std::string> parameters, buffers, children;
  size_t first_child;  // into entries_, children follow each other
  bool training;

  bool is(const std::shared_ptr<Module>& other) const {
    return other.get() == module && !owner.owner_before(other) && !other.owner_before(owner);
  }
};

/// Which slots have a tensor, and which of those are one, or share memory: for each the first such slot.
struct ModuleTree::Ties {
  std::vector<bool> defined;
  std::vector<uint32_t> tensors, storages;

  explicit Ties(const std::vector<Slot>& slots) {
    std::vector<const void*> impls, memory;
    for (const auto& slot : slots) {
      const auto& tensor = slot.tensor();
      defined.push_back(tensor.defined());
      impls.push_back(tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr);
      memory.push_back(storage_of(tensor));
    }
    tensors = first_equal(impls);
    storages = first_equal(memory);
  }
};

/// Tensors and their memory by address. Weak pointers keep the addresses from being used again.
struct ModuleTree::Held {
  struct Place {
    const c10::TensorImpl* tensor = nullptr;
    const c10::StorageImpl* storage = nullptr;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> keeps_tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> keeps_storage;

    explicit Place(const at::Tensor& held)
        : keeps_tensor(held.getIntrusivePtr()), keeps_storage(c10::intrusive_ptr<c10::StorageImpl>()) {
      if (!held.defined()) return;
      tensor = held.unsafeGetTensorImpl();
      storage = storage_of(held);
      if (storage) keeps_storage = held.storage().getWeakStorageImpl();
    }
    bool is(const at::Tensor& now) const {
      if (!now.defined() || !tensor) return now.defined() == (tensor != nullptr);
      return now.unsafeGetTensorImpl() == tensor && storage_of(now) == storage;
    }
  };
  std::vector<Place> places;

  explicit Held(const std::vector<Slot>& slots) {
    places.reserve(slots.size());
    for (const auto& slot : slots) places.emplace_back(slot.tensor());
  }
  bool in_place(const std::vector<Slot>& slots) const {
    for (size_t i = 0; i < slots.size(); ++i)
      if (!places[i].is(slots[i].tensor())) return false;
    return true;
  }
};

ModuleTree::ModuleTree() : ModuleTree(std::vector<std::shared_ptr<Module>>()) {}
ModuleTree::~ModuleTree() = default;

ModuleTree::ModuleTree(std::vector<std::shared_ptr<Module>> roots) : roots_(std::move(roots)) {
  const auto enter = [&](const std::shared_ptr<Module>& owner, std::string path) {
    const auto& module = *owner;
    entries_.push_back({&module, owner, &typeid(module), std::move(path), keys_of(parameters_of(module)),
                        keys_of(buffers_of(module)), keys_of(children_of(module)), 0, training_of(module)});
  };
  for (size_t i = 0; i < roots_.size(); ++i) enter(roots_[i], roots_.size() == 1 ? "" : std::to_string(i));
  for (size_t i = 0; i < entries_.size(); ++i) {  // breadth first: the children of one module stand together
    const auto& module = *entries_[i].module;
    const auto path = entries_[i].path;
    entries_[i].first_child = entries_.size();
    for (const auto& child : children_of(module)) enter(child.value(), join(path, child.key()));
    for (size_t k = 0; k < parameters_of(module).size(); ++k)
      slots_.push_back({join(path, parameters_of(module)[k].key()), &module, k, false,
                        dynamic_cast<const TrainedAtTimes*>(&module) != nullptr});
    for (size_t k = 0; k < buffers_of(module).size(); ++k)
      slots_.push_back({join(path, buffers_of(module)[k].key()), &module, k, true, false});
  }
  ties_ = std::make_shared<Ties>(slots_);
  held_ = std::make_shared<Held>(slots_);
}

std::optional<std::string> ModuleTree::changed() const {
  for (const auto& entry : entries_)  // parents first: what a child's entry points to is there
    if (auto change = changed(entry)) return change;
  return slots_changed();
}

std::optional<std::string> ModuleTree::changed(const Entry& entry) const {
  const auto& module = *entry.module;
  const auto at = [&] { return entry.path.empty() ? std::string("the module") : "module " + entry.path; };
  const auto& children = children_of(module);
  if (!has_keys(children, entry.children)) return at() + key_change(children, entry.children, "submodule");
  for (size_t i = 0; i < entry.children.size(); ++i)
    if (!entries_[entry.first_child + i].is(children[i].value()))
      return at() + " has another submodule " + children[i].key();
  if (&typeid(module) != entry.type) return at() + " is of another class";
  if (!has_keys(parameters_of(module), entry.parameters))
    return at() + key_change(parameters_of(module), entry.parameters, "parameter");
  if (!has_keys(buffers_of(module), entry.buffers))
    return at() + key_change(buffers_of(module), entry.buffers, "buffer");
  if (training_of(module) != entry.training)
    return at() + (entry.training ? " is in eval mode, was in training mode"
                                  : " is in training mode, was in eval mode");
  return std::nullopt;
}

std::optional<std::string> ModuleTree::slots_changed() const {
  std::shared_ptr<const Held> held;
  {
    const std::lock_guard<std::mutex> lock(held_guard_);
    held = held_;
  }
  if (held->in_place(slots_)) return std::nullopt;
  const Ties now(slots_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& path = slots_[i].path;
    if (now.defined[i] != ties_->defined[i])
      return path + (now.defined[i] ? " has a tensor, had none" : " has no tensor, had one");
    const auto differs = [&](const std::vector<uint32_t>& is, const std::vector<uint32_t>& was,
                             const std::string& how) -> std::optional<std::string> {
      if (is[i] == was[i]) return std::nullopt;
      if (was[i] != i) return path + " " + how + " " + slots_[was[i]].path + " no longer";
      return path + " now " + how + " " + slots_[is[i]].path + ", did not before";
    };
    if (auto change = differs(now.tensors, ties_->tensors, "is tied to")) return change;
    if (auto change = differs(now.storages, ties_->storages, "shares memory with")) return change;
  }
  const std::lock_guard<std::mutex> lock(held_guard_);
  held_ = std::make_shared<Held>(slots_);
  return std::nullopt;
}

std::vector<StateRead> ModuleTree::beyond(const std::vector<StateRead>& reads) const {
  std::vector<StateRead> left;
  for (const auto& read : reads)
    if (std::none_of(entries_.begin(), entries_.end(),
                     [&](const Entry& entry) { return entry.module == read.module; }))
      left.push_back(read);
  return left;
}

}  // namespace graft
