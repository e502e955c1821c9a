#include "graft/process_group.h"

#include <ATen/ATen.h>

#include <charconv>
#include <cstdlib>

#include "distributed/connected.h"
#include "graft/error.h"
#include "support/env.h"

namespace graft {
namespace {

/// One process: everybody's tensor is one's own.
class Alone : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const at::Tensor&) override {}
  void broadcast(const at::Tensor&, int) override {}
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override { return {tensor}; }
  void barrier() override {}
  void fail(const std::string&) override {}
};

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

int64_t number(const char* name, int64_t otherwise, int64_t most) {
  const auto text = variable(name, std::to_string(otherwise));
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > most)
    throw UsageError("[dist] " + std::string(name) + "=" + text + " is not a number from 0 to " +
                     std::to_string(most));
  return value;
}

void check(const ProcessGroupOptions& o) {
  if (o.size < 1) throw UsageError("[dist] WORLD_SIZE must be at least 1");
  if (o.rank < 0 || o.rank >= o.size)
    throw UsageError("[dist] RANK is " + std::to_string(o.rank) + ", and WORLD_SIZE " +
                     std::to_string(o.size) + ": ranks go from 0 to " + std::to_string(o.size - 1));
  if (o.size > 1 && o.master_port == 0) throw UsageError("[dist] MASTER_PORT must not be 0");
  if (o.peer_timeout.count() < 1) throw UsageError("[dist] the peer timeout must be at least a second");
  if (o.timeout.count() < 1) throw UsageError("[dist] the timeout must be at least a second");
}

constexpr int64_t kMostProcesses = 1 << 16;

}  // namespace

ProcessGroupOptions ProcessGroupOptions::from_environment() {
  ProcessGroupOptions o;
  o.size = static_cast<int>(number("WORLD_SIZE", 1, kMostProcesses));
  if (o.size > 1 && !std::getenv("RANK"))
    throw UsageError("[dist] WORLD_SIZE is " + std::to_string(o.size) +
                     " and RANK is not set; start the processes with `graft launch` or torchrun");
  o.rank = static_cast<int>(number("RANK", 0, kMostProcesses));
  o.local_rank = static_cast<int>(number("LOCAL_RANK", o.rank, kMostProcesses));
  o.master_addr = variable("MASTER_ADDR", o.master_addr);
  o.master_port = static_cast<uint16_t>(number("MASTER_PORT", o.master_port, UINT16_MAX));
  if (const auto seconds = env_number("GRAFT_PEER_TIMEOUT")) o.peer_timeout = std::chrono::seconds(*seconds);
  check(o);
  return o;
}

std::shared_ptr<ProcessGroup> ProcessGroup::connect(const ProcessGroupOptions& options) {
  check(options);
  if (options.size == 1) return std::make_shared<Alone>();
  return dist::connect(options);
}

std::vector<std::pair<std::string, at::Tensor>> broadcast_named(
    ProcessGroup& group, const std::vector<std::pair<std::string, at::Tensor>>& tensors, int from) {
  if (group.size() == 1) return tensors;
  const bool mine = group.rank() == from;
  const auto long_tensor = [](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); };
  // First what there is, as numbers: the name's characters, the dtype, the sizes.
  std::vector<int64_t> about;
  if (mine)
    for (const auto& [name, tensor] : tensors) {
      about.push_back(static_cast<int64_t>(name.size()));
      about.insert(about.end(), name.begin(), name.end());
      about.push_back(static_cast<int64_t>(tensor.scalar_type()));
      about.push_back(tensor.dim());
      about.insert(about.end(), tensor.sizes().begin(), tensor.sizes().end());
    }
  const auto length = long_tensor({static_cast<int64_t>(about.size())});
  group.broadcast(length, from);
  const auto header = mine ? long_tensor(about) : at::zeros({length.item<int64_t>()}, at::kLong);
  if (header.numel() > 0) group.broadcast(header, from);

  std::vector<std::pair<std::string, at::Tensor>> all;
  const auto* at = header.const_data_ptr<int64_t>();
  const auto* const end = at + header.numel();
  while (at != end) {
    const auto characters = *at++;
    std::string name(at, at + characters);
    at += characters;
    const auto dtype = static_cast<at::ScalarType>(*at++);
    const auto dims = *at++;
    const std::vector<int64_t> sizes(at, at + dims);
    at += dims;
    auto values = mine ? tensors[all.size()].second.cpu().contiguous() : at::empty(sizes, dtype);
    if (values.numel() > 0) group.broadcast(values, from);
    all.emplace_back(std::move(name), std::move(values));
  }
  return all;
}

}  // namespace graft
