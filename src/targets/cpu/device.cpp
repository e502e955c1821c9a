#include "targets/cpu/device.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "graft/error.h"
#include "runtime/data_error.h"
#include "runtime/routing_table.h"
#include "targets/cpu/packed_products.h"
#include "targets/cpu/products.h"

namespace graft::cpu {
namespace {

class HostContext : public runtime::RunContext {
 public:
  int32_t* failed() override { return &failed_; }
  int32_t take_failure() override { return std::exchange(failed_, 0); }
  bool is_immediate() const override { return true; }

 private:
  int32_t failed_ = 0;
};

class HostDevice : public runtime::Device {
 public:
  at::Device place() const override { return at::kCPU; }
  std::unique_ptr<runtime::RunContext> make_context() const override {
    return std::make_unique<HostContext>();
  }

  /// A cache line, and the widest vector register.
  int64_t alignment() const override { return 64; }
  at::Tensor allocate(int64_t bytes) const override { return at::empty({bytes}, at::kByte); }
  void zero(const at::Tensor& tensor) const override {
    if (const auto bytes = tensor.nbytes(); bytes > 0) std::memset(tensor.data_ptr(), 0, bytes);
  }

  void columns_in_use(const at::Tensor& table, std::vector<char>& in_use) const override {
    runtime::columns_in_use(table, in_use);
  }

  /// index_copy_ would find a bad index when it has written by the ones before it.
  void write_rows(std::span<const RowWrite> all, runtime::RunContext&) const override {
    const auto& first = all.front();
    const auto indices = first.index.contiguous();
    const auto* places = indices.const_data_ptr<int64_t>();
    const int64_t size = first.into.dim() == 0 ? 1 : first.into.size(first.dim);
    if (std::any_of(places, places + indices.numel(), [&](int64_t at) { return at < 0 || at >= size; }))
      throw runtime::DataError("[call] an index in the data is out of range, in " + first.what);
    for (const auto& rows : all) rows.into.index_copy_(rows.dim, rows.index, rows.source);
  }

  double time_of(const std::function<void()>& body) const override { return cpu::time_of(body); }

  void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const override {
    cpu::multiply_into(out, a, b);
  }
  void multiply_and_add_into(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                             const at::Tensor& b, double beta, double alpha) const override {
    cpu::multiply_and_add_into(out, added, a, b, beta, alpha);
  }
  std::unique_ptr<PackedProduct> pack(ir::DType dtype, int64_t rows, int64_t in, int64_t out,
                                      const cache::Measuring& how) const override {
    return dtype == ir::DType::f32 ? pack_product(rows, in, out, how) : nullptr;
  }
};

}  // namespace

const runtime::Device& device() {
  static const HostDevice host;
  return host;
}

double time_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace graft::cpu
