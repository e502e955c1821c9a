#include "targets/cuda/device.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "graft/error.h"
#include "runtime/routing_table.h"
#include "support/log.h"
#include "targets/cuda/measured_products.h"
#include "targets/cuda/row_write.h"

namespace graft::cuda {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw Error(std::string("[cuda] ") + cudaGetErrorString(status));
}

/// Kernels leave their marks twice: in memory of the host, so that reading one costs no copy, and in memory
/// of the GPU, where kernels that write into inputs look. The host waits no longer than for the last kernel
/// that can fail (the embedding of a model, mostly its first).
class CudaContext : public runtime::RunContext {
 public:
  explicit CudaContext(at::Device device)
      : device_(device), seen_(at::zeros({1}, at::dtype(at::kInt).pinned_memory(true))) {
    const c10::cuda::CUDAGuard guard(device);
    check(cudaEventCreateWithFlags(&checked_, cudaEventDisableTiming));
    // The mark, and after it where the host's is (expressions.h).
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(seen_.data_ptr<int32_t>()));
    failed_ = at::tensor({int64_t{0}, address}, at::kLong).to(device);
  }
  ~CudaContext() override { cudaEventDestroy(checked_); }

  void* stream() const override { return current().stream(); }
  int32_t* failed() override { return static_cast<int32_t*>(failed_.data_ptr()); }
  void end_checks() override {
    // In a recording the event is part of it, and of each time that it is launched.
    is_recorded_ = at::cuda::currentStreamCaptureStatusMayInitCtx() != at::cuda::CaptureStatus::None;
    check(cudaEventRecordWithFlags(checked_, current().stream(),
                                   is_recorded_ ? cudaEventRecordExternal : cudaEventRecordDefault));
    has_ended_ = true;
  }
  int32_t take_failure() override {
    if (is_recorded_ || std::exchange(has_ended_, false))
      check(cudaEventSynchronize(checked_));
    else
      current().synchronize();
    auto& seen = *seen_.data_ptr<int32_t>();
    const auto mark = seen;
    if (mark != 0) {  // the kernels that look at it, or leave it once more, have to be done
      check(cudaMemsetAsync(failed(), 0, sizeof(int32_t), current().stream()));
      current().synchronize();
      seen = 0;
    }
    return mark;
  }
  bool is_immediate() const override { return false; }
  bool guards_writes() const override { return true; }

 private:
  at::cuda::CUDAStream current() const { return at::cuda::getCurrentCUDAStream(device_.index()); }

  at::Device device_;
  at::Tensor seen_, failed_;
  cudaEvent_t checked_ = nullptr;
  bool has_ended_ = false, is_recorded_ = false;
};

class CudaRecording : public runtime::Recording {
 public:
  /// `before`: whose memory it may use in addition to its own; null if it is the first.
  explicit CudaRecording(const CudaRecording* before) {
    graph_.capture_begin(before ? before->graph_.pool() : at::cuda::MempoolId_t{0, 0},
                         cudaStreamCaptureModeThreadLocal);
  }
  void end() { graph_.capture_end(); }
  void launch() override { graph_.replay(); }

 private:
  mutable at::cuda::CUDAGraph graph_;
};

std::vector<std::unique_ptr<runtime::Recording>> record_on_side_stream(
    const std::function<void(const runtime::Device::Cut&)>& body) {
  // The stream that torch is on may be the default one, which cannot be recorded.
  const auto current = at::cuda::getCurrentCUDAStream();
  const auto side = at::cuda::getStreamFromPool();
  at::cuda::CUDAEvent ready;
  ready.record(current);
  ready.block(side);
  const c10::cuda::CUDAStreamGuard guard(side);
  std::vector<std::unique_ptr<CudaRecording>> parts;
  parts.push_back(std::make_unique<CudaRecording>(nullptr));
  try {
    body([&] {
      parts.back()->end();
      parts.push_back(std::make_unique<CudaRecording>(parts.back().get()));
    });
  } catch (...) {
    try {
      parts.back()->end();
    } catch (const std::exception& error) {  // what went wrong is said by the first error
      log(LogTopic::kernels, error.what());
    }
    cudaGetLastError();
    throw;
  }
  parts.back()->end();
  return {std::make_move_iterator(parts.begin()), std::make_move_iterator(parts.end())};
}

class CudaDevice : public runtime::Device {
 public:
  explicit CudaDevice(int index) : place_(at::kCUDA, static_cast<c10::DeviceIndex>(index)) {}

  at::Device place() const override { return place_; }
  std::unique_ptr<runtime::RunContext> make_context() const override {
    return std::make_unique<CudaContext>(place_);
  }

  /// What torch's allocator gives, and a whole number of memory transactions.
  int64_t alignment() const override { return 256; }
  at::Tensor allocate(int64_t bytes) const override {
    return at::empty({bytes}, at::device(place_).dtype(at::kByte));
  }
  bool has_pool() const override { return true; }

  const void* queue() const override { return at::cuda::getCurrentCUDAStream(place_.index()).stream(); }
  bool can_record() const override { return true; }
  std::vector<std::unique_ptr<runtime::Recording>> record(
      const std::function<void(const Cut&)>& body) const override {
    const c10::cuda::CUDAGuard guard(place_);
    return record_on_side_stream(body);
  }

  void zero(const at::Tensor& tensor) const override { tensor.zero_(); }

  /// Reading a table of which the host has no copy would make it wait for the GPU: nothing is left out.
  void columns_in_use(const at::Tensor& table, std::vector<char>& in_use) const override {
    if (const auto known = runtime::host_table_of(table); known.defined())
      runtime::columns_in_use(known, in_use);
    else
      in_use.assign(static_cast<size_t>(table.size(1)), 1);
  }
  void write_rows(std::span<const RowWrite> all, runtime::RunContext& context) const override {
    cuda::write_rows(all, context);
  }
  std::shared_ptr<const runtime::ProductWay> fastest_way(const ir::TensorType& out,
                                                         const ir::TensorType* added, const ir::TensorType& a,
                                                         const ir::TensorType& b,
                                                         const cache::Measuring& how) const override {
    return cuda::fastest_way(out, added, a, b, how);
  }
  double time_of(const std::function<void()>& body) const override {
    const auto stream = at::cuda::getCurrentCUDAStream(place_.index());
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    body();
    stream.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  at::Device place_;
};

}  // namespace

const runtime::Device& device(int index) {
  static std::mutex guard;
  static std::map<int, std::unique_ptr<const CudaDevice>> all;
  const std::lock_guard<std::mutex> lock(guard);
  auto& found = all[index];
  if (!found) found = std::make_unique<const CudaDevice>(index);
  return *found;
}

}  // namespace graft::cuda
