#include "train/sharded_base.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "capture/recorder.h"
#include "graft/error.h"
#include "nn/weighted.h"
#include "support/block_path.h"

namespace graft::train {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: what torch's own memory has

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// A layer outside of all blocks is by itself.
std::string unit_of(const std::string& path) {
  const auto block = block_of(path);
  return block.empty() ? path : block;
}

c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

/// The memory goes; the tensor keeps its shape, and its version: what it held is what it will hold again.
void empty(const at::Tensor& tensor) {
  storage_of(tensor)->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage_of(tensor)->set_nbytes(0);
}

/// The tensor's memory is a part of `all`, which lives as long.
void fill(const at::Tensor& tensor, const at::Tensor& all, int64_t offset) {
  auto owner = std::make_unique<at::Tensor>(all);
  auto* const place = static_cast<char*>(all.data_ptr()) + offset * static_cast<int64_t>(all.element_size());
  storage_of(tensor)->set_data_ptr_noswap(at::DataPtr(
      place, owner.release(), [](void* held) { delete static_cast<at::Tensor*>(held); }, tensor.device()));
  storage_of(tensor)->set_nbytes(tensor.nbytes());
}

/// Shares are kept, and travel, in the CPU's memory, whatever the device.
at::TensorOptions on_host(const at::TensorOptions& options) {
  return options.device(at::kCPU).pinned_memory(options.device().is_cuda());
}

/// Those of layers, with the layer's path. What a model has beside layers (a class token, a table of
/// positions) is small and stays.
NamedTensors frozen_weights(const Subject& subject) {
  std::set<const c10::TensorImpl*> trained;
  for (const auto& each : subject.tensors()) trained.insert(each.tensor.unsafeGetTensorImpl());
  NamedTensors all;
  for (const auto& item : subject.model().named_modules()) {
    const auto* layer = dynamic_cast<const nn::WeightedLayer*>(item.value().get());
    if (!layer || nn::is_wrapped_path(item.key())) continue;
    for (const auto& weight : {layer->weight, layer->bias})
      if (weight.defined() && !weight.requires_grad() && !trained.contains(weight.unsafeGetTensorImpl()))
        all.emplace_back(item.key(), weight);
  }
  return all;
}

}  // namespace

void refuse_without_frozen_weights(const Subject& subject) {
  if (frozen_weights(subject).empty())
    throw UsageError(
        "[train] zero_stage 3 shares out frozen weights, and all weights of this model are trained: use "
        "zero_stage 1, which shares out the optimizer's state");
}

ShardedBase::ShardedBase(const Subject& subject, const std::shared_ptr<ProcessGroup>& group)
    : ShardedBase(subject, group->rank(), group->size(),
                  [&](std::vector<at::Tensor> pieces) { return dist::share(group, std::move(pieces)); }) {}

ShardedBase::ShardedBase(const Subject& subject, int rank, int processes, const MakeShares& share)
    : processes_(processes) {
  const at::NoGradGuard no_grad;
  for (const auto& [path, weight] : frozen_weights(subject)) {
    if (!weight.is_cpu() && !weight.is_cuda())
      throw UsageError("[train] zero_stage 3 is for models on CPUs and GPUs, not on " +
                       weight.device().str());
    add(unit_of(path), weight);
  }
  std::vector<at::Tensor> pieces;
  for (auto& [name, unit] : units_)
    for (auto& [dtype, pack] : unit.packs) {
      pack.piece = pieces.size();
      pack.mine = take_share(pack, rank, processes);
      pieces.push_back(pack.mine);
      unit.bytes += static_cast<int64_t>(pieces.back().nbytes()) * processes;
      hold(static_cast<int64_t>(pieces.back().nbytes()));
    }
  name_modules(subject.model());
  shares_ = share(std::move(pieces));
  set_current(this);
}

ShardedBase::~ShardedBase() {
  if (Residency::current() == this) set_current(nullptr);
}

/// A tensor that two layers share is of the unit it is met in first.
void ShardedBase::add(const std::string& name, const at::Tensor& weight) {
  auto& unit = units_[name];
  const auto [place, fresh] = of_weight_.try_emplace(weight.unsafeGetTensorImpl(), &unit);
  if (!fresh) return;
  auto& pack = unit.packs[weight.scalar_type()];
  int64_t offset = 0;
  if (!pack.weights.empty()) {
    const auto& last = pack.weights.back();
    offset = rounded_up(last.offset + last.tensor.numel(),
                        std::max<int64_t>(1, kAlignment / static_cast<int64_t>(weight.element_size())));
  }
  pack.weights.push_back({weight, offset});
  whole_ += static_cast<int64_t>(weight.nbytes());
}

/// Copies this process's part out of the weights, whose memory then goes.
at::Tensor ShardedBase::take_share(Pack& pack, int rank, int size) {
  const auto& last = pack.weights.back();
  const auto item = static_cast<int64_t>(last.tensor.element_size());
  pack.share = rounded_up((last.offset + last.tensor.numel() + size - 1) / size,
                          std::max<int64_t>(1, kAlignment / item));
  pack.options = last.tensor.options();
  auto mine = at::zeros({pack.share}, on_host(pack.options));
  const int64_t begin = rank * pack.share, end = begin + pack.share;
  for (const auto& [tensor, offset] : pack.weights) {
    const int64_t from = std::max(begin, offset), to = std::min(end, offset + tensor.numel());
    if (from < to)
      mine.slice(0, from - begin, to - begin)
          .copy_(tensor.reshape({-1}).slice(0, from - offset, to - offset));
    auto* impl = tensor.unsafeGetTensorImpl();
    const auto sizes = tensor.sizes().vec();
    impl->set_allow_tensor_metadata_change(true);
    impl->set_storage_keep_dtype(c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                              at::DataPtr(nullptr, tensor.device()),
                                              /*allocator=*/nullptr, /*resizable=*/false));
    impl->set_storage_offset(0);
    impl->set_sizes_contiguous(sizes);
  }
  return mine;
}

/// A module's address stands for the units of all weights in it, a storage's for that of its weight.
void ShardedBase::name_modules(const torch::nn::Module& root) {
  for (const auto& module : root.modules(/*include_self=*/true)) {
    Units units;
    for (const auto& parameter : module->parameters()) {
      const auto found = of_weight_.find(parameter.unsafeGetTensorImpl());
      if (found == of_weight_.end()) continue;
      of_key_[storage_of(parameter)] = {found->second};
      if (std::find(units.begin(), units.end(), found->second) == units.end()) units.push_back(found->second);
    }
    if (!units.empty()) of_key_[module.get()] = std::move(units);
  }
}

ShardedBase::Units ShardedBase::units_of(Keys keys) const {
  Units all;
  for (const auto* key : keys) {
    const auto found = of_key_.find(key);
    if (found == of_key_.end()) continue;
    for (auto* unit : found->second)
      if (std::find(all.begin(), all.end(), unit) == all.end()) all.push_back(unit);
  }
  return all;
}

bool ShardedBase::present(const void* key) const {
  const auto found = of_key_.find(key);
  return found == of_key_.end() ||
         std::all_of(found->second.begin(), found->second.end(),
                     [](const Unit* unit) { return unit->there && unit->uses > 0; });
}

void ShardedBase::enter(Keys keys) {
  auto units = units_of(keys);
  if (units.empty()) return;
  std::sort(units.begin(), units.end());
  auto next = order_.used(units);
  for (auto* unit : units) ++unit->uses;
  expect({});  // what was foreseen and does not come makes room first
  for (auto* unit : units) start(*unit);
  for (auto* unit : units) finish(*unit);
  expect(std::move(next));
}

void ShardedBase::leave(Keys keys) {
  for (auto* unit : units_of(keys)) {
    if (unit->uses > 0) --unit->uses;
    if (unit->uses == 0 && !unit->expected) free(*unit);
  }
}

/// In place of what was expected until now.
void ShardedBase::expect(Units units) {
  for (auto* unit : expected_) unit->expected = false;
  for (auto* unit : units) unit->expected = true;
  for (auto* unit : expected_)
    if (unit->uses == 0 && !unit->expected) {
      finish(*unit);
      free(*unit);
    }
  for (auto* unit : units) start(*unit);
  expected_ = std::move(units);
}

Residency::Copy* ShardedBase::copy(const void* key, int kind,
                                   const std::function<std::unique_ptr<Copy>()>& create) {
  const auto found = of_key_.find(key);
  if (found == of_key_.end() || CallWatcher::current()) return nullptr;
  auto& unit = *found->second.front();
  auto& made = unit.copies[{key, kind}];
  if (!made) {
    made = create();
    hold(made->bytes());
  }
  return made.get();
}

void ShardedBase::release() {
  order_.begin();
  expected_.clear();
  for (auto& [name, unit] : units_) {
    unit.uses = 0;
    unit.expected = false;
    finish(unit);
    free(unit);
  }
}

void ShardedBase::gather() {
  release();
  for (auto& [name, unit] : units_) {
    unit.copies.clear();
    start(unit);
    finish(unit);
    ++unit.uses;
  }
}

void ShardedBase::start(Unit& unit) {
  if (unit.there || !unit.fetches.empty()) return;
  const Recorder::Pause no_part_of_the_program;
  const at::NoGradGuard no_grad;
  hold(unit.bytes);
  for (auto& [dtype, pack] : unit.packs) {
    pack.all = at::empty({processes_, pack.share}, on_host(pack.options));
    unit.fetches.push_back(shares_->fetch(pack.piece, pack.all));
  }
}

void ShardedBase::finish(Unit& unit) {
  if (unit.fetches.empty()) return;
  const Recorder::Pause no_part_of_the_program;
  for (const auto& fetch : unit.fetches) fetch->wait();
  unit.fetches.clear();
  for (auto& [dtype, pack] : unit.packs) {
    pack.all = pack.all.to(pack.options.device(), /*non_blocking=*/true);
    for (const auto& [tensor, offset] : pack.weights) fill(tensor, pack.all, offset);
  }
  unit.there = true;
  for (const auto& [key, copy] : unit.copies) {
    copy->make();
    hold(copy->bytes());
  }
}

void ShardedBase::free(Unit& unit) {
  if (!unit.there) return;
  for (auto& [dtype, pack] : unit.packs) {
    for (const auto& weight : pack.weights) empty(weight.tensor);
    pack.all.reset();
  }
  for (const auto& [key, copy] : unit.copies) {
    copy->drop();
    hold(-copy->bytes());
  }
  unit.there = false;
  hold(-unit.bytes);
}

int64_t ShardedBase::held_bytes() const {
  size_t bytes = 0;
  for (const auto& [name, unit] : units_) {
    if (unit.there)
      for (const auto& [key, copy] : unit.copies) bytes += static_cast<size_t>(copy->bytes());
    for (const auto& [dtype, pack] : unit.packs) {
      bytes += pack.mine.nbytes();
      if (pack.all.defined())
        bytes += pack.all.nbytes();
      else
        for (const auto& weight : pack.weights) bytes += weight.tensor.storage().nbytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

void ShardedBase::hold(int64_t bytes) {
  held_ += bytes;
  peak_ = std::max(peak_, held_);
}

}  // namespace graft::train
