#include "runtime/recorded_runs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/tensor_over.h"
#include "support/log.h"

namespace graft::runtime {
namespace {

/// Of each kind. Libraries set themselves up in their first calls, the second shows which inputs move, and
/// what is asked for once or twice is not worth a recording.
constexpr int plain_runs_first = 2;
/// That have recordings of their own.
constexpr size_t most_kinds = 8;
/// For each queue and kind: the caller has one's results while the other runs.
constexpr size_t most_at_a_time = 2;
/// Where a recording gives other results than a plain run did: perhaps no two runs give the same.
constexpr int plain_runs_to_judge = 3;
/// Who moves its inputs about so that they do not fit this often is better served by plain runs.
constexpr int most_ever = 16;

const void* address_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.const_data_ptr() : nullptr;
}

/// But for the order in which atomic additions of a library happen to be done: what goes wrong with a
/// recording is an address, and that gives other numbers.
bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || a.numel() == 0) return true;
  if (!a.is_floating_point() && !a.is_complex()) return at::equal(a, b);
  constexpr double part = 0.02;
  if (!at::equal(a.isfinite(), b.isfinite())) return false;
  const auto x = a.nan_to_num(0, 0, 0), y = b.nan_to_num(0, 0, 0);
  return (x - y).abs().max().le(x.abs().max() * part).item<bool>();
}

bool are_alike(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return are_alike(x, y); });
}

/// Whether one run lies about as far from another as two of its kind do, on the average. An optimizer makes a
/// whole step of a gradient that is rounding noise, in either direction; which elements those are, and how
/// many, is chance, and few may be far off. A wrong address would move all.
bool is_noise(const at::Tensor& one, const at::Tensor& two, const at::Tensor& other) {
  if (are_alike(one, other)) return true;
  if (!one.is_floating_point() || !at::equal(one.isfinite(), other.isfinite())) return false;
  constexpr double times = 4, part = 0.02;
  const auto mean = [](const at::Tensor& x) { return x.nan_to_num(0, 0, 0).abs().mean(); };
  const auto values = one.to(at::kDouble);
  const auto allowed = at::max(mean(two - values) * times, mean(values) * part);
  return mean(other - values).le(allowed).item<bool>();
}

/// Of two runs that are not the same, and a third.
bool are_noise(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& two,
               const std::vector<at::Tensor>& other) {
  if (are_alike(one, two)) return false;
  for (size_t i = 0; i < one.size(); ++i)
    if (!is_noise(one[i], two[i], other[i])) return false;
  return true;
}

/// What a caller is given of a result's memory. Of a few numbers (a loss) it is a copy: who has the last one
/// does not keep the recording from its next run, nor is a second one made for that.
c10::Storage handed_out(const KeptMemory& memory) {
  constexpr size_t few_bytes = 64;
  auto own = memory.share();
  if (own.nbytes() > few_bytes) return own;
  const auto bytes = static_cast<int64_t>(own.nbytes());
  return tensor_over(own, at::kByte, {bytes}, {1}, 0).clone().storage();
}

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> made;
  made.reserve(all.size());
  for (const auto& each : all) made.push_back(each.clone());
  return made;
}

std::vector<at::Tensor> joined(std::vector<at::Tensor> one, const std::vector<at::Tensor>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

void write_back(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

/// Whether all that the second does is done by the first.
bool covers(const RecordedRuns::Kind& all, const RecordedRuns::Kind& some) {
  return all.in_place == some.in_place &&
         std::ranges::equal(all.in_use, some.in_use, [](char has, char needs) { return has || !needs; });
}

}  // namespace

RecordedRuns::RecordedRuns(const Device& device, std::vector<bool> written, std::vector<bool> moves,
                           Launch launch, Check check)
    : device_(device),
      written_(std::move(written)),
      moves_(std::move(moves)),
      launch_(std::move(launch)),
      check_(std::move(check)) {}

std::optional<std::vector<at::Tensor>> RecordedRuns::run(const std::vector<at::Tensor>& inputs,
                                                         const Kind& kind) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (given_up_) return std::nullopt;
  see(inputs);
  const auto* queue = device_.queue();
  auto& [own, count] = counted(kind);
  std::erase_if(instances_, [&](const Instance& each) {
    return each.queue == queue && each.kind == own && !fits(each, inputs);
  });
  size_t mine = 0;
  Instance* larger = nullptr;
  for (auto& instance : instances_) {
    if (instance.queue != queue || !covers(instance.kind, kind)) continue;
    const bool is_own = instance.kind == own;
    mine += is_own;
    if (!is_free(instance) || !fits(instance, inputs)) continue;
    if (is_own) return replay(instance, inputs);
    larger = &instance;
  }
  if (count.runs < plain_runs_first) {
    ++count.runs;
  } else if (mine < most_at_a_time) {
    if (++count.recorded <= most_ever) return record(inputs, own);
    give_up("its inputs are seldom where they were");
    return std::nullopt;
  }
  return larger ? std::optional(replay(*larger, inputs)) : std::nullopt;
}

/// The kind that a run is recorded as, and what is known of it. Where there have been many, one that does all
/// the work is for the rest.
std::pair<const RecordedRuns::Kind, RecordedRuns::Count>& RecordedRuns::counted(const Kind& kind) {
  if (const auto known = counts_.find(kind); known != counts_.end()) return *known;
  if (counts_.size() < most_kinds) return *counts_.try_emplace(kind).first;
  return *counts_.try_emplace({std::vector<char>(kind.in_use.size(), 1), kind.in_place}).first;
}

/// Notes which inputs are not always at the same place.
void RecordedRuns::see(const std::vector<at::Tensor>& inputs) {
  last_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* address = address_of(inputs[i]);
    if (!counts_.empty() && address != last_[i]) moves_[i] = true;
    last_[i] = address;
  }
}

bool RecordedRuns::fits(const Instance& instance, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!instance.copies[i].defined() && address_of(inputs[i]) != instance.addresses[i]) return false;
  return true;
}

bool RecordedRuns::is_free(const Instance& instance) const {
  return std::ranges::all_of(instance.memory, [&](const KeptMemory& m) { return m.is_free(device_); });
}

std::vector<at::Tensor> RecordedRuns::replay(Instance& instance, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (instance.copies[i].defined()) instance.copies[i].copy_(inputs[i], /*non_blocking=*/true);
  for (const auto& part : instance.parts) {
    part->launch();
    check_(*instance.context);
  }
  return results_of(instance, inputs);
}

std::vector<at::Tensor> RecordedRuns::results_of(const Instance& instance,
                                                 const std::vector<at::Tensor>& inputs) const {
  std::vector<c10::Storage> memory;  // results may share one
  memory.reserve(instance.memory.size());
  for (const auto& each : instance.memory) memory.push_back(handed_out(each));
  std::vector<at::Tensor> results;
  results.reserve(instance.results.size());
  for (const auto& result : instance.results) {
    if (result.kind == Result::Kind::none) {
      results.emplace_back();
      continue;
    }
    const auto& storage =
        result.kind == Result::Kind::input ? inputs[result.place].storage() : memory[result.place];
    const int64_t offset =
        result.offset + (result.kind == Result::Kind::input ? inputs[result.place].storage_offset() : 0);
    results.push_back(tensor_over(storage, result.dtype, result.sizes, result.strides, offset));
  }
  return results;
}

RecordedRuns::Result RecordedRuns::describe(const at::Tensor& result, const std::vector<at::Tensor>& inputs,
                                            Instance& instance) {
  if (!result.defined()) return {};
  Result found{.kind = Result::Kind::memory,
               .dtype = result.scalar_type(),
               .sizes = result.sizes().vec(),
               .strides = result.strides().vec(),
               .offset = result.storage_offset()};
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && result.is_alias_of(inputs[i])) {
      found.kind = Result::Kind::input;
      found.place = i;
      found.offset -= inputs[i].storage_offset();
      return found;
    }
  auto& memory = instance.memory;
  const auto known =
      std::ranges::find_if(memory, [&](const KeptMemory& m) { return m.is(result.storage()); });
  found.place = static_cast<size_t>(known - memory.begin());
  if (known == memory.end()) memory.emplace_back().keep(result.storage());
  return found;
}

std::vector<at::Tensor> RecordedRuns::written_of(const std::vector<at::Tensor>& inputs, bool in_place) const {
  std::vector<at::Tensor> found;
  for (size_t i = 0; in_place && i < inputs.size(); ++i)
    if (written_[i]) found.push_back(inputs[i]);
  return found;
}

void RecordedRuns::make_parts(Instance& instance, const std::vector<at::Tensor>& inputs) {
  auto read = inputs;
  instance.copies.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    instance.addresses.push_back(address_of(inputs[i]));
    if (!moves_[i] || !inputs[i].defined() || !inputs[i].is_non_overlapping_and_dense() ||
        (instance.kind.in_place && written_[i]))
      continue;
    read[i] = instance.copies[i] =
        at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
  }
  instance.parts = device_.record([&](const Device::Cut& cut) {
    const auto results = launch_(read, instance.kind, instance.context, cut);
    for (const auto& result : results) instance.results.push_back(describe(result, read, instance));
  });
}

/// The call's own results are those of a plain run; what was recorded has to give the same, and to write the
/// same.
std::vector<at::Tensor> RecordedRuns::record(const std::vector<at::Tensor>& inputs, const Kind& kind) {
  const auto written = written_of(inputs, kind.in_place), before = clones(written);
  const std::shared_ptr<RunContext> context = device_.make_context();
  auto plain = launch_(inputs, kind, context, [&] { check_(*context); });
  check_(*context);
  Instance instance{.queue = device_.queue(), .kind = kind, .context = device_.make_context()};
  const auto after = clones(written);
  try {
    make_parts(instance, inputs);
    write_back(written, before);
    const auto recorded = replay(instance, inputs);
    const auto all = joined(plain, after), got = joined(recorded, clones(written));
    bool right = are_alike(all, got);
    for (int more = 0; more < plain_runs_to_judge && !right; ++more) {
      write_back(written, before);
      const auto again = launch_(inputs, kind, context, [&] { check_(*context); });
      check_(*context);
      right = are_noise(all, joined(again, written), got);
    }
    if (right)
      instances_.push_back(std::move(instance));
    else
      give_up("what was recorded gives other results");
  } catch (const std::exception& error) {
    give_up(error.what());
  }
  write_back(written, after);
  return plain;
}

void RecordedRuns::give_up(const std::string& reason) {
  given_up_ = true;
  instances_.clear();
  log(LogTopic::kernels, "runs are not recorded any more: " + reason);
}

}  // namespace graft::runtime
