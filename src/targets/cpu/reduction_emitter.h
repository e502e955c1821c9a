// The reductions of a kernel: what they gather while a loop runs, what parts of one leave in memory for a
// later stage, and sums of columns. emit.cpp says when each happens.
#pragma once
#include <tuple>
#include <utility>

#include "targets/cpu/loop_emitter.h"

namespace graft::cpu {

class ReductionEmitter : protected LoopEmitter {
 protected:
  ReductionEmitter(llvm::LLVMContext& context, const codegen::Kernel& kernel, const Plan& plan)
      : LoopEmitter(context, kernel, plan), slots_(partial_slots(kernel)) {}

  struct Accumulator {
    int reduction;
    Value* vector = nullptr;  // of full width, and
    Value* single = nullptr;  // of what is left over, both memory
    Value* vector_place = nullptr;
    Value* single_place = nullptr;
  };

  Value* fresh(DType of, int lanes, Value* value) {
    auto* slot = local(type_of(of, lanes));
    b_.CreateStore(lanes == 1 ? value : b_.CreateVectorSplat(static_cast<unsigned>(lanes), value), slot);
    return slot;
  }

  Accumulator start(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    Accumulator made{.reduction = n};
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    const int width = plan_.rows ? plan_.width : varying_[static_cast<size_t>(i.args[0])] ? width_ : 1;
    const bool place = i.args.size() == 2;
    auto* identity = reduction_identity(b_, i.op, dtype);
    made.vector = fresh(dtype, width, identity);
    if (plan_.rows) made.single = fresh(dtype, 1, identity);
    if (place) {
      made.vector_place = fresh(DType::i64, width, b_.getInt64(-1));
      if (plan_.rows) made.single_place = fresh(DType::i64, 1, b_.getInt64(-1));
    }
    return made;
  }

  /// A row's running sum begins.
  void start_scan(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    stand_at(row_depth_);
    running_[n] = fresh(i.dtype, varying_[static_cast<size_t>(n)] && !plan_.rows ? width_ : 1,
                        reduction_identity(b_, reduction_of(n), i.dtype));
  }

  void accumulate(Accumulator& to, bool whole) {
    const auto& i = kernel_.code[static_cast<size_t>(to.reduction)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    Value* x = value(i.args[0]);
    Value* place = i.args.size() == 2 ? value(i.args[1]) : nullptr;
    const bool lanes = plan_.rows ? width_ > 1 : varying_[static_cast<size_t>(i.args[0])] && width_ > 1;
    stand_at(scopes_.size() - 1);
    if (lanes) x = widened(x);
    if (place && lanes) place = widened(place);
    const bool into_vector = !plan_.rows || whole;
    if (!into_vector && lanes) {
      if (place)
        std::tie(x, place) = best_lane(b_, i.op, dtype, x, place);
      else
        x = reduce_lanes(b_, i.op, dtype, x);
    }
    add_to(to.reduction, into_vector ? to.vector : to.single, into_vector ? to.vector_place : to.single_place,
           x, place);
  }

  void add_to(int reduction, Value* slot, Value* place_slot, Value* x, Value* place) {
    const auto& i = kernel_.code[static_cast<size_t>(reduction)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    auto* old = b_.CreateLoad(x->getType(), slot);
    if (!place) {
      b_.CreateStore(combine(b_, i.op, dtype, old, x), slot);
      return;
    }
    auto* old_place = b_.CreateLoad(place->getType(), place_slot);
    const auto [best, best_place] = better(b_, i.op, dtype, old, old_place, x, place);
    b_.CreateStore(best, slot);
    b_.CreateStore(best_place, place_slot);
  }

  void finish(const Accumulator& from) {
    const auto& i = kernel_.code[static_cast<size_t>(from.reduction)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    stand_at(row_depth_);
    const int width = plan_.rows ? plan_.width : varying_[static_cast<size_t>(i.args[0])] ? width_ : 1;
    Value* x = b_.CreateLoad(type_of(dtype, width), from.vector);
    Value* place = from.vector_place ? b_.CreateLoad(type_of(DType::i64, width), from.vector_place) : nullptr;
    if (plan_.rows) {
      if (width > 1) {
        if (place)
          std::tie(x, place) = best_lane(b_, i.op, dtype, x, place);
        else
          x = reduce_lanes(b_, i.op, dtype, x);
      }
      auto* rest = b_.CreateLoad(type_of(dtype, 1), from.single);
      if (place) {
        auto* rest_place = b_.CreateLoad(i64_, from.single_place);
        std::tie(x, place) = better(b_, i.op, dtype, x, place, rest, rest_place);
      } else {
        x = combine(b_, i.op, dtype, x, rest);
      }
    }
    if (plan_.split_dim < 0) {
      scopes_[row_depth_].values[from.reduction] = place ? place : x;
      return;
    }
    leave(from.reduction, x, place);
  }

  // --- parts of a reduction

  void leave(int reduction, Value* x, Value* place) {
    b_.CreateAlignedStore(x, partial_address(reduction, 0, part_), llvm::Align(8));
    if (place) b_.CreateAlignedStore(place, partial_address(reduction, 1, part_), llvm::Align(8));
  }

  /// Where a part's result lies; 64 bits a lane.
  Value* partial_address(int reduction, int which, Value* part) {
    const int64_t slot = slots_.of[static_cast<size_t>(reduction)] + which;
    const int64_t lanes = plan_.rows ? 1 : plan_.block;
    Value* at = b_.CreateAdd(task_, b_.getInt64(static_cast<uint64_t>(slot * plan_.tasks)));
    at = b_.CreateAdd(b_.CreateMul(at, b_.getInt64(static_cast<uint64_t>(plan_.parts))), part);
    at = b_.CreateMul(at, b_.getInt64(static_cast<uint64_t>(lanes)));
    if (!plan_.rows)
      at = b_.CreateAdd(at, b_.CreateSub(variables_[static_cast<size_t>(plan_.vector_dim)], block_begin_));
    return b_.CreateInBoundsGEP(i64_, partials(), at);
  }

  /// A reduction of an earlier stage: its parts combined, always in the same order.
  void recall(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    const int width = !plan_.rows && varying_[static_cast<size_t>(i.args[0])] ? width_ : 1;
    const bool placed = i.args.size() == 2;
    stand_at(row_depth_);
    auto* slot = fresh(dtype, width, reduction_identity(b_, i.op, dtype));
    auto* place_slot = placed ? fresh(DType::i64, width, b_.getInt64(-1)) : nullptr;
    loop(b_.getInt64(0), b_.getInt64(plan_.parts), b_.getInt64(1), [&](Value* part) {
      const auto partial = [&](DType of, int which) {
        return b_.CreateAlignedLoad(type_of(of, width), partial_address(n, which, part), llvm::Align(8));
      };
      auto* x = partial(dtype, 0);
      add_to(n, slot, place_slot, x, placed ? partial(DType::i64, 1) : nullptr);
    });
    scopes_[row_depth_].values[n] = placed ? b_.CreateLoad(type_of(DType::i64, width), place_slot)
                                           : b_.CreateLoad(type_of(dtype, width), slot);
  }

  // --- columns

  /// Where a part's sums of columns begin, and from there on the number of the point in its row.
  Value* column_address(int reduction, Value* part) {
    auto* slot = b_.getInt64(static_cast<uint64_t>(slots_.of[static_cast<size_t>(reduction)] * plan_.parts));
    auto* row = b_.getInt64(static_cast<uint64_t>(kernel_.reduced_points()));
    auto* begin = b_.CreateInBoundsGEP(i64_, partials(), b_.CreateAdd(slot, b_.CreateMul(part, row)));
    return b_.CreateInBoundsGEP(column_type(reduction), begin, scratch_place());
  }

  /// At the present point of the row.
  void put_column(int reduction, Value* x) {
    b_.CreateAlignedStore(x, column_address(reduction, part_), column_align(reduction));
  }
  Value* column(int reduction, Value* part) {
    const auto& i = kernel_.code[static_cast<size_t>(reduction)];
    return b_.CreateAlignedLoad(type_of(i.dtype, width_), column_address(reduction, part),
                                column_align(reduction));
  }

  void start_column(int reduction) {
    const auto& i = kernel_.code[static_cast<size_t>(reduction)];
    put_column(reduction, widened(reduction_identity(b_, i.op, i.dtype)));
  }

  void add_to_column(int reduction) {
    const auto& i = kernel_.code[static_cast<size_t>(reduction)];
    Value* x = value(i.args[0]);
    stand_at(scopes_.size() - 1);
    put_column(reduction, combine(b_, i.op, i.dtype, column(reduction, part_), widened(x)));
  }

  /// The parts' sums together, in their order.
  void finish_column(int reduction) {
    const auto& i = kernel_.code[static_cast<size_t>(reduction)];
    stand_at(scopes_.size() - 1);
    auto* slot = local(type_of(i.dtype, width_));
    b_.CreateStore(widened(reduction_identity(b_, i.op, i.dtype)), slot);
    loop(b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(plan_.parts)), b_.getInt64(1),
         [&](Value* part) { add_to(reduction, slot, nullptr, column(reduction, part), nullptr); });
    scopes_.back().values[reduction] = b_.CreateLoad(type_of(i.dtype, width_), slot);
  }

  llvm::Type* column_type(int reduction) {
    return type_of(kernel_.code[static_cast<size_t>(reduction)].dtype, 1);
  }
  llvm::Align column_align(int reduction) {
    const auto dtype = kernel_.code[static_cast<size_t>(reduction)].dtype;
    return llvm::Align(static_cast<uint64_t>(std::max<int64_t>(ir::size_of(dtype), 1)));
  }

  Value* partials() { return function_->getArg(4); }

  PartialSlots slots_;
  Value* task_ = nullptr;         // where the task is one of several parts: the whole's number
  Value* part_ = nullptr;         // which of them
  Value* block_begin_ = nullptr;  // of a kept vector dimension, in this task
};

}  // namespace graft::cpu
