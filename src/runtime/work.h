// What the actions of a program do, one class for each kind.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/type.h"
#include "runtime/aten_call.h"
#include "runtime/frame.h"
#include "runtime/launcher.h"

namespace graft::runtime {

constexpr size_t none = ~size_t{0};

class Work {
 public:
  Work() = default;
  virtual ~Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// `in_place`: results that are new values of inputs are written into these.
  virtual void run(Frame& frame, bool in_place) const = 0;
  /// In runs in place it writes into an input: not after a failure.
  virtual void guard_writes() {}
};

/// Where a kernel finds one of its buffers.
struct Pointer {
  size_t slot;
  int64_t bytes;
  bool written;
};

/// A launch: of one kernel, or of several that run at the same time.
class KernelWork : public Work {
 public:
  /// `mark` tells it from others where it fails.
  KernelWork(std::shared_ptr<const Launcher> launcher, int32_t mark)
      : launcher_(std::move(launcher)), mark_(mark) {}
  /// The buffers of its next kernel.
  void add(const std::vector<Pointer>& buffers) {
    buffers_.insert(buffers_.end(), buffers.begin(), buffers.end());
  }
  size_t buffers() const { return buffers_.size(); }
  void run(Frame& frame, bool in_place) const override;
  void guard_writes() override { guarded_ = true; }

 private:
  std::shared_ptr<const Launcher> launcher_;
  std::vector<Pointer> buffers_;
  int32_t mark_;
  bool guarded_ = false;
};

/// Matrix products that can write where they are told.
enum class Product : uint8_t { mm, bmm, addmm };

class ProductWork : public Work {
 public:
  struct Slots {
    size_t a, b, out, added = none;  ///< added: what an addmm adds the product to
  };
  /// `way`: null where the device's plain one serves.
  ProductWork(const Device& device, Product kind, const Slots& slots, double beta, double alpha,
              std::shared_ptr<const ProductWay> way)
      : device_(device), kind_(kind), slots_(slots), beta_(beta), alpha_(alpha), way_(std::move(way)) {}
  void run(Frame& frame, bool in_place) const override;

 private:
  const Device& device_;
  Product kind_;
  Slots slots_;
  double beta_, alpha_;
  std::shared_ptr<const ProductWay> way_;
};

/// One whose weight is packed. It makes its result.
class PackedWork : public Work {
 public:
  struct Slots {
    size_t x, weight, out, bias = none;
  };
  /// `number`: its place among the packed products of the program.
  PackedWork(std::unique_ptr<PackedProduct> product, const Slots& slots, std::vector<int64_t> sizes,
             size_t number, std::string name)
      : product_(std::move(product)),
        slots_(slots),
        sizes_(std::move(sizes)),
        number_(number),
        name_(std::move(name)) {}
  void run(Frame& frame, bool in_place) const override;

  /// Has the weight as it is now ready for a run.
  void look_at_weight(Frame& frame) const {
    frame.packed[number_] = product_->packed_for(frame.table[slots_.weight]);
  }
  /// Adds the weight to those that others may write into, if it is one.
  void watch_weight(Frame& frame) const;
  void forget_weight() const { product_->forget(); }

 private:
  std::unique_ptr<PackedProduct> product_;
  Slots slots_;
  std::vector<int64_t> sizes_;  // of the result
  size_t number_;
  std::string name_;  // the weight's
};

/// Any other operator, over ATen.
class CallWork : public Work {
 public:
  /// `moves`: slots from which and to which what it made is copied. What waits for long lies in the arena.
  explicit CallWork(AtenCall call, std::vector<std::pair<size_t, size_t>> moves = {})
      : call_(std::move(call)), moves_(std::move(moves)) {}
  void run(Frame& frame, bool in_place) const override;

 private:
  AtenCall call_;
  std::vector<std::pair<size_t, size_t>> moves_;
};

/// Index_copies that a run in place does upon the inputs themselves, all with the same indices.
class RowUpdateWork : public Work {
 public:
  struct Slots {
    size_t input, index, source, out;
    int64_t dim;
  };
  /// `otherwise`: for runs that are not in place.
  RowUpdateWork(const Device& device, std::unique_ptr<Work> otherwise, const Slots& slots, int32_t mark,
                std::string what)
      : device_(device) {
    all_.push_back({std::move(otherwise), slots, mark, std::move(what)});
  }
  void run(Frame& frame, bool in_place) const override;

  const Slots& slots() const { return all_.front().slots; }
  /// What the other would do is done here.
  void take_over(RowUpdateWork& other);

 private:
  struct Update {
    std::unique_ptr<Work> otherwise;
    Slots slots;
    int32_t mark;
    std::string what;
  };
  const Device& device_;
  std::vector<Update> all_;
};

}  // namespace graft::runtime
