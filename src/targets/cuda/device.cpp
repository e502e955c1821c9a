#include "targets/cuda/device.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>

#include "graft/error.h"

namespace graft::cuda {
namespace {

class CudaContext : public runtime::RunContext {
 public:
  explicit CudaContext(at::Device device)
      : device_(device), failed_(at::zeros({1}, at::device(device).dtype(at::kInt))) {}

  void* stream() const override { return at::cuda::getCurrentCUDAStream(device_.index()).stream(); }
  int32_t* failed() override { return failed_.data_ptr<int32_t>(); }
  int32_t take_failure() override {
    const auto mark = failed_.item<int32_t>();
    if (mark) failed_.zero_();
    return mark;
  }
  bool is_immediate() const override { return false; }

 private:
  at::Device device_;
  at::Tensor failed_;
};

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
  void zero(const at::Tensor& tensor) const override { tensor.zero_(); }

  /// Reading the table would make the host wait for the GPU: nothing is left out.
  void columns_in_use(const at::Tensor& table, std::vector<char>& in_use) const override {
    in_use.assign(static_cast<size_t>(table.size(1)), 1);
  }
  void check_indices(const at::Tensor& indices, int64_t size, const std::string& what) const override {
    if (indices.lt(0).logical_or(indices.ge(size)).any().item<bool>())
      throw Error("[call] an index in the data is out of range, in " + what);
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
