#include "capture/module_tree.h"

#include <algorithm>
#include <cstring>
#include <typeinfo>
#include <unordered_map>

#include "capture/reveal.h"
#include "capture/training_flag.h"
#include "support/trained_at_times.h"

namespace graft {
namespace {

using torch::nn::Module;
using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Children = torch::OrderedDict<std::string, std::shared_ptr<Module>>;

}  // namespace

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

namespace {

std::string join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

template <class Table>
std::vector<std::string> keys_of(const Table& table) {
  std::vector<std::string> keys;
  for (const auto& item : table) keys.push_back(item.key());
  return keys;
}

/// std::string's own calls memcmp, which takes as long as all the rest for names of a few letters.
bool equal(const std::string& a, const std::string& b) {
  const size_t size = a.size();
  if (size != b.size()) return false;
  if (size > 16) return std::memcmp(a.data(), b.data(), size) == 0;
  const auto same = [&](auto word) {  // the first and the last so many bytes
    decltype(word) x[2], y[2];
    std::memcpy(&x[0], a.data(), sizeof word);
    std::memcpy(&y[0], b.data(), sizeof word);
    std::memcpy(&x[1], a.data() + size - sizeof word, sizeof word);
    std::memcpy(&y[1], b.data() + size - sizeof word, sizeof word);
    return x[0] == y[0] && x[1] == y[1];
  };
  if (size >= 8) return same(uint64_t{});
  if (size >= 4) return same(uint32_t{});
  for (size_t i = 0; i < size; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

/// As storage_of(), inline: for every tensor in every call.
const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
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
  std::vector<std::string> children, parameters, buffers;
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
      memory.push_back(memory_of(tensor));
    }
    tensors = first_equal(impls);
    storages = first_equal(memory);
  }
};

/// Tensors and their memory by address, in the order of the slots. Weak pointers keep the addresses from
/// being used again.
struct ModuleTree::HeldTensors {
  struct Place {
    const c10::TensorImpl* tensor;
    const c10::StorageImpl* storage;
    bool is(const at::Tensor& now) const {
      return now.unsafeGetTensorImpl() == tensor && memory_of(now) == storage;
    }
  };
  std::vector<Place> places;
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> tensors;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;

  explicit HeldTensors(const std::vector<Slot>& slots) {
    places.reserve(slots.size());
    for (const auto& slot : slots) {
      const auto& tensor = slot.tensor();
      places.push_back({tensor.unsafeGetTensorImpl(), memory_of(tensor)});
      tensors.emplace_back(tensor.getIntrusivePtr());
      if (places.back().storage) storages.push_back(tensor.storage().getWeakStorageImpl());
    }
  }
};

ModuleTree::ModuleTree() : ModuleTree(std::vector<std::shared_ptr<Module>>()) {}
ModuleTree::~ModuleTree() = default;

ModuleTree::ModuleTree(std::vector<std::shared_ptr<Module>> roots) : roots_(std::move(roots)) {
  const auto enter = [&](const std::shared_ptr<Module>& owner, std::string path) {
    const auto& module = *owner;
    entries_.push_back({&module, owner, &typeid(module), std::move(path), keys_of(children_of(module)),
                        keys_of(parameters_of(module)), keys_of(buffers_of(module)), 0, training_of(module)});
    if (const auto read = options_reader(module))
      options_.push_back({entries_.size() - 1, read, read(module)});
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
    for (const auto* keys : {&entries_[i].children, &entries_[i].parameters, &entries_[i].buffers})
      names_.insert(names_.end(), keys->begin(), keys->end());
  }
  ties_ = std::make_shared<Ties>(slots_);
  held_ = std::make_shared<HeldTensors>(slots_);
}

std::optional<std::string> ModuleTree::changed() const {
  std::shared_ptr<const HeldTensors> held;
  {
    const std::lock_guard<std::mutex> lock(held_guard_);
    held = held_;
  }
  if (as_held(*held)) return std::nullopt;
  for (const auto& entry : entries_)  // parents first: what a child's entry points to is there
    if (auto change = changed(entry)) return change;
  for (const auto& options : options_)
    if (const auto& entry = entries_[options.entry]; options.read(*entry.module) != options.then)
      return (entry.path.empty() ? std::string("the module") : "module " + entry.path) + " has other options";
  if (auto change = ties_changed()) return change;
  const std::lock_guard<std::mutex> lock(held_guard_);
  held_ = std::make_shared<HeldTensors>(slots_);
  return std::nullopt;
}

/// Runs in every call: one way through the tables, no names longer than they are.
bool ModuleTree::as_held(const HeldTensors& held) const {
  const auto* name = names_.data();
  const auto* place = held.places.data();
  for (const auto& entry : entries_) {
    const auto& module = *entry.module;
    const auto& children = children_of(module).items();
    const auto &parameters = parameters_of(module).items(), &buffers = buffers_of(module).items();
    if (children.size() != entry.children.size() || parameters.size() != entry.parameters.size() ||
        buffers.size() != entry.buffers.size() || training_of(module) != entry.training ||
        &typeid(module) != entry.type)
      return false;
    const auto* child = entries_.data() + entry.first_child;
    for (const auto& item : children)
      if (!child++->is(item.value()) || !equal(item.key(), *name++)) return false;
    for (const auto* table : {&parameters, &buffers})
      for (const auto& item : *table)
        if (!place++->is(item.value()) || !equal(item.key(), *name++)) return false;
  }
  return std::ranges::all_of(options_, [&](const Options& options) {
    return options.read(*entries_[options.entry].module) == options.then;
  });
}

std::optional<std::string> ModuleTree::changed(const Entry& entry) const {
  const auto& module = *entry.module;
  const auto at = [&] { return entry.path.empty() ? std::string("the module") : "module " + entry.path; };
  const auto& children = children_of(module);
  if (keys_of(children) != entry.children) return at() + key_change(children, entry.children, "submodule");
  for (size_t i = 0; i < entry.children.size(); ++i)
    if (!entries_[entry.first_child + i].is(children[i].value()))
      return at() + " has another submodule " + children[i].key();
  if (&typeid(module) != entry.type) return at() + " is of another class";
  const auto &parameters = parameters_of(module), &buffers = buffers_of(module);
  if (keys_of(parameters) != entry.parameters)
    return at() + key_change(parameters, entry.parameters, "parameter");
  if (keys_of(buffers) != entry.buffers) return at() + key_change(buffers, entry.buffers, "buffer");
  if (training_of(module) != entry.training)
    return at() + (entry.training ? " is in eval mode now, and was in training mode before"
                                  : " is in training mode now, and was in eval mode before");
  return std::nullopt;
}

std::optional<std::string> ModuleTree::ties_changed() const {
  const Ties now(slots_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const auto& path = slots_[i].path;
    if (now.defined[i] != ties_->defined[i])
      return path + (now.defined[i] ? " has a tensor now, and had none before"
                                    : " has no tensor now, and had one before");
    const auto differs = [&](const std::vector<uint32_t>& is, const std::vector<uint32_t>& was,
                             const char* how, const char* was_not) -> std::optional<std::string> {
      if (is[i] == was[i]) return std::nullopt;
      if (was[i] != i) return path + how + slots_[was[i]].path + " no longer";
      return path + how + slots_[is[i]].path + was_not;
    };
    if (auto change = differs(now.tensors, ties_->tensors, " is tied to ", " now, and was not before"))
      return change;
    if (auto change =
            differs(now.storages, ties_->storages, " shares memory with ", " now, and did not before"))
      return change;
  }
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
