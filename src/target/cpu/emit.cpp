#include "target/cpu/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "target/cpu/arithmetic.h"
#include "target/cpu/vector_math.h"

namespace graft::cpu {
namespace {

using codegen::Atom;
using codegen::Index;
using codegen::Instruction;
using codegen::Kernel;
using codegen::Op;
using ir::DType;
using llvm::BasicBlock;
using llvm::Value;

// Rows longer than this do not fit a stack frame's scratch; what is dear is computed again then.
constexpr int64_t max_scratch_elements = 1 << 14;

class KernelEmitter {
 public:
  KernelEmitter(llvm::Module& module, const Kernel& kernel, const Plan& plan, const std::string& name, const Host& host)
      : kernel_(kernel), plan_(plan), context_(module.getContext()), b_(context_) {
    i64_ = b_.getInt64Ty();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), i64_, i64_, b_.getPtrTy()}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    set_target(*function_, host);
    entry_ = BasicBlock::Create(context_, "entry", function_);
    b_.SetInsertPoint(entry_);
    find_varying();
    variables_.resize(kernel.dims.size());
    depths_.assign(kernel.dims.size(), -1);
  }

  void run() {
    for (size_t i = 0; i < kernel_.buffers.size(); ++i)
      buffers_.push_back(b_.CreateLoad(b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0), i)));
    error_ = local(b_.getInt32Ty());
    b_.CreateStore(b_.getInt32(0), error_);
    auto* body = BasicBlock::Create(context_, "start", function_);
    b_.SetInsertPoint(body);
    scopes_.push_back({body, nullptr, {}});
    loop(function_->getArg(1), function_->getArg(2), b_.getInt64(1), [&](Value* task) { run_task(task); });
    auto* bad = b_.CreateLoad(b_.getInt32Ty(), error_);
    auto* report = BasicBlock::Create(context_, "report", function_);
    auto* done = BasicBlock::Create(context_, "done", function_);
    b_.CreateCondBr(b_.CreateICmpNE(bad, b_.getInt32(0)), report, done);
    b_.SetInsertPoint(report);
    b_.CreateStore(bad, function_->getArg(3));
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    b_.CreateRetVoid();
    b_.SetInsertPoint(entry_);
    b_.CreateBr(body);
  }

 private:
  /// A level of the loop nest. Values that depend on no deeper loop are computed in it, at the end of what it has
  /// so far.
  struct Scope {
    BasicBlock* block;
    llvm::Instruction* terminator;  // the jump into the next deeper loop, while one is being built
    std::unordered_map<int, Value*> values;
  };

  // --- the loop nest

  Value* local(llvm::Type* type, Value* count = nullptr) {
    llvm::IRBuilder<> at(entry_, entry_->begin());
    auto* slot = at.CreateAlloca(type, count);
    slot->setAlignment(llvm::Align(64));
    return slot;
  }

  void stand_at(size_t depth) {
    auto& scope = scopes_[depth];
    if (scope.terminator) b_.SetInsertPoint(scope.terminator);
    else b_.SetInsertPoint(scope.block);
  }

  /// for (i = begin; i < end; i += step) body(i), one scope deeper.
  void loop(Value* begin, Value* end, Value* step, const std::function<void(Value*)>& body) {
    const size_t outer = scopes_.size() - 1;
    stand_at(outer);
    auto* counter = local(i64_);
    b_.CreateStore(begin, counter);
    auto* head = BasicBlock::Create(context_, "head", function_);
    auto* inside = BasicBlock::Create(context_, "body", function_);
    auto* exit = BasicBlock::Create(context_, "exit", function_);
    scopes_[outer].terminator = b_.CreateBr(head);
    b_.SetInsertPoint(head);
    auto* at = b_.CreateLoad(i64_, counter);
    b_.CreateCondBr(b_.CreateICmpSLT(at, end), inside, exit);
    scopes_.push_back({inside, nullptr, {}});
    b_.SetInsertPoint(inside);
    body(at);
    stand_at(scopes_.size() - 1);
    b_.CreateStore(b_.CreateAdd(at, step), counter);
    b_.CreateBr(head);
    scopes_.pop_back();
    scopes_[outer].block = exit;
    scopes_[outer].terminator = nullptr;
    b_.SetInsertPoint(exit);
  }

  /// if (flag) body(), one scope deeper.
  void when(Value* flag, const std::function<void()>& body) {
    const size_t outer = scopes_.size() - 1;
    auto* inside = BasicBlock::Create(context_, "then", function_);
    auto* exit = BasicBlock::Create(context_, "else", function_);
    scopes_[outer].terminator = b_.CreateCondBr(flag, inside, exit);
    scopes_.push_back({inside, nullptr, {}});
    b_.SetInsertPoint(inside);
    body();
    stand_at(scopes_.size() - 1);
    b_.CreateBr(exit);
    scopes_.pop_back();
    scopes_[outer].block = exit;
    scopes_[outer].terminator = nullptr;
    b_.SetInsertPoint(exit);
  }

  void define(size_t dim, Value* value) {
    variables_[dim] = value;
    depths_[dim] = static_cast<int>(scopes_.size()) - 1;
  }

  void run_task(Value* task) {
    Value* rest = task;
    Value* block = nullptr;
    if (plan_.vector_dim >= 0 && !plan_.rows) {
      block = b_.CreateURem(rest, b_.getInt64(plan_.blocks));
      rest = b_.CreateUDiv(rest, b_.getInt64(plan_.blocks));
    }
    for (size_t d = kernel_.dims.size(); d-- > 0;) {
      if (kernel_.dims[d].reduced || static_cast<int>(d) == plan_.vector_dim) continue;
      define(d, b_.CreateURem(rest, b_.getInt64(kernel_.dims[d].extent)));
      rest = b_.CreateUDiv(rest, b_.getInt64(kernel_.dims[d].extent));
    }
    if (plan_.vector_dim < 0 || plan_.rows) {
      width_ = 1;
      run_points();
      return;
    }
    run_blocks(block);
  }

  /// A kept dimension is the vector's: whole vectors of this task's block, and in the last block what is left.
  void run_blocks(Value* block) {
    const auto dim = static_cast<size_t>(plan_.vector_dim);
    const int64_t extent = kernel_.dims[dim].extent;
    const int64_t whole = extent / plan_.width * plan_.width;
    auto* begin = b_.CreateMul(block, b_.getInt64(plan_.block));
    Value* end = b_.CreateAdd(begin, b_.getInt64(plan_.block));
    end = b_.CreateSelect(b_.CreateICmpSLT(end, b_.getInt64(whole)), end, b_.getInt64(whole));
    if (whole > 0)
      loop(begin, end, b_.getInt64(plan_.width), [&](Value* at) {
        width_ = plan_.width;
        define(dim, at);
        run_points();
      });
    if (whole == extent) return;
    when(b_.CreateICmpEQ(block, b_.getInt64(plan_.blocks - 1)), [&] {
      int64_t at = whole;
      for (int width = plan_.width; width > 0; width /= 2) {
        if (!((extent - whole) & width)) continue;
        width_ = width;
        // A scope of its own: values of another width must not be found.
        loop(b_.getInt64(at), b_.getInt64(at + 1), b_.getInt64(1), [&](Value*) {
          define(dim, b_.getInt64(at));
          run_points();
        });
        at += width;
      }
    });
  }

  /// All kept variables are known: the phases, each a loop over the reduced dimensions, and what is stored once.
  void run_points() {
    row_depth_ = scopes_.size() - 1;
    for (int phase = 0; phase < kernel_.phases; ++phase) run_phase(phase);
    width_at_row_ = width_;
    for (size_t i = 0; i < kernel_.code.size(); ++i)
      if (kernel_.code[i].op == Op::store && !kernel_.code[i].full) store(static_cast<int>(i));
  }

  struct Accumulator {
    int reduction;
    Value* vector = nullptr;  // of full width, and
    Value* single = nullptr;  // of what is left over, both memory
    Value* vector_place = nullptr;
    Value* single_place = nullptr;
  };

  void run_phase(int phase) {
    std::vector<Accumulator> accumulators;
    std::vector<int> stores, kept;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (codegen::is_reduction(i.op) && i.phase == phase + 1) accumulators.push_back(start(static_cast<int>(n)));
      if (i.op == Op::store && i.full && i.phase == phase) stores.push_back(static_cast<int>(n));
    }
    if (accumulators.empty() && stores.empty()) return;
    phase_ = phase;
    if (plan_.rows) kept = kept_for_later(phase);
    const auto point = [&](bool whole) {
      for (const int n : stores) store(n);
      for (const int n : kept) keep(n);
      for (auto& accumulator : accumulators) accumulate(accumulator, whole);
    };
    std::vector<size_t> dims;
    for (size_t d = 0; d < kernel_.dims.size(); ++d)
      if (kernel_.dims[d].reduced && static_cast<int>(d) != plan_.vector_dim) dims.push_back(d);
    run_reduced(dims, 0, point);
    for (auto& accumulator : accumulators) finish(accumulator);
  }

  void run_reduced(const std::vector<size_t>& dims, size_t next, const std::function<void(bool)>& point) {
    if (next < dims.size()) {
      loop(b_.getInt64(0), b_.getInt64(kernel_.dims[dims[next]].extent), b_.getInt64(1), [&](Value* at) {
        define(dims[next], at);
        run_reduced(dims, next + 1, point);
      });
      return;
    }
    if (!plan_.rows) {
      point(true);
      return;
    }
    const auto dim = static_cast<size_t>(plan_.vector_dim);
    const int64_t extent = kernel_.dims[dim].extent, whole = extent / plan_.width * plan_.width;
    if (whole > 0)
      loop(b_.getInt64(0), b_.getInt64(whole), b_.getInt64(plan_.width), [&](Value* at) {
        width_ = plan_.width;
        define(dim, at);
        point(true);
      });
    int64_t at = whole;
    for (int width = plan_.width; width > 0; width /= 2) {
      if (!((extent - whole) & width)) continue;
      loop(b_.getInt64(at), b_.getInt64(at + 1), b_.getInt64(1), [&](Value*) {
        width_ = width;
        define(dim, b_.getInt64(at));
        point(false);
      });
      at += width;
    }
    width_ = 1;
  }

  // --- reductions

  llvm::Type* type_of(DType dtype, int width) {
    auto* scalar = register_type(context_, dtype);
    return width == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(width));
  }

  Accumulator start(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    Accumulator made{.reduction = n};
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    const int width = plan_.rows ? plan_.width : varying_[static_cast<size_t>(i.args[0])] ? width_ : 1;
    const auto fresh = [&](DType of, int lanes, Value* value) {
      auto* slot = local(type_of(of, lanes));
      b_.CreateStore(lanes == 1 ? value : b_.CreateVectorSplat(static_cast<unsigned>(lanes), value), slot);
      return slot;
    };
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

  void accumulate(Accumulator& to, bool whole) {
    const auto& i = kernel_.code[static_cast<size_t>(to.reduction)];
    const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
    Value* x = value(i.args[0]);
    const bool lanes = plan_.rows ? width_ > 1 : varying_[static_cast<size_t>(i.args[0])] && width_ > 1;
    if (lanes) x = widened(x);
    Value* place = i.args.size() == 2 ? value(i.args[1]) : nullptr;
    if (place && lanes) place = widened(place);
    stand_at(scopes_.size() - 1);
    const bool into_vector = !plan_.rows || whole;
    if (!into_vector && lanes) {
      if (place) std::tie(x, place) = best_lane(b_, i.op, dtype, x, place);
      else x = reduce_lanes(b_, i.op, dtype, x);
    }
    auto* slot = into_vector ? to.vector : to.single;
    auto* old = b_.CreateLoad(x->getType(), slot);
    if (!place) {
      b_.CreateStore(combine(b_, i.op, dtype, old, x), slot);
      return;
    }
    auto* place_slot = into_vector ? to.vector_place : to.single_place;
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
        if (place) std::tie(x, place) = best_lane(b_, i.op, dtype, x, place);
        else x = reduce_lanes(b_, i.op, dtype, x);
      }
      auto* rest = b_.CreateLoad(type_of(dtype, 1), from.single);
      if (place) {
        auto* rest_place = b_.CreateLoad(i64_, from.single_place);
        std::tie(x, place) = better(b_, i.op, dtype, x, place, rest, rest_place);
      } else {
        x = combine(b_, i.op, dtype, x, rest);
      }
    }
    scopes_[row_depth_].values[from.reduction] = place ? place : x;
  }

  // --- dear values that a later phase needs again

  std::vector<int> kept_for_later(int phase) {
    std::vector<int> kept;
    if (kernel_.reduced_points() > max_scratch_elements) return kept;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (!i.full || i.phase != phase || !codegen::is_expensive(i.op) || i.dtype != DType::f32) continue;
      if (scratch_.contains(static_cast<int>(n)) || !needed_after(static_cast<int>(n), phase)) continue;
      scratch_[static_cast<int>(n)] = {local(b_.getFloatTy(), b_.getInt64(kernel_.reduced_points() + 64)), phase};
      kept.push_back(static_cast<int>(n));
    }
    return kept;
  }

  bool needed_after(int n, int phase) const {
    for (const auto& i : kernel_.code) {
      const int when = codegen::is_reduction(i.op) ? i.phase - 1 : i.phase;
      if (when <= phase || (!i.full && !codegen::is_reduction(i.op))) continue;
      if (std::find(i.args.begin(), i.args.end(), n) != i.args.end()) return true;
    }
    // Through values of the same phase that are computed again later.
    for (size_t m = static_cast<size_t>(n) + 1; m < kernel_.code.size(); ++m) {
      const auto& i = kernel_.code[m];
      if (i.full && i.phase == phase && i.op != Op::store && std::find(i.args.begin(), i.args.end(), n) != i.args.end() &&
          needed_after(static_cast<int>(m), phase))
        return true;
    }
    return false;
  }

  /// The place among the reduced points, as memory: the vector dimension innermost.
  Value* scratch_place() {
    Value* place = nullptr;
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      if (!kernel_.dims[d].reduced || static_cast<int>(d) == plan_.vector_dim) continue;
      place = place ? b_.CreateAdd(b_.CreateMul(place, b_.getInt64(kernel_.dims[d].extent)), variables_[d]) : variables_[d];
    }
    const auto v = static_cast<size_t>(plan_.vector_dim);
    return place ? b_.CreateAdd(b_.CreateMul(place, b_.getInt64(kernel_.dims[v].extent)), variables_[v]) : variables_[v];
  }

  void keep(int n) {
    auto* x = value(n);
    stand_at(scopes_.size() - 1);
    if (width_ > 1) x = widened(x);
    b_.CreateAlignedStore(x, b_.CreateInBoundsGEP(b_.getFloatTy(), scratch_.at(n).slot, scratch_place()), llvm::Align(4));
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
      if (codegen::is_reduction(i.op) && plan_.rows) varies = false;
      varying_[n] = varies;
    }
  }

  size_t depth_of(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    size_t depth = 0;
    if (i.op == Op::constant) return 0;
    for (size_t d = 0; d < kernel_.dims.size(); ++d)
      if (i.index.uses(static_cast<int>(d))) depth = std::max(depth, static_cast<size_t>(depths_[d]));
    if (codegen::is_reduction(i.op)) return row_depth_;
    const auto consider = [&](int arg) { depth = std::max(depth, depth_of(arg)); };
    for (const int arg : i.args) consider(arg);
    for (const auto& x : i.indirect) consider(x.value);
    if (i.guard >= 0) consider(i.guard);
    // Vectors of one width are not to be found in a loop of another.
    if (varying_[static_cast<size_t>(n)]) depth = std::max(depth, static_cast<size_t>(depths_[static_cast<size_t>(plan_.vector_dim)]));
    return depth;
  }

  /// The instruction's value: a scalar, or a vector of the present width if it varies along it.
  Value* value(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    if (const auto kept = scratch_.find(n); kept != scratch_.end() && kept->second.phase < phase_) {
      auto& values = scopes_.back().values;
      if (const auto found = values.find(n); found != values.end()) return found->second;
      stand_at(scopes_.size() - 1);
      auto* address = b_.CreateInBoundsGEP(b_.getFloatTy(), kept->second.slot, scratch_place());
      return values[n] = b_.CreateAlignedLoad(type_of(DType::f32, width_), address, llvm::Align(4));
    }
    const size_t depth = depth_of(n);
    auto& known = scopes_[depth].values;
    if (const auto found = known.find(n); found != known.end()) return found->second;
    std::vector<Value*> args;
    for (const int arg : i.args) args.push_back(value(arg));
    std::vector<Value*> places;
    for (const auto& x : i.indirect) places.push_back(value(x.value));
    Value* guard = i.guard >= 0 ? value(i.guard) : nullptr;
    stand_at(depth);
    if (varying_[static_cast<size_t>(n)] && width_ > 1)
      for (auto& arg : args) arg = widened(arg);
    Value* made = nullptr;
    switch (i.op) {
      case Op::constant: made = constant(i); break;
      case Op::iota: made = index_value(i.index); break;
      case Op::load: made = load(i, places, guard); break;
      default: {
        std::vector<DType> from;
        for (const int arg : i.args) from.push_back(kernel_.code[static_cast<size_t>(arg)].dtype);
        made = compute(b_, i.op, i.dtype, from, args);
      }
    }
    if (scopes_[depth].terminator == nullptr) scopes_[depth].block = b_.GetInsertBlock();
    else scopes_[depth].block = scopes_[depth].terminator->getParent();
    scopes_[depth].values[n] = made;
    return made;
  }

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
        case Atom::Kind::variable: x = variables_[static_cast<size_t>(atom->variable)]; break;
        case Atom::Kind::quotient: x = floor_divided(scalar_index(atom->inside), atom->divisor, atom->inside.min() >= 0, true); break;
        default: x = floor_divided(scalar_index(atom->inside), atom->divisor, atom->inside.min() >= 0, false); break;
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

  /// In every lane.
  Value* vector_index(const Index& index) {
    Value* sum = splat_index(b_.getInt64(static_cast<uint64_t>(index.constant())));
    for (const auto& [coefficient, atom] : index.terms()) {
      Value* x = nullptr;
      switch (atom->kind) {
        case Atom::Kind::variable:
          x = splat_index(variables_[static_cast<size_t>(atom->variable)]);
          if (atom->variable == plan_.vector_dim) x = b_.CreateAdd(x, lane_numbers());
          break;
        case Atom::Kind::quotient: x = floor_divided(vector_index(atom->inside), atom->divisor, atom->inside.min() >= 0, true); break;
        default: x = floor_divided(vector_index(atom->inside), atom->divisor, atom->inside.min() >= 0, false); break;
      }
      if (coefficient != 1) x = b_.CreateMul(x, splat_index(b_.getInt64(static_cast<uint64_t>(coefficient))));
      sum = b_.CreateAdd(sum, x);
    }
    return sum;
  }

  Value* splat_index(Value* x) { return width_ == 1 ? x : b_.CreateVectorSplat(static_cast<unsigned>(width_), x); }
  Value* lane_numbers() {
    if (width_ == 1) return b_.getInt64(0);
    std::vector<llvm::Constant*> lanes;
    for (int i = 0; i < width_; ++i) lanes.push_back(b_.getInt64(static_cast<uint64_t>(i)));
    return llvm::ConstantVector::get(lanes);
  }

  Value* index_value(const Index& index) {
    const bool varies = plan_.vector_dim >= 0 && index.uses(plan_.vector_dim) && width_ > 1;
    return varies ? vector_index(index) : scalar_index(index);
  }

  bool contiguous(const Index& index) const {
    if (index.coefficient(plan_.vector_dim) != 1) return false;
    for (const auto& term : index.terms())
      if (term.atom->kind != Atom::Kind::variable && term.atom->inside.uses(plan_.vector_dim)) return false;
    return true;
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
      for (size_t k = 0; k < places.size(); ++k) at = b_.CreateAdd(at, checked(i.indirect[k], places[k], guard));
      const int width = varies ? width_ : 1;
      if (guard && i.elements < width) return masked_load(i, dtype, base, b_.CreateVectorSplat(static_cast<unsigned>(width), guard), at, width);
      if (guard) at = b_.CreateSelect(guard, at, b_.getInt64(0));
      auto* type = width == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
      auto* raw = b_.CreateAlignedLoad(type, b_.CreateGEP(element, base, at), llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))));
      return to_register(b_, dtype, raw);
    }
    if (!scattered && varies) return masked_load(i, dtype, base, guard, scalar_index(i.index), width_);
    Value* at = varies ? vector_index(i.index) : splat_index(scalar_index(i.index));
    for (size_t k = 0; k < places.size(); ++k) {
      auto* g = guard && places[k]->getType()->isVectorTy() ? widened(guard) : guard;
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
      auto* x = b_.CreateAlignedLoad(element, b_.CreateGEP(element, base, place), llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))));
      lanes = b_.CreateInsertElement(lanes, x, static_cast<uint64_t>(lane));
    }
    return to_register(b_, dtype, lanes);
  }

  Value* masked_load(const Instruction&, DType dtype, Value* base, Value* mask, Value* at, int width) {
    auto* element = memory_type(context_, dtype);
    auto* type = llvm::FixedVectorType::get(element, static_cast<unsigned>(width));
    auto* raw = b_.CreateMaskedLoad(type, b_.CreateGEP(element, base, at), llvm::Align(static_cast<uint64_t>(ir::size_of(dtype))), mask,
                                    llvm::Constant::getNullValue(type));
    auto* x = to_register(b_, dtype, raw);
    return width == 1 ? b_.CreateExtractElement(x, static_cast<uint64_t>(0)) : x;
  }

  /// The offset of an index that is data. One outside the table is reported and read as 0.
  Value* checked(const Instruction::Indirect& how, Value* place, Value* guard) {
    auto* type = place->getType();
    auto* size = llvm::ConstantInt::get(type, static_cast<uint64_t>(how.size));
    auto* zero = llvm::Constant::getNullValue(type);
    if (how.wraps) place = b_.CreateSelect(b_.CreateICmpSLT(place, zero), b_.CreateAdd(place, size), place);
    Value* good = b_.CreateICmpULT(place, size);
    Value* counts = good;
    if (guard) counts = b_.CreateOr(good, b_.CreateNot(guard->getType() == good->getType() ? guard : widened(guard)));
    Value* bad = b_.CreateNot(counts);
    if (bad->getType()->isVectorTy()) bad = b_.CreateOrReduce(bad);
    b_.CreateStore(b_.CreateOr(b_.CreateLoad(b_.getInt32Ty(), error_), b_.CreateZExt(bad, b_.getInt32Ty())), error_);
    place = b_.CreateSelect(good, place, zero);
    return b_.CreateMul(place, llvm::ConstantInt::get(type, static_cast<uint64_t>(how.stride)));
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
    auto* raw = to_memory(b_, kernel_.code[static_cast<size_t>(i.args[0])].dtype, dtype, x);
    if (!varies || contiguous(i.index)) {
      b_.CreateAlignedStore(raw, b_.CreateGEP(element, base, scalar_index(i.index)), align);
      return;
    }
    auto* at = vector_index(i.index);
    for (int lane = 0; lane < width_; ++lane)
      b_.CreateAlignedStore(b_.CreateExtractElement(raw, static_cast<uint64_t>(lane)),
                            b_.CreateGEP(element, base, b_.CreateExtractElement(at, static_cast<uint64_t>(lane))), align);
  }

  const Kernel& kernel_;
  const Plan& plan_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  BasicBlock* entry_ = nullptr;
  llvm::Type* i64_ = nullptr;
  std::vector<Value*> buffers_;
  Value* error_ = nullptr;
  std::vector<bool> varying_;       // by instruction: differs from lane to lane
  std::vector<Value*> variables_;   // by dimension: its present value, the first lane's for the vector's
  std::vector<int> depths_;         // by dimension: the scope that defined it
  std::vector<Scope> scopes_;
  size_t row_depth_ = 0;
  int width_ = 1, width_at_row_ = 1, phase_ = 0;
  struct Scratch {
    Value* slot;
    int phase;
  };
  std::unordered_map<int, Scratch> scratch_;
};

}  // namespace

void emit(llvm::Module& module, const Kernel& kernel, const Plan& plan, const std::string& name, const Host& host) {
  KernelEmitter(module, kernel, plan, name, host).run();
}

}  // namespace graft::cpu
