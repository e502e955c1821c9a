// The values of a kernel as LLVM instructions, each at the level of the loop nest where it belongs:
// arithmetic, indices and memory. emit.cpp builds the loops around them.
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "codegen/kernel.h"
#include "targets/cpu/arithmetic.h"
#include "targets/cpu/plan.h"
#include "targets/cpu/vector_math.h"

namespace graft::cpu {

class ValueEmitter {
 protected:
  using Atom = codegen::Atom;
  using Index = codegen::Index;
  using Instruction = codegen::Instruction;
  using Op = codegen::Op;
  using DType = ir::DType;
  using BasicBlock = llvm::BasicBlock;
  using Value = llvm::Value;

  ValueEmitter(llvm::LLVMContext& context, const codegen::Kernel& kernel, const Plan& plan)
      : kernel_(kernel),
        plan_(plan),
        context_(context),
        b_(context),
        i64_(b_.getInt64Ty()),
        variables_(kernel.dims.size()),
        depths_(kernel.dims.size(), -1) {
    find_varying();
    find_needs();
  }

  /// A level of the loop nest. Values that depend on no deeper loop are computed in it, at the end of what it
  /// has so far.
  struct Scope {
    BasicBlock* block;
    llvm::Instruction* terminator;  // the jump into the next deeper loop, while one is being built
    std::unordered_map<int, Value*> values;
  };

  Value* local(llvm::Type* type, Value* count = nullptr) {
    llvm::IRBuilder<> at(entry_, entry_->begin());
    auto* slot = at.CreateAlloca(type, count);
    slot->setAlignment(llvm::Align(64));
    return slot;
  }

  void stand_at(size_t depth) {
    auto& scope = scopes_[depth];
    if (scope.terminator)
      b_.SetInsertPoint(scope.terminator);
    else
      b_.SetInsertPoint(scope.block);
  }

  llvm::Type* type_of(DType dtype, int width) {
    auto* scalar = register_type(context_, dtype);
    return width == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(width));
  }

  /// The place among the reduced points, as memory: the vector dimension innermost.
  Value* scratch_place() {
    Value* place = nullptr;
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      if (!kernel_.dims[d].reduced || static_cast<int>(d) == plan_.vector_dim) continue;
      place = place ? b_.CreateAdd(b_.CreateMul(place, b_.getInt64(kernel_.dims[d].extent)), variables_[d])
                    : variables_[d];
    }
    const auto v = static_cast<size_t>(plan_.vector_dim);
    return place ? b_.CreateAdd(b_.CreateMul(place, b_.getInt64(kernel_.dims[v].extent)), variables_[v])
                 : variables_[v];
  }

  llvm::Align scratch_alignment(int n) const {
    return llvm::Align(static_cast<uint64_t>(ir::size_of(kernel_.code[static_cast<size_t>(n)].dtype)));
  }

  // --- values

  void find_varying() {
    varying_.assign(kernel_.code.size(), false);
    if (plan_.vector_dim < 0) return;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      bool varies = i.index.uses(plan_.vector_dim);
      for (const int arg : i.args) varies |= varying_[static_cast<size_t>(arg)];
      for (const auto& x : i.indirect) varies |= varying_[static_cast<size_t>(x.value)];
      if (i.guard >= 0) varies |= varying_[static_cast<size_t>(i.guard)];
      if (codegen::is_reduction(i.op) && plan_.rows) varies = i.column;
      if (codegen::is_scan(i.op) && plan_.rows) varies = true;
      varying_[n] = varies;
    }
  }

  /// What an instruction's level in the loop nest follows from, its arguments' and theirs included.
  struct Needs {
    std::vector<int> dims;
    bool row = false, column = false;  // reductions: one number a row, one for each column
  };
  void find_needs() {
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      Needs needs;
      if (i.op == Op::constant) {
        needs_.push_back(needs);
        continue;
      }
      std::set<int> dims;
      for (int d = 0; d < static_cast<int>(kernel_.dims.size()); ++d)
        if (i.index.uses(d)) dims.insert(d);
      const auto add = [&](int arg) {
        const auto& of = needs_[static_cast<size_t>(arg)];
        dims.insert(of.dims.begin(), of.dims.end());
        needs.row |= of.row;
        needs.column |= of.column;
      };
      if (codegen::is_reduction(i.op)) {
        dims.clear();
        (i.column ? needs.column : needs.row) = true;
      } else {
        std::for_each(i.args.begin(), i.args.end(), add);
        for (const auto& x : i.indirect) add(x.value);
        if (i.guard >= 0) add(i.guard);
        if (codegen::is_scan(i.op))
          for (int d = 0; d < static_cast<int>(kernel_.dims.size()); ++d)
            if (kernel_.dims[static_cast<size_t>(d)].reduced) dims.insert(d);
        // Vectors of one width are not to be found in a loop of another.
        if (varying_[n]) dims.insert(plan_.vector_dim);
      }
      needs.dims.assign(dims.begin(), dims.end());
      needs_.push_back(std::move(needs));
    }
  }

  size_t depth_of(int n) const {
    const auto& needs = needs_[static_cast<size_t>(n)];
    size_t depth = needs.column ? scopes_.size() - 1 : needs.row ? row_depth_ : 0;
    for (const int d : needs.dims)
      depth = std::max(depth, static_cast<size_t>(depths_[static_cast<size_t>(d)]));
    return depth;
  }

  /// The instruction's value: a scalar, or a vector of the present width if it varies along it.
  Value* value(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (const auto kept = scratch_.find(n); kept != scratch_.end() && kept->second.phase < phase_) {
      auto& values = scopes_.back().values;
      if (const auto found = values.find(n); found != values.end()) return found->second;
      stand_at(scopes_.size() - 1);
      auto* address = b_.CreateInBoundsGEP(type_of(i.dtype, 1), kept->second.slot, scratch_place());
      return values[n] = b_.CreateAlignedLoad(type_of(i.dtype, width_), address, scratch_alignment(n));
    }
    const size_t depth = depth_of(n);
    auto& known = scopes_[depth].values;
    if (const auto found = known.find(n); found != known.end()) return found->second;
    std::vector<Value*> args, places;
    args.reserve(i.args.size());
    for (const int arg : i.args) args.push_back(value(arg));
    places.reserve(i.indirect.size());
    for (const auto& x : i.indirect) places.push_back(value(x.value));
    Value* guard = i.guard >= 0 ? value(i.guard) : nullptr;
    stand_at(depth);
    if (varying_[static_cast<size_t>(n)] && width_ > 1)
      for (auto& arg : args) arg = widened(arg);
    Value* made = nullptr;
    switch (i.op) {
      case Op::constant:
        made = constant(i);
        break;
      case Op::iota:
        made = index_value(i.index);
        break;
      case Op::load:
        made = load(i, places, guard);
        break;
      case Op::scan_sum:
      case Op::scan_prod:
        made = advance(n, args[0]);
        break;
      default: {
        std::vector<DType> from;
        from.reserve(i.args.size());
        for (const int arg : i.args) from.push_back(kernel_.code[static_cast<size_t>(arg)].dtype);
        if (auto* flag = compare_places(n))
          made = flag;
        else
          made = i.op == Op::exp && never_positive(i.args[0]) ? emit_exp_down(b_, args[0])
                                                              : compute(b_, i.op, i.dtype, from, args);
      }
    }
    if (scopes_[depth].terminator == nullptr)
      scopes_[depth].block = b_.GetInsertBlock();
    else
      scopes_[depth].block = scopes_[depth].terminator->getParent();
    scopes_[depth].values[n] = made;
    return made;
  }

  /// Of a running sum: with this point's term. Its loops come by in the order of the row.
  Value* advance(int n, Value* x) {
    const auto op = reduction_of(n);
    const auto dtype = kernel_.code[static_cast<size_t>(n)].dtype;
    auto* total = running_.at(n);
    const bool along = plan_.rows && width_ > 1;
    auto* before = b_.CreateLoad(type_of(dtype, along ? 1 : lanes_of(x)), total);
    if (!along) {
      auto* made = combine(b_, op, dtype, before, x);
      b_.CreateStore(made, total);
      return made;
    }
    // What comes before each lane within the vector; then all of it, for which the next vector need not wait.
    auto* identity = widened(reduction_identity(b_, op, dtype));
    for (int step = 1; step < width_; step *= 2) {
      std::vector<int> moved(static_cast<size_t>(width_));
      for (int lane = 0; lane < width_; ++lane)
        moved[static_cast<size_t>(lane)] = lane < step ? width_ + lane : lane - step;
      x = combine(b_, op, dtype, b_.CreateShuffleVector(x, identity, moved), x);
    }
    auto* all = b_.CreateExtractElement(x, static_cast<uint64_t>(width_ - 1));
    b_.CreateStore(combine(b_, op, dtype, before, all), total);
    return combine(b_, op, dtype, widened(before), x);
  }
  static int lanes_of(const Value* x) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    return vector ? static_cast<int>(vector->getNumElements()) : 1;
  }
  Op reduction_of(int scan) const {
    return kernel_.code[static_cast<size_t>(scan)].op == Op::scan_sum ? Op::reduce_sum : Op::reduce_prod;
  }

  /// Which lanes lie on one side of a number: places mostly fit 32 bits, which are half the registers, and
  /// divisions that there are instructions for. Null where `n` asks something else.
  Value* compare_places(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (i.dtype != DType::boolean || i.args.size() != 2 || !varying_[static_cast<size_t>(n)] || width_ == 1)
      return nullptr;
    const auto& place = kernel_.code[static_cast<size_t>(i.args[0])];
    const auto& bound = kernel_.code[static_cast<size_t>(i.args[1])];
    if (place.op != Op::iota || bound.op != Op::constant || bound.dtype != DType::i64) return nullptr;
    if (!is_short(place.index) || !is_short(bound.integer)) return nullptr;
    auto* x = vector_index(place.index, b_.getInt32Ty());
    return compute(b_, i.op, DType::boolean, {DType::i32, DType::i32},
                   {x, llvm::ConstantInt::getSigned(x->getType(), bound.integer)});
  }

  /// What is left of a value when the largest of them is taken away.
  bool never_positive(int n) const {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (i.op != Op::sub || !ir::is_floating(i.dtype)) return false;
    const auto& largest = kernel_.code[static_cast<size_t>(i.args[1])];
    return largest.op == Op::reduce_max && !largest.over_rows && largest.args[0] == i.args[0];
  }

  /// Where the builder stands: after x, so not where value() has left it.
  Value* widened(Value* x) {
    if (width_ == 1 || x->getType()->isVectorTy()) return x;
    return b_.CreateVectorSplat(static_cast<unsigned>(width_), x);
  }

  Value* constant(const Instruction& i) {
    auto* type = register_type(context_, i.dtype);
    if (ir::is_floating(i.dtype)) return llvm::ConstantFP::get(type, i.number);
    return llvm::ConstantInt::get(type, static_cast<uint64_t>(i.integer), true);
  }

  // --- indices

  /// Without the vector variable's lanes: the first lane's.
  Value* scalar_index(const Index& index) {
    Value* sum = nullptr;
    for (const auto& [coefficient, atom] : index.terms()) {
      Value* x = nullptr;
      switch (atom->kind) {
        case Atom::Kind::variable:
          x = variables_[static_cast<size_t>(atom->variable)];
          break;
        case Atom::Kind::quotient:
          x = floor_divided(scalar_index(atom->inside), atom->divisor, atom->inside.min() >= 0, true);
          break;
        default:
          x = floor_divided(scalar_index(atom->inside), atom->divisor, atom->inside.min() >= 0, false);
          break;
      }
      if (coefficient != 1) x = b_.CreateMul(x, b_.getInt64(static_cast<uint64_t>(coefficient)));
      sum = sum ? b_.CreateAdd(sum, x) : x;
    }
    auto* constant_part = b_.getInt64(static_cast<uint64_t>(index.constant()));
    if (!sum) return constant_part;
    return index.constant() == 0 ? sum : b_.CreateAdd(sum, constant_part);
  }

  Value* floor_divided(Value* x, int64_t divisor, bool positive, bool quotient) {
    auto* d = llvm::ConstantInt::get(x->getType(), static_cast<uint64_t>(divisor));
    if (positive) return quotient ? b_.CreateUDiv(x, d) : b_.CreateURem(x, d);
    auto* q = b_.CreateSDiv(x, d);
    auto* r = b_.CreateSRem(x, d);
    auto* zero = llvm::ConstantInt::get(x->getType(), 0);
    auto* low = b_.CreateICmpSLT(r, zero);
    if (quotient) return b_.CreateSub(q, b_.CreateZExt(low, x->getType()));
    return b_.CreateSelect(low, b_.CreateAdd(r, d), r);
  }

  static bool is_short(int64_t number) { return number == static_cast<int32_t>(number); }
  /// Whether 32 bits hold it, and all that is divided on the way to it.
  static bool is_short(const Index& index) {
    return is_short(index.min()) && is_short(index.max()) &&
           std::all_of(index.terms().begin(), index.terms().end(), [](const auto& term) {
             return term.atom->kind == Atom::Kind::variable || is_short(term.atom->inside);
           });
  }

  /// In every lane, as numbers of `scalar`.
  Value* vector_index(const Index& index, llvm::Type* scalar) {
    const auto splat = [&](Value* x) { return splat_index(b_.CreateTrunc(x, scalar)); };
    Value* sum = splat(b_.getInt64(static_cast<uint64_t>(index.constant())));
    for (const auto& [coefficient, atom] : index.terms()) {
      Value* x = nullptr;
      switch (atom->kind) {
        case Atom::Kind::variable:
          x = splat(variables_[static_cast<size_t>(atom->variable)]);
          if (atom->variable == plan_.vector_dim) x = b_.CreateAdd(x, lane_numbers(scalar));
          break;
        case Atom::Kind::quotient:
          x = floor_divided(vector_index(atom->inside, scalar), atom->divisor, atom->inside.min() >= 0, true);
          break;
        default:
          x = floor_divided(vector_index(atom->inside, scalar), atom->divisor, atom->inside.min() >= 0,
                            false);
          break;
      }
      if (coefficient != 1) x = b_.CreateMul(x, splat(b_.getInt64(static_cast<uint64_t>(coefficient))));
      sum = b_.CreateAdd(sum, x);
    }
    return sum;
  }
  Value* vector_index(const Index& index) {
    if (!is_short(index)) return vector_index(index, i64_);
    auto* x = vector_index(index, b_.getInt32Ty());
    return b_.CreateSExt(x, type_of(DType::i64, lanes_of(x)));
  }

  Value* splat_index(Value* x) {
    return width_ == 1 ? x : b_.CreateVectorSplat(static_cast<unsigned>(width_), x);
  }
  Value* lane_numbers(llvm::Type* scalar) {
    if (width_ == 1) return llvm::ConstantInt::get(scalar, 0);
    std::vector<llvm::Constant*> lanes;
    lanes.reserve(static_cast<size_t>(width_));
    for (int i = 0; i < width_; ++i)
      lanes.push_back(llvm::ConstantInt::get(scalar, static_cast<uint64_t>(i)));
    return llvm::ConstantVector::get(lanes);
  }

  Value* index_value(const Index& index) {
    const bool varies = plan_.vector_dim >= 0 && index.uses(plan_.vector_dim) && width_ > 1;
    return varies ? vector_index(index) : scalar_index(index);
  }

  bool contiguous(const Index& index) const { return step_of(index) == 1; }

  /// How far from one lane's place the next one's is, where that is the same for all.
  std::optional<int64_t> step_of(const Index& index) const {
    for (const auto& term : index.terms())
      if (term.atom->kind != Atom::Kind::variable && term.atom->inside.uses(plan_.vector_dim))
        return std::nullopt;
    return index.coefficient(plan_.vector_dim);
  }

  // --- memory

  Value* load(const Instruction& i, const std::vector<Value*>& places, Value* guard) {
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    auto* element = memory_type(context_, dtype);
    auto* base = buffers_[static_cast<size_t>(i.buffer)];
    bool scattered = false;  // some part of the place differs from lane to lane other than by one
    for (auto* place : places) scattered |= place->getType()->isVectorTy();
    const bool varies = plan_.vector_dim >= 0 && i.index.uses(plan_.vector_dim) && width_ > 1;
    scattered |= varies && !contiguous(i.index);
    const bool guard_varies = guard && guard->getType()->isVectorTy();
    if (!scattered && !guard_varies) {
      Value* at = scalar_index(i.index);
      for (size_t k = 0; k < places.size(); ++k)
        at = b_.CreateAdd(at, checked(i.indirect[k], places[k], guard));
      const int width = varies ? width_ : 1;
      if (guard && i.elements < width)
        return masked_load(i, dtype, base, b_.CreateVectorSplat(static_cast<unsigned>(width), guard), at,
                           width);
      if (guard) at = b_.CreateSelect(guard, at, b_.getInt64(0));
      if (width > 1 && rest_ > 0) return masked_load(i, dtype, base, b_.getTrue(), at, width);
      auto* type = width == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
      auto* raw = b_.CreateAlignedLoad(type, b_.CreateGEP(element, base, at),
                                       llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))));
      return to_register(b_, dtype, raw);
    }
    if (!scattered) {
      Value* at = scalar_index(i.index);
      auto* any = b_.CreateOrReduce(rest_ > 0 ? b_.CreateAnd(guard, lanes_of_rest()) : guard);
      for (size_t k = 0; k < places.size(); ++k)
        at = b_.CreateAdd(at, checked(i.indirect[k], places[k], any));
      if (varies) return masked_load(i, dtype, base, guard, at, width_);
      // One element for all lanes.
      at = b_.CreateSelect(any, at, b_.getInt64(0));
      auto* raw = b_.CreateAlignedLoad(element, b_.CreateGEP(element, base, at),
                                       llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))));
      return b_.CreateVectorSplat(static_cast<unsigned>(width_), to_register(b_, dtype, raw));
    }
    if (const auto step = step_of(i.index); step && varies && !guard && places.empty())
      return to_register(b_, dtype, stepped_load(element, base, scalar_index(i.index), *step, dtype));
    Value* at = varies ? vector_index(i.index) : splat_index(scalar_index(i.index));
    for (size_t k = 0; k < places.size(); ++k) {
      const bool by_lanes = places[k]->getType()->isVectorTy();
      auto* g = guard && by_lanes ? widened(guard) : guard_varies ? b_.CreateOrReduce(guard) : guard;
      at = b_.CreateAdd(at, splat_if_needed(checked(i.indirect[k], places[k], g)));
    }
    if (guard) at = b_.CreateSelect(widened(guard), at, llvm::Constant::getNullValue(at->getType()));
    return gather_lanes(dtype, element, base, at);
  }

  Value* splat_if_needed(Value* x) { return x->getType()->isVectorTy() || width_ == 1 ? x : splat_index(x); }

  Value* gather_lanes(DType dtype, llvm::Type* element, Value* base, Value* at) {
    Value* lanes = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(width_)));
    for (int lane = 0; lane < width_; ++lane) {
      auto* place = b_.CreateExtractElement(at, static_cast<uint64_t>(lane));
      auto* x = b_.CreateAlignedLoad(element, b_.CreateGEP(element, base, place),
                                     llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))));
      lanes = b_.CreateInsertElement(lanes, x, static_cast<uint64_t>(lane));
    }
    return to_register(b_, dtype, lanes);
  }

  /// Lanes at places that lie a known step apart: their addresses differ by constants, which cost nothing, as
  /// opposed to numbers taken out of a vector one by one.
  Value* stepped_load(llvm::Type* element, Value* base, Value* first, int64_t step, DType dtype) {
    const llvm::Align align(static_cast<uint64_t>(ir::size_of(dtype)));
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(width_));
    if (step == -1)
      return b_.CreateVectorReverse(
          b_.CreateAlignedLoad(type, b_.CreateGEP(element, base, last_lane(first)), align));
    auto* from = b_.CreateGEP(element, base, first);
    Value* lanes = llvm::PoisonValue::get(type);
    for (int lane = 0; lane < width_; ++lane)
      lanes = b_.CreateInsertElement(lanes,
                                     b_.CreateAlignedLoad(element, lane_of(element, from, step, lane), align),
                                     static_cast<uint64_t>(lane));
    return lanes;
  }

  void stepped_store(llvm::Type* element, Value* base, Value* first, int64_t step, DType dtype,
                     Value* lanes) {
    const llvm::Align align(static_cast<uint64_t>(ir::size_of(dtype)));
    if (step == -1) {
      b_.CreateAlignedStore(b_.CreateVectorReverse(lanes), b_.CreateGEP(element, base, last_lane(first)),
                            align);
      return;
    }
    auto* from = b_.CreateGEP(element, base, first);
    for (int lane = 0; lane < width_; ++lane)
      b_.CreateAlignedStore(b_.CreateExtractElement(lanes, static_cast<uint64_t>(lane)),
                            lane_of(element, from, step, lane), align);
  }

  /// Where places go down, the last lane is the first in memory.
  Value* last_lane(Value* first) {
    return b_.CreateSub(first, b_.getInt64(static_cast<uint64_t>(width_ - 1)));
  }
  Value* lane_of(llvm::Type* element, Value* from, int64_t step, int lane) {
    return b_.CreateGEP(element, from, b_.getInt64(static_cast<uint64_t>(step * lane)));
  }

  Value* masked_load(const Instruction&, DType dtype, Value* base, Value* mask, Value* at, int width) {
    auto* element = memory_type(context_, dtype);
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
    if (!mask->getType()->isVectorTy()) mask = b_.CreateVectorSplat(static_cast<unsigned>(width), mask);
    if (width > 1 && rest_ > 0) mask = b_.CreateAnd(mask, lanes_of_rest());
    auto* raw = b_.CreateMaskedLoad(type, b_.CreateGEP(element, base, at),
                                    llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))), mask,
                                    llvm::Constant::getNullValue(type));
    auto* x = to_register(b_, dtype, raw);
    return width == 1 ? b_.CreateExtractElement(x, static_cast<uint64_t>(0)) : x;
  }

  Value* lanes_of_rest() {
    std::vector<llvm::Constant*> lanes;
    lanes.reserve(static_cast<size_t>(width_));
    for (int lane = 0; lane < width_; ++lane) lanes.push_back(b_.getInt1(lane < rest_));
    return llvm::ConstantVector::get(lanes);
  }

  /// The offset of an index that is data. One outside the table is reported and read as 0.
  Value* checked(const Instruction::Indirect& how, Value* place, Value* guard) {
    auto* type = place->getType();
    auto* size = llvm::ConstantInt::get(type, static_cast<uint64_t>(how.size));
    auto* zero = llvm::Constant::getNullValue(type);
    if (how.wraps) place = b_.CreateSelect(b_.CreateICmpSLT(place, zero), b_.CreateAdd(place, size), place);
    Value* good = b_.CreateICmpULT(place, size);
    Value* counts = good;
    if (guard)
      counts = b_.CreateOr(good, b_.CreateNot(guard->getType() == good->getType() ? guard : widened(guard)));
    Value* bad = b_.CreateNot(counts);
    if (bad->getType()->isVectorTy()) bad = b_.CreateOrReduce(bad);
    b_.CreateStore(b_.CreateOr(b_.CreateLoad(b_.getInt32Ty(), error_), b_.CreateZExt(bad, b_.getInt32Ty())),
                   error_);
    place = b_.CreateSelect(good, place, zero);
    return b_.CreateMul(place, llvm::ConstantInt::get(type, static_cast<uint64_t>(how.stride)));
  }

  /// A float that bfloat16 holds exactly, as its lower half is zero: to round it once more is a third of a
  /// short kernel's work. (LLVM sees it by itself where half has instructions for both ways.)
  bool rounded_already(int n, DType memory) const {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (memory != DType::bf16 || i.dtype != DType::f32) return false;
    if (i.op == Op::load) return kernel_.buffers[static_cast<size_t>(i.buffer)].dtype == DType::bf16;
    if (i.op == Op::constant) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(i.number));
      return (bits & 0xffffU) == 0;
    }
    if (i.op == Op::select) return rounded_already(i.args[1], memory) && rounded_already(i.args[2], memory);
    return i.op == Op::round_bf16;
  }

  void store(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    auto* element = memory_type(context_, dtype);
    Value* x = value(i.args[0]);
    stand_at(scopes_.size() - 1);
    const bool varies = plan_.vector_dim >= 0 && i.index.uses(plan_.vector_dim) && width_ > 1;
    const llvm::Align align(static_cast<uint64_t>(ir::size_of(dtype)));
    auto* base = buffers_[static_cast<size_t>(i.buffer)];
    if (varies) x = widened(x);
    auto* raw = rounded_already(i.args[0], dtype)
                    ? bf16_bits(b_, x)
                    : to_memory(b_, kernel_.code[static_cast<size_t>(i.args[0])].dtype, dtype, x);
    if (!varies || contiguous(i.index)) {
      auto* place = b_.CreateGEP(element, base, scalar_index(i.index));
      if (varies && rest_ > 0)
        b_.CreateMaskedStore(raw, place, align, lanes_of_rest());
      else
        b_.CreateAlignedStore(raw, place, align);
      return;
    }
    if (const auto step = step_of(i.index)) {
      stepped_store(element, base, scalar_index(i.index), *step, dtype, raw);
      return;
    }
    auto* at = vector_index(i.index);
    for (int lane = 0; lane < width_; ++lane)
      b_.CreateAlignedStore(
          b_.CreateExtractElement(raw, static_cast<uint64_t>(lane)),
          b_.CreateGEP(element, base, b_.CreateExtractElement(at, static_cast<uint64_t>(lane))), align);
  }

  const codegen::Kernel& kernel_;
  const Plan& plan_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  BasicBlock* entry_ = nullptr;
  llvm::Type* i64_ = nullptr;
  std::vector<Value*> buffers_;
  Value* error_ = nullptr;
  std::unordered_map<int, Value*> running_;  // of instructions that scan: what they have come to
  std::vector<Needs> needs_;                 // by instruction
  std::vector<bool> varying_;                // by instruction: differs from lane to lane
  std::vector<Value*> variables_;  // by dimension: its present value, the first lane's for the vector's
  std::vector<int> depths_;        // by dimension: the scope that defined it
  std::vector<Scope> scopes_;
  size_t row_depth_ = 0;
  int width_ = 1, phase_ = 0;
  int rest_ = 0;  // not 0: so many of the lanes are read and written, the others come to nothing
  struct Scratch {
    Value* slot;
    int phase;
  };
  std::unordered_map<int, Scratch> scratch_;
};

}  // namespace graft::cpu
