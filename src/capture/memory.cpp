#include "capture/memory.h"

#include <ATen/TensorUtils.h>

#include <algorithm>
#include <set>

#include "capture/ivalue.h"
#include "ir/arguments.h"
#include "ir/clone.h"

namespace graft {
namespace {

bool same_strides(const ir::TensorType& a, const ir::TensorType& b) {
  for (size_t d = 0; d < a.sizes.size(); ++d)
    if (a.sizes[d] != 1 && a.strides[d] != b.strides[d]) return a.numel() == 0;
  return true;
}

Memory::Bits bits_of(const at::Tensor& tensor) { return {tensor.is_conj(), tensor.is_neg()}; }

/// The place is the tensor's as it is now: code may give a tensor object other sizes, or other memory.
bool fits(const at::Tensor& tensor, const ir::TensorType& type, int64_t offset, Memory::Bits bits) {
  return bits_of(tensor) == bits && tensor.sizes() == at::IntArrayRef(type.sizes) &&
         tensor.strides() == at::IntArrayRef(type.strides) && tensor.storage_offset() == offset &&
         tensor.scalar_type() == to_torch(type.dtype);
}

/// Some elements may be one in memory (an expanded tensor's are).
bool overlaps(const ir::TensorType& type) {
  if (type.numel() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (size_t d = 0; d < type.sizes.size(); ++d)
    if (type.sizes[d] > 1) steps.emplace_back(type.strides[d], type.sizes[d]);
  std::sort(steps.begin(), steps.end());
  int64_t reached = 0;  // by the steps so far
  for (const auto& [stride, size] : steps) {
    if (stride <= reached) return true;
    reached += stride * (size - 1);
  }
  return false;
}

/// Views that show all elements in the same order, under other sizes.
bool keeps_order(const std::string& op) {
  static const std::set<std::string> names = {
      "aten::view",    "aten::_unsafe_view", "aten::_reshape_alias", "aten::unsqueeze",
      "aten::squeeze", "aten::squeeze.dim",  "aten::squeeze.dims"};
  return names.contains(op);
}

ir::NamedArgument number(const char* name, int64_t value) { return {name, ir::Attribute(value)}; }

}  // namespace

std::optional<Memory::Place> Memory::find(const at::Tensor& tensor) const {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  if (found == known_.end() || found->second.alive.expired()) return std::nullopt;
  const auto& place = found->second.place;
  const bool same = found->second.storage == storage_of(tensor) &&
                    (place.view ? fits(tensor, place.view->type, place.view->offset, place.view->bits)
                                : fits(tensor, place.region->type, place.region->offset, place.region->bits));
  return same ? std::optional(place) : std::nullopt;
}

std::vector<std::shared_ptr<Memory::Region>> Memory::regions_of(const at::Tensor& tensor) const {
  const auto found = storages_.find(storage_of(tensor));
  if (found == storages_.end() || found->second.alive.expired()) return {};
  return found->second.regions;
}

std::optional<Memory::Place> Memory::find_twin(const at::Tensor& tensor) const {
  std::optional<Place> found;
  for (const auto& region : regions_of(tensor)) {
    std::optional<Place> here;
    if (fits(tensor, region->type, region->offset, region->bits)) here = Place{region, nullptr};
    for (const auto& weak : region->views)
      if (auto view = weak.lock(); !here && view && fits(tensor, view->type, view->offset, view->bits))
        here = Place{region, std::move(view)};
    if (here && found) return std::nullopt;  // two inputs of one memory: it may be either's
    if (here) found = std::move(here);
  }
  return found;
}

std::shared_ptr<Memory::Region> Memory::enter(const at::Tensor& tensor, ir::Value& value) {
  auto region = std::make_shared<Region>();
  region->type = type_of(tensor);
  region->offset = tensor.storage_offset();
  region->value = &value;
  region->bits = bits_of(tensor);
  const auto* storage = storage_of(tensor);
  auto in_storage = storages_.find(storage);
  if (in_storage != storages_.end() && in_storage->second.alive.expired()) {
    storages_.erase(in_storage);
    in_storage = storages_.end();
  }
  if (in_storage == storages_.end())
    in_storage = storages_.emplace(storage, StorageRegions{tensor.storage().getWeakStorageImpl(), {}}).first;
  in_storage->second.regions.push_back(region);
  enter_twin(tensor, {region, nullptr});
  return region;
}

void Memory::enter_view(const at::Tensor& tensor, const Place& of, ir::Value& value) {
  auto view =
      std::make_shared<View>(View{of.region, of.view, value.producer(), value.index(), type_of(tensor),
                                  tensor.storage_offset(), &value, of.region->version, bits_of(tensor)});
  of.region->views.push_back(view);
  enter_twin(tensor, {of.region, std::move(view)});
}

void Memory::enter_twin(const at::Tensor& tensor, const Place& place) {
  known_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                          KnownTensor{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                                      place, storage_of(tensor)});
}

ir::Value& Memory::add(const std::string& op, std::vector<ir::NamedArgument> arguments, ir::TensorType type) {
  return graph_.add_node(op, std::move(arguments), {std::move(type)}).output();
}

ir::Value& Memory::read(const Place& place) {
  return place.view ? read_view(*place.view) : *place.region->value;
}

ir::Value& Memory::read_view(View& view) {
  if (view.version == view.region->version) return *view.value;
  auto& onto = view.parent ? read_view(*view.parent) : *view.region->value;
  ir::ValueMap map;
  for (auto* input : view.call->inputs()) map[input] = &onto;  // a view has one
  view.value = &ir::copy_node(*view.call, graph_, map).output(view.output);
  view.version = view.region->version;
  return *view.value;
}

/// The value with the dtype and in the layout of what is in that memory.
ir::Value& Memory::laid_out_as(ir::Value& value, ir::Value& old, const ir::TensorType& type) {
  if (value.type().dtype == type.dtype && same_strides(value.type(), type)) return value;
  return add("aten::copy", {{"self", &old}, {"src", &value}}, type);
}

/// Complex numbers as pairs of real ones, or such pairs as complex numbers; null where they do not lie side
/// by side.
ir::Value* Memory::other_parts(ir::Value& value, const std::string& op, ir::Value& onto) {
  auto type = value.type();
  type.dtype = onto.type().dtype;
  type.sizes = onto.type().sizes;
  if (op == "aten::view_as_real") {
    for (auto& stride : type.strides) stride *= 2;
    type.strides.push_back(1);
  } else {
    if (type.strides.back() != 1) return nullptr;
    type.strides.pop_back();
    if (std::ranges::any_of(type.strides, [](ir::Dim stride) { return stride % 2 != 0; })) return nullptr;
    for (auto& stride : type.strides) stride /= 2;
  }
  return &laid_out_as(add(op, {{"self", &value}}, type), onto, onto.type());
}

/// The new value of the view's parent once the view shows `value`; null where no operator says it.
ir::Value* Memory::inverse(const View& view, ir::Value& onto, ir::Value& value) {
  const auto& call = *view.call;
  const auto& op = call.op();
  const auto& type = onto.type();
  const auto scatter = [&](const char* name, std::vector<ir::NamedArgument> rest) {
    rest.insert(rest.begin(), {{"self", &onto}, {"src", &value}});
    return &add(name, std::move(rest), type);
  };
  const auto like = [&](const char* name) {
    std::vector<ir::NamedArgument> arguments;
    for (const auto& argument : call.arguments())
      if (!std::holds_alternative<ir::Value*>(argument.value)) arguments.push_back(argument);
    return scatter(name, std::move(arguments));
  };
  if (op == "aten::select.int") return like("aten::select_scatter");
  if (op == "aten::slice.Tensor") return like("aten::slice_scatter");
  if (op == "aten::diagonal") return like("aten::diagonal_scatter");
  if (op == "aten::unbind.int")
    return scatter("aten::select_scatter", {number("dim", ir::int_of(call, "dim").value_or(0)),
                                            number("index", static_cast<int64_t>(view.output))});
  if (op == "aten::split.Tensor" || op == "aten::split_with_sizes") {
    const auto dim = ir::wrapped(ir::int_of(call, "dim").value_or(0), type.sizes.size());
    int64_t start = 0;
    for (size_t i = 0; i < view.output; ++i) start += call.output(i).type().sizes[static_cast<size_t>(dim)];
    return scatter("aten::slice_scatter", {number("dim", dim), number("start", start),
                                           number("end", start + view.type.sizes[static_cast<size_t>(dim)])});
  }
  if (op == "aten::alias" || op == "aten::detach") return &laid_out_as(value, onto, type);
  if (op == "aten::_conj")
    return &laid_out_as(add("aten::conj_physical", {{"self", &value}}, value.type()), onto, type);
  if (op == "aten::view_as_real") return other_parts(value, "aten::view_as_complex", onto);
  if (op == "aten::view_as_complex") return other_parts(value, "aten::view_as_real", onto);

  // Other ways to see the same elements: undone if that gives the parent's layout, which the rest relies on.
  auto turned = type;
  turned.strides.clear();
  ir::Value* back = nullptr;
  const auto& strides = value.type().strides;
  const auto turn = [&](const std::string& name, std::vector<ir::NamedArgument> rest) {
    rest.insert(rest.begin(), ir::NamedArgument{"self", &value});
    back = &add(name, std::move(rest), turned);
  };
  if (op == "aten::t" || op == "aten::transpose.int") {
    const auto rank = type.sizes.size();
    if (rank < 2) return &laid_out_as(value, onto, type);
    const auto a = op == "aten::t" ? 0 : ir::wrapped(*ir::int_of(call, "dim0"), rank);
    const auto b = op == "aten::t" ? 1 : ir::wrapped(*ir::int_of(call, "dim1"), rank);
    turned.strides = strides;
    std::swap(turned.strides[static_cast<size_t>(a)], turned.strides[static_cast<size_t>(b)]);
    turn("aten::transpose.int", {number("dim0", a), number("dim1", b)});
  } else if (op == "aten::permute") {
    const auto dims = *ir::ints_of(call, "dims");
    std::vector<int64_t> order(dims.size());
    turned.strides.resize(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto to = static_cast<size_t>(ir::wrapped(dims[i], dims.size()));
      order[to] = static_cast<int64_t>(i);
      turned.strides[to] = strides[i];
    }
    turn("aten::permute", {{"dims", ir::Attribute(order)}});
  } else if (keeps_order(op)) {
    if (const auto found = at::detail::computeStride(value.type().sizes, strides, type.sizes)) {
      turned.strides = *found;
      turn("aten::view", {{"size", ir::Attribute(type.sizes)}});
    }
  }
  return back ? &laid_out_as(*back, onto, type) : nullptr;
}

bool Memory::write(const Place& place, ir::Value& value) {
  auto& region = *place.region;
  auto* now = &value;
  std::vector<std::pair<View*, ir::Value*>> shown;
  if (overlaps(region.type)) return false;
  for (auto view = place.view; view; view = view->parent) {
    if (overlaps(view->type)) return false;
    if (now->type().dtype != view->type.dtype) {
      auto type = now->type();
      type.dtype = view->type.dtype;
      now = &add("aten::_to_copy", {{"self", now}, {"dtype", ir::Attribute(type.dtype)}}, type);
    }
    // Later views of it are said of its real layout.
    if (same_strides(now->type(), view->type)) shown.emplace_back(view.get(), now);
    auto& onto = view->parent ? read_view(*view->parent) : *region.value;
    if (auto* up = inverse(*view, onto, *now)) {
      now = up;
      continue;
    }
    // Any other view, over the region's own tensor at once.
    if (view->type.dtype != region.type.dtype || view->bits.neg != region.bits.neg) return false;
    if (view->bits.conj != region.bits.conj) now = &add("aten::conj_physical", {{"self", now}}, now->type());
    now = &add("graft::strided_scatter",
               {{"self", region.value},
                {"src", now},
                {"size", ir::Attribute(view->type.sizes)},
                {"stride", ir::Attribute(view->type.strides)},
                {"offset", ir::Attribute(view->offset - region.offset)}},
               region.type);
    break;
  }
  region.value = &laid_out_as(*now, *region.value, region.type);
  region.empty = false;
  ++region.version;
  for (auto& [view, what] : shown) {
    view->value = what;
    view->version = region.version;
  }
  return true;
}

void Memory::each_alive(const std::function<void(const c10::TensorImpl*, const Place&)>& see) const {
  for (const auto& [impl, known] : known_)
    if (!known.alive.expired()) see(impl, known.place);
}

void Memory::each_alive_storage(
    const std::function<void(const c10::StorageImpl*, const Region&)>& see) const {
  for (const auto& [storage, in_storage] : storages_) {
    const auto& regions = in_storage.regions;
    if (!in_storage.alive.expired() &&
        std::ranges::none_of(regions, [](const auto& region) { return region->input.has_value(); }))
      see(storage, *regions.front());
  }
}

}  // namespace graft
