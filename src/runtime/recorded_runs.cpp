#include "runtime/recorded_runs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/tensor_over.h"
#include "support/log.h"

namespace graft::runtime {
namespace {

/// Libraries set themselves up in their first calls, and the second shows which inputs move.
constexpr int plain_runs_first = 2;
/// For each queue: the caller has one's results while the other runs.
constexpr size_t most_at_a_time = 2;
/// Who moves its inputs about so that they do not fit this often is better served by plain runs.
constexpr int most_ever = 16;

const void* address_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.const_data_ptr() : nullptr;
}

/// Bit for bit, but for the bits of NaN.
bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].defined() && a[i].numel() > 0 && !at::allclose(a[i], b[i], 0, 0, /*equal_nan=*/true))
      return false;
  return true;
}

}  // namespace

RecordedRuns::RecordedRuns(const Device& device, Launch launch, Check check)
    : device_(device), launch_(std::move(launch)), check_(std::move(check)) {}

std::optional<std::vector<at::Tensor>> RecordedRuns::run(const std::vector<at::Tensor>& inputs) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (given_up_) return std::nullopt;
  see(inputs);
  if (plain_runs_ < plain_runs_first) {
    ++plain_runs_;
    return std::nullopt;
  }
  const auto* queue = device_.queue();
  std::erase_if(instances_,
                [&](const Instance& instance) { return instance.queue == queue && !fits(instance, inputs); });
  size_t mine = 0;
  for (auto& instance : instances_) {
    if (instance.queue != queue) continue;
    if (is_free(instance)) return replay(instance, inputs);
    ++mine;
  }
  return mine < most_at_a_time ? record(inputs) : std::nullopt;
}

/// Notes which inputs are not always at the same place.
void RecordedRuns::see(const std::vector<at::Tensor>& inputs) {
  moves_.resize(inputs.size());
  last_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto* address = address_of(inputs[i]);
    if (plain_runs_ > 0 && address != last_[i]) moves_[i] = true;
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
  instance.recording->launch();
  check_(*instance.context);
  return results_of(instance, inputs);
}

std::vector<at::Tensor> RecordedRuns::results_of(const Instance& instance,
                                                 const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> results;
  results.reserve(instance.results.size());
  for (const auto& result : instance.results) {
    if (result.kind == Result::Kind::none) {
      results.emplace_back();
      continue;
    }
    const auto& storage = result.kind == Result::Kind::input ? inputs[result.place].storage()
                                                             : instance.memory[result.place].share();
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

/// The call's own results are those of a plain run; what was recorded has to give the same.
std::optional<std::vector<at::Tensor>> RecordedRuns::record(const std::vector<at::Tensor>& inputs) {
  if (++recorded_ > most_ever) {
    give_up("its inputs are seldom where they were");
    return std::nullopt;
  }
  Instance instance{.queue = device_.queue(), .context = device_.make_context()};
  auto read = inputs;
  instance.copies.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    instance.addresses.push_back(address_of(inputs[i]));
    if (!moves_[i] || !inputs[i].defined() || !inputs[i].is_non_overlapping_and_dense()) continue;
    read[i] = instance.copies[i] =
        at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
  }
  const std::shared_ptr<RunContext> context = device_.make_context();
  auto plain = launch_(inputs, context);
  check_(*context);
  try {
    instance.recording = device_.record([&] {
      const auto results = launch_(read, instance.context);
      for (const auto& result : results) instance.results.push_back(describe(result, read, instance));
    });
    if (!are_equal(plain, replay(instance, inputs))) {
      give_up("what was recorded gives other results");
      return plain;
    }
  } catch (const std::exception& error) {
    give_up(error.what());
    return plain;
  }
  instances_.push_back(std::move(instance));
  return plain;
}

void RecordedRuns::give_up(const std::string& reason) {
  given_up_ = true;
  instances_.clear();
  log(LogTopic::kernels, "runs are not recorded any more: " + reason);
}

}  // namespace graft::runtime
