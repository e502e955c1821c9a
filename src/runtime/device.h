// What running a program asks of the device that it runs on: memory, products, errors, time. A target has one
// for each device.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/choices.h"
#include "ir/type.h"
#include "runtime/packed_product.h"

namespace graft::runtime {

/// What the kernels of one run have in common. Frames keep it from run to run.
class RunContext {
 public:
  RunContext() = default;
  virtual ~RunContext() = default;
  RunContext(const RunContext&) = delete;
  RunContext& operator=(const RunContext&) = delete;

  virtual void* stream() const { return nullptr; }
  /// Where kernels leave their mark when they fail.
  virtual int32_t* failed() = 0;
  /// From here on no kernel of the run can fail.
  virtual void end_checks() {}
  /// The mark that was left since the last question, 0 if none was; waits for the kernels that can fail, or
  /// for all that were launched if end_checks() has not been called since.
  virtual int32_t take_failure() = 0;
  /// take_failure() costs nothing: a kernel has ended when its launch returns.
  virtual bool is_immediate() const = 0;
  /// Launches heed `unless_failed`: a run need not look for failures before it writes into its inputs.
  virtual bool guards_writes() const { return false; }
};

/// All that a run launches, to be launched again as one, with the same addresses.
class Recording {
 public:
  Recording() = default;
  virtual ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  virtual void launch() = 0;
};

/// alpha * a * b + beta * added, in a way that was chosen for matrices of certain types.
class ProductWay {
 public:
  ProductWay() = default;
  virtual ~ProductWay() = default;
  ProductWay(const ProductWay&) = delete;
  ProductWay& operator=(const ProductWay&) = delete;

  /// `added`: undefined where there is none. It may be `out`.
  virtual void multiply(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                        const at::Tensor& b, double beta, double alpha) const = 0;
};

class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual at::Device place() const = 0;
  virtual std::unique_ptr<RunContext> make_context() const = 0;

  // --- memory

  /// Buffers in an arena begin at multiples of it.
  virtual int64_t alignment() const = 0;
  virtual at::Tensor allocate(int64_t bytes) const = 0;
  /// Memory is taken for each run and given back after it: allocate() costs little, and knows which memory
  /// the kernels that were launched still use. Else it is kept for the next run.
  virtual bool has_pool() const { return false; }
  /// Of a tensor with no gaps.
  virtual void zero(const at::Tensor& tensor) const = 0;

  // --- recorded runs

  /// What work is queued on by this thread now, where the device has such.
  virtual const void* queue() const { return nullptr; }
  /// Whether record() does something.
  virtual bool can_record() const { return false; }
  /// Calls the body: what it launches is recorded instead of done, as one recording, or as several where the
  /// body cuts. Error where that is not possible.
  using Cut = std::function<void()>;
  virtual std::vector<std::unique_ptr<Recording>> record(const std::function<void(const Cut&)>& body) const;

  // --- decisions that rest on data

  /// The columns of a routing table [row, slot] of booleans that have a row. Or all: nothing is left out.
  virtual void columns_in_use(const at::Tensor& table, std::vector<char>& in_use) const = 0;
  /// Rows of `source` along a dimension, to the places that the indices say. Where one of these is not a
  /// place, nothing is written: an error, or the mark in the context.
  struct RowWrite {
    const at::Tensor &into, &index, &source;
    int64_t dim;
    int32_t mark;             ///< for the context
    const std::string& what;  ///< for the error
  };
  /// Several have the same indices, dtype and number of places, so that either all of them can be done or
  /// none.
  virtual void write_rows(std::span<const RowWrite> all, RunContext& context) const = 0;

  /// In seconds, until all that it does is done: for choices that only measuring can make.
  virtual double time_of(const std::function<void()>& body) const = 0;

  // --- products

  /// ATen's, unless the device knows better.
  virtual void multiply_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) const;
  virtual void multiply_and_add_into(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a,
                                     const at::Tensor& b, double beta, double alpha) const;
  /// The fastest of the ways in which the device's libraries can do it, by measuring (`added`: null where
  /// there is none); null where that is ATen's, or nothing is to be measured.
  virtual std::shared_ptr<const ProductWay> fastest_way(const ir::TensorType& out,
                                                        const ir::TensorType* added, const ir::TensorType& a,
                                                        const ir::TensorType& b,
                                                        const cache::Measuring& how) const;
  /// For x [rows, in] times the transpose of a weight [out, in] that seldom changes; null where no form of
  /// the weight is faster than the weight as it is.
  virtual std::unique_ptr<PackedProduct> pack(ir::DType dtype, int64_t rows, int64_t in, int64_t out,
                                              const cache::Measuring& how) const;
};

}  // namespace graft::runtime
