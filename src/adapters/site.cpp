#include "adapters/site.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <set>

#include "graft/error.h"

namespace graft::adapters {
namespace {

/// torch lets no buffer be replaced: what stands there is written over.
void fill_buffers(nn::WeightedLayer& layer, const Weights& with) {
  const at::NoGradGuard no_grad;
  auto buffers = layer.named_buffers(/*recurse=*/false);
  for (const auto& [name, tensor] : with.buffers) buffers[name].copy_(tensor);
}

}  // namespace

std::shared_ptr<const Routing> DefaultRouting::get() const {
  read_state(choice_, "the adapters at work");
  const std::lock_guard<std::mutex> lock(guard_);
  return routing_;
}

void DefaultRouting::set(std::shared_ptr<const Routing> routing, const std::vector<size_t>& working) {
  std::string description;
  for (const size_t slot : working) description += std::to_string(slot) + " ";
  const std::lock_guard<std::mutex> lock(guard_);
  routing_ = std::move(routing);
  choice_->becomes(description);
}

at::Tensor Site::forward(const nn::WeightedLayer& layer, const at::Tensor& x) {
  read_state(structure_, "the adapters on a layer", this);
  const auto* given = dynamic_cast<const Routing*>(nn::call_context().get());
  if (given && given->owner() == default_.get()) return call(layer, *given, 0, x);
  return call(layer, *default_->get(), 0, x);
}

at::Tensor Site::call(const nn::WeightedLayer& layer, const Routing& routing, size_t i,
                      const at::Tensor& x) const {
  if (i == parts_.size()) return layer.apply(x, layer.weight, layer.bias);
  const auto* gate = routing.gate(parts_[i].slot);
  if (!gate) return call(layer, routing, i + 1, x);
  if (const auto joint = parts_[i].part->joint(); joint && gate->table().defined()) {
    std::vector<const Part*> parts;
    std::vector<int64_t> slots;
    size_t end = i;
    for (; end < parts_.size() && parts_[end].part->joint() == joint; ++end) {
      const auto* other = routing.gate(parts_[end].slot);
      if (!other) continue;
      parts.push_back(parts_[end].part.get());
      slots.push_back(other->slot());
    }
    return joint(parts, slots, gate->table(), x, call(layer, routing, end, x));
  }
  return parts_[i].part->forward(
      x, [&](const at::Tensor& input) { return call(layer, routing, i + 1, input); }, *gate);
}

/// Next to the layer stands what changes the base that methods see, and around all of them what they do not
/// see: a bias that an adapter brings is the layer's own to DoRA, which leaves biases as they are.
size_t Site::type_of(const std::string& type) {
  if (type == kChangedBase) return 0;
  if (type == kTrainableTokens) return 1;
  if (type == kBias) return std::numeric_limits<size_t>::max();
  auto known = std::find(types_.begin(), types_.end(), type);
  if (known == types_.end()) known = types_.insert(types_.end(), type);
  return 2 + static_cast<size_t>(known - types_.begin());
}

void Site::add(size_t slot, const std::string& type, const std::shared_ptr<Part>& part) {
  Placed placed{slot, type_of(type), std::to_string(next_name_++), part};
  part->train(is_training());
  register_module(placed.name, part);
  // Later methods outside; of one method the first adapter outside, as PEFT lets it see the input first,
  // unless PEFT has it the other way round for this method.
  const auto behind = std::find_if(parts_.begin(), parts_.end(), [&](const Placed& other) {
    return other.type < placed.type || (other.type == placed.type && part->first_inside());
  });
  parts_.insert(behind, std::move(placed));
  structure_->changed();
}

void Site::remove(size_t slot) {
  structure_->changed();
  std::erase_if(parts_, [&](const Placed& placed) {
    if (placed.slot != slot) return false;
    unregister_module(placed.name);
    return true;
  });
}

void Site::arrange(const std::vector<size_t>& slots) {
  for (size_t first = 0, end = 0; first < parts_.size(); first = end) {
    std::vector<size_t> places;
    bool matters = false;
    for (end = first; end < parts_.size() && parts_[end].type == parts_[first].type; ++end) {
      if (std::find(slots.begin(), slots.end(), parts_[end].slot) == slots.end()) continue;
      places.push_back(end);
      matters |= parts_[end].part->order_matters();
    }
    if (!matters || places.size() < 2) continue;
    std::vector<Placed> working;
    working.reserve(places.size());
    for (const size_t place : places) working.push_back(parts_[place]);
    std::stable_sort(working.begin(), working.end(), [&](const Placed& a, const Placed& b) {
      const auto number = [&](const Placed& p) { return std::find(slots.begin(), slots.end(), p.slot); };
      return a.part->first_inside() ? number(b) < number(a) : number(a) < number(b);
    });
    for (size_t i = 0; i < places.size(); ++i) {
      auto& place = parts_[places[i]];
      if (place.part == working[i].part) continue;
      place = working[i];
      structure_->changed();
    }
  }
}

void Site::merge(nn::WeightedLayer& layer, const std::vector<size_t>& slots, bool check_finite) {
  const at::NoGradGuard no_grad;
  unmerge(layer);
  Weights before{layer.weight, layer.bias, layer.weight};
  for (const auto& item : layer.named_buffers(/*recurse=*/false))
    before.buffers[item.key()] = item.value().clone();
  Weights merged = before;
  // What sits nearest to the layer goes in first.
  std::set<size_t> types;
  for (const auto& placed : parts_) types.insert(placed.type);
  for (const size_t type : types) {
    std::vector<const Part*> going;
    for (const size_t slot : slots)
      for (const auto& placed : parts_)
        if (placed.type == type && placed.slot == slot) going.push_back(placed.part.get());
    if (!going.empty() && going.front()->order_matters() && !going.front()->first_inside())
      std::reverse(going.begin(), going.end());
    for (const auto* part : going) {
      if (const auto tokens = part->resized_rows())
        throw UsageError("[adapters] \"" + layer.path() + "\" has " + std::to_string(*tokens) +
                         " tokens in the adapter and " + std::to_string(layer.weight.size(0)) +
                         " in the model: such an adapter cannot be merged");
      part->merge(merged);
    }
  }
  const auto finite = [](const at::Tensor& t) { return !t.defined() || at::isfinite(t).all().item<bool>(); };
  if (check_finite && !(finite(merged.weight) && finite(merged.bias)))
    throw Error("[adapters] merging would put NaN or infinity into \"" + layer.path() +
                ".weight\": the adapter seems to be broken; nothing was merged into this layer");
  unmerged_ = before;
  if (!merged.weight.is_same(layer.weight)) layer.replace("weight", merged.weight.contiguous());
  if (merged.bias.defined() && !merged.bias.is_same(layer.bias)) layer.replace("bias", merged.bias);
  fill_buffers(layer, merged);
}

void Site::unmerge(nn::WeightedLayer& layer) {
  if (!unmerged_) return;
  // The model may have been moved meanwhile.
  const auto as_now = [](const at::Tensor& before, const at::Tensor& now) {
    return before.to(now.options());
  };
  layer.replace("weight", as_now(unmerged_->weight, layer.weight));
  if (unmerged_->bias.defined()) layer.replace("bias", as_now(unmerged_->bias, layer.bias));
  fill_buffers(layer, *unmerged_);
  unmerged_.reset();
}

}  // namespace graft::adapters
