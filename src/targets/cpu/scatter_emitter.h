// The store of a kernel that scatters: reads what lies at a place that is data, adds to it (or takes its
// place), writes it back.
// Lanes that lie side by side do so at once, others one after the other, in their order.
#pragma once
#include "targets/cpu/reduction_emitter.h"

namespace graft::cpu {

class ScatterEmitter : protected ReductionEmitter {
 protected:
  using ReductionEmitter::ReductionEmitter;

  /// At the present point.
  void add(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (lanes_apart(i)) {
      add_lanes(i);
    } else {
      const auto place = place_of(i);
      if_counts(place, [&] { add_side_by_side(i, place); });
    }
  }

  /// At all columns of a task, the present point of the reduced dimensions being known; `columns` runs what
  /// it is given for every vector of them.
  void add_columns(int n, const std::function<void(const std::function<void()>&)>& columns) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    width_ = 1;
    if (lanes_apart(i)) {
      columns([&] { add_lanes(i); });
    } else {
      // Where they lie is the same for all columns, and so is whether they count.
      const auto place = place_of(i);
      if_counts(place, [&] { columns([&] { add_side_by_side(i, place); }); });
    }
  }

 private:
  struct TargetPlace {
    Value* offset;  // beside the index
    Value* counts;  // a flag, or null
  };

  bool lanes_apart(const Instruction& i) const {
    if (plan_.vector_dim < 0 || plan_.rows || !contiguous(i.index)) return true;
    const auto varies = [&](int n) { return varying_[static_cast<size_t>(n)]; };
    return (i.guard >= 0 && varies(i.guard)) ||
           std::any_of(i.indirect.begin(), i.indirect.end(), [&](const auto& x) { return varies(x.value); });
  }

  /// In every lane where the width is more than one and lanes differ.
  TargetPlace place_of(const Instruction& i, bool lanes = false) {
    std::vector<Value*> places;
    places.reserve(i.indirect.size());
    for (const auto& x : i.indirect) places.push_back(value(x.value));
    Value* counts = i.guard >= 0 ? value(i.guard) : nullptr;
    stand_at(scopes_.size() - 1);
    if (lanes && counts) counts = widened(counts);
    Value* offset = nullptr;
    auto* flag = counts;
    for (size_t k = 0; k < places.size(); ++k) {
      auto* place = lanes ? widened(places[k]) : places[k];
      auto* part = checked(i.indirect[k], place, flag);
      offset = offset ? b_.CreateAdd(offset, part) : part;
      auto* good = in_table(i.indirect[k], place);
      counts = counts ? b_.CreateAnd(counts, good) : good;
    }
    if (plan_.parts > 1) counts = b_.CreateAnd(counts, is_ours(i.indirect[0], places[0]));
    return {offset ? offset : b_.getInt64(0), counts};
  }

  Value* from_start(const Instruction::Indirect& how, Value* place) {
    if (!how.wraps) return place;
    auto* type = place->getType();
    auto* size = llvm::ConstantInt::get(type, static_cast<uint64_t>(how.size));
    auto* negative = b_.CreateICmpSLT(place, llvm::Constant::getNullValue(type));
    return b_.CreateSelect(negative, b_.CreateAdd(place, size), place);
  }

  Value* in_table(const Instruction::Indirect& how, Value* place) {
    auto* size = llvm::ConstantInt::get(place->getType(), static_cast<uint64_t>(how.size));
    return b_.CreateICmpULT(from_start(how, place), size);
  }

  /// Whether it is this part that adds there.
  Value* is_ours(const Instruction::Indirect& how, Value* place) {
    auto* last = b_.getInt64(static_cast<uint64_t>(plan_.parts - 1));
    return b_.CreateICmpEQ(b_.CreateAnd(from_start(how, place), last), part_);
  }

  void if_counts(const TargetPlace& place, const std::function<void()>& body) {
    if (place.counts)
      when(place.counts, body);
    else
      body();
  }

  void add_side_by_side(const Instruction& i, const TargetPlace& place) {
    auto* x = value(i.args[0]);
    stand_at(scopes_.size() - 1);
    add_to_memory(i, b_.CreateAdd(scalar_index(i.index), place.offset), widened(x));
  }

  void add_lanes(const Instruction& i) {
    auto* x = value(i.args[0]);
    const auto place = place_of(i, width_ > 1);
    if (width_ == 1) {
      if_counts(place, [&] { add_to_memory(i, b_.CreateAdd(scalar_index(i.index), place.offset), x); });
      return;
    }
    x = widened(x);
    auto* at = b_.CreateAdd(vector_index(i.index), splat_if_needed(place.offset));
    // Nothing changes by adding the zero that is negative.
    if (place.counts && !i.takes)
      x = b_.CreateSelect(place.counts, x,
                          x->getType()->isFPOrFPVectorTy() ? llvm::ConstantFP::getNegativeZero(x->getType())
                                                           : llvm::Constant::getNullValue(x->getType()));
    const auto in_lane = [&](Value* all, int lane) {
      return b_.CreateExtractElement(all, static_cast<uint64_t>(lane));
    };
    for (int lane = 0; lane < width_; ++lane)
      add_to_memory(i, in_lane(at, lane), in_lane(x, lane),
                    i.takes && place.counts ? in_lane(widened(place.counts), lane) : nullptr);
  }

  /// `counts`: a flag; where it is false nothing changes.
  void add_to_memory(const Instruction& i, Value* at, Value* x, Value* counts = nullptr) {
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    auto* element = memory_type(context_, dtype);
    const llvm::Align align(static_cast<uint64_t>(ir::size_of(dtype)));
    auto* address = b_.CreateGEP(element, buffers_[static_cast<size_t>(i.buffer)], at);
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    llvm::Type* type = vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
    auto* old = to_register(b_, dtype, b_.CreateAlignedLoad(type, address, align));
    Value* made = x;
    if (!i.takes)
      made = compute(b_, Op::add, i.dtype, {i.dtype, i.dtype}, {old, x});
    else if (counts)
      made = b_.CreateSelect(counts, x, old);
    b_.CreateAlignedStore(to_memory(b_, i.dtype, dtype, made), address, align);
  }
};

}  // namespace graft::cpu
