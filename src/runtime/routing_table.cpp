#include "runtime/routing_table.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <list>
#include <mutex>

namespace graft::runtime {
namespace {

/// Stays with a tensor, also when it is detached.
struct HostTable : c10::BackendMeta {
  HostTable(at::Tensor made_of, uint32_t at_version) : host(std::move(made_of)), version(at_version) {}
  at::Tensor host;
  uint32_t version;  // that the device's tensor had
};

/// A tensor of inference mode has none, and takes no note of writes.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

at::Tensor make(const at::Tensor& host, at::Device device) {
  auto made = host.to(device, /*non_blocking=*/false, /*copy=*/true);
  made.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<HostTable>(host, version_of(made)));
  return made;
}

/// Calls choose the same rows over and over, and a copy to a device waits for it.
class Tables {
 public:
  at::Tensor get(const at::Tensor& host, at::Device device) {
    // Memory goes back to the queue that it was taken for, which may not be the one that still reads it.
    const auto queue = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const std::lock_guard<std::mutex> lock(guard_);
    const auto found = std::ranges::find_if(all_, [&](const Entry& each) {
      return each.queue == queue && each.inference == c10::InferenceMode::is_enabled() &&
             at::equal(each.host, host) && version_of(each.table) == each.version;
    });
    if (found != all_.end()) {
      all_.splice(all_.begin(), all_, found);
      return found->table;
    }
    auto made = make(host, device);
    all_.push_front({queue, c10::InferenceMode::is_enabled(), host, made, version_of(made)});
    constexpr size_t most = 32;
    if (all_.size() > most) all_.pop_back();
    return made;
  }

 private:
  struct Entry {
    c10::Stream queue;
    bool inference;
    at::Tensor host, table;
    uint32_t version;
  };
  std::mutex guard_;
  std::list<Entry> all_;  // the last used first
};

}  // namespace

at::Tensor routing_table(const at::Tensor& host, at::Device device) {
  // Not destroyed at the end of the process: the device may be gone by then.
  static auto& tables = *new Tables;
  return tables.get(host, device);
}

at::Tensor host_table_of(const at::Tensor& table) {
  const auto* made = dynamic_cast<const HostTable*>(table.unsafeGetTensorImpl()->get_backend_meta());
  return made && version_of(table) == made->version ? made->host : at::Tensor();
}

void columns_in_use(const at::Tensor& host, std::vector<char>& in_use) {
  in_use.assign(static_cast<size_t>(host.size(1)), 0);
  const auto cells = host.accessor<bool, 2>();
  for (int64_t row = 0; row < host.size(0); ++row)
    for (int64_t slot = 0; slot < host.size(1); ++slot) in_use[static_cast<size_t>(slot)] |= cells[row][slot];
}

TORCH_LIBRARY_FRAGMENT(graft, m) { m.def("routing_table(Tensor host, *, Device device) -> Tensor"); }

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) { m.impl("routing_table", routing_table); }

}  // namespace graft::runtime
