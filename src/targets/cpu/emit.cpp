#include "targets/cpu/emit.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>

#include "targets/cpu/scatter_emitter.h"

namespace graft::cpu {
namespace {

using codegen::Kernel;
using llvm::Value;

// Rows of more bytes than this do not fit a stack frame's scratch; what is dear is computed again then.
constexpr int64_t max_scratch = 1 << 16;
// Two such rows lie beside each other in the caches next to a core. Longer ones are read long enough for the
// machine to see what comes next by itself.
constexpr int64_t longest_row_to_fetch = 1 << 17, cache_line = 64;

class KernelEmitter : ScatterEmitter {
 public:
  KernelEmitter(llvm::Module& module, const Kernel& kernel, const Plan& plan, const std::string& name,
                const Host& host)
      : ScatterEmitter(module.getContext(), kernel, plan),
        masks_(host.has("avx512bw") && host.has("avx512vl")) {
    auto* type = llvm::FunctionType::get(
        b_.getVoidTy(), {b_.getPtrTy(), i64_, i64_, b_.getPtrTy(), b_.getPtrTy(), i64_}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    // No fast-math flags. LLVM would contract a product and a sum into one instruction here and not there, as
    // it happens to see them; but a value that is computed twice (in two phases, two kernels, again in the
    // backward part) must be the same to the bit: the gradient of amax() asks which elements equal the
    // largest.
    set_target(*function_, host);
    entry_ = BasicBlock::Create(context_, "entry", function_);
    b_.SetInsertPoint(entry_);
  }

  void run() {
    for (size_t i = 0; i < kernel_.buffers.size(); ++i)
      buffers_.push_back(b_.CreateLoad(
          b_.getPtrTy(), b_.CreateConstInBoundsGEP1_64(b_.getPtrTy(), function_->getArg(0), i)));
    error_ = local(b_.getInt32Ty());
    b_.CreateStore(b_.getInt32(0), error_);
    auto* body = BasicBlock::Create(context_, "start", function_);
    b_.SetInsertPoint(body);
    scopes_.push_back({body, nullptr, {}});
    const auto tasks = [&] {
      loop(function_->getArg(1), function_->getArg(2), b_.getInt64(1), [&](Value* task) { run_task(task); });
    };
    if (plan_.stages == 1)
      tasks();
    else
      for (stage_ = 0; stage_ < plan_.stages; ++stage_)
        when(b_.CreateICmpEQ(function_->getArg(5), b_.getInt64(stage_)), tasks);
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
  // --- the loop nest

  void run_task(Value* task) {
    Value* rest = task;
    Value* block = nullptr;
    if (stage_ < plan_.parted_stages) {
      // Next to each other are the parts of a row, and the columns of a part: what lies together in memory.
      const bool parts_first = plan_.rows || kernel_.reduces_rows();
      auto* inner = b_.getInt64(static_cast<uint64_t>(parts_first ? plan_.parts : plan_.tasks));
      auto* low = b_.CreateURem(rest, inner);
      auto* high = b_.CreateUDiv(rest, inner);
      part_ = parts_first ? low : high;
      rest = parts_first ? high : low;
    }
    task_ = rest;
    if (kernel_.reduces_rows()) {
      if (stage_ == 0)
        run_rows();
      else
        store_once();
      return;
    }
    if (plan_.vector_dim >= 0 && !plan_.rows) {
      const int64_t inner = plan_.across ? plan_.tasks / plan_.blocks : plan_.blocks;
      auto* low = b_.CreateURem(rest, b_.getInt64(static_cast<uint64_t>(inner)));
      auto* high = b_.CreateUDiv(rest, b_.getInt64(static_cast<uint64_t>(inner)));
      block = plan_.across ? high : low;
      rest = plan_.across ? low : high;
    }
    define_kept(rest);
    if (plan_.vector_dim < 0 || plan_.rows) {
      width_ = 1;
      run_points();
      return;
    }
    if (kernel_.scatters() && kernel_.phases > 0)
      walk_columns(block);
    else
      run_block(block, [&] { run_points(); });
  }

  /// Of a kernel that scatters: for each point of the reduced dimensions a stretch of the columns, as they
  /// lie in memory.
  void walk_columns(Value* block) {
    const auto last = static_cast<int>(kernel_.code.size()) - 1;  // it has no other store
    run_reduced(
        [&](bool) { add_columns(last, [&](const std::function<void()>& body) { run_block(block, body); }); });
  }

  void define_kept(Value* rest) {
    for (size_t d = kernel_.dims.size(); d-- > 0;) {
      if (kernel_.dims[d].reduced || static_cast<int>(d) == plan_.vector_dim) continue;
      define(d, b_.CreateURem(rest, b_.getInt64(kernel_.dims[d].extent)));
      rest = b_.CreateUDiv(rest, b_.getInt64(kernel_.dims[d].extent));
    }
  }

  /// A kept dimension is the vector's: whole vectors of this task's block, and in the last block what is
  /// left.
  void run_block(Value* block, const std::function<void()>& body) {
    const auto dim = static_cast<size_t>(plan_.vector_dim);
    const int64_t extent = kernel_.dims[dim].extent;
    const int64_t whole = extent / plan_.width * plan_.width;
    auto* begin = b_.CreateMul(block, b_.getInt64(plan_.block));
    block_begin_ = begin;
    Value* end = b_.CreateAdd(begin, b_.getInt64(plan_.block));
    end = b_.CreateSelect(b_.CreateICmpSLT(end, b_.getInt64(whole)), end, b_.getInt64(whole));
    if (whole > 0)
      loop(begin, end, b_.getInt64(plan_.width), [&](Value* at) {
        width_ = plan_.width;
        define(dim, at);
        body();
      });
    if (whole == extent) return;
    when(b_.CreateICmpEQ(block, b_.getInt64(plan_.blocks - 1)), [&] {
      int64_t at = whole;
      const auto rest = static_cast<unsigned>(extent - whole);
      if (!std::has_single_bit(rest) && may_mask_rest()) {
        loop(b_.getInt64(at), b_.getInt64(at + 1), b_.getInt64(1), [&](Value*) {
          width_ = static_cast<int>(std::bit_ceil(rest));
          rest_ = static_cast<int>(rest);
          define(dim, b_.getInt64(at));
          body();
        });
        rest_ = 0;
        return;
      }
      for (int width = plan_.width; width > 0; width /= 2) {
        if (!(rest & static_cast<unsigned>(width))) continue;
        width_ = width;
        // A scope of its own: values of another width must not be found.
        loop(b_.getInt64(at), b_.getInt64(at + 1), b_.getInt64(1), [&](Value*) {
          define(dim, b_.getInt64(at));
          body();
        });
        at += width;
      }
    });
  }

  /// Whether what is left of a row can be one vector, some of whose lanes are nothing: with AVX-512 that
  /// costs no more than a whole one, and rows are often short. Whole numbers must not be divided by nothing.
  bool may_mask_rest() const {
    if (!masks_ || kernel_.phases > 0 || kernel_.reduces_rows() || kernel_.scatters()) return false;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      const bool divides = i.op == Op::div || i.op == Op::fmod || i.op == Op::remainder;
      if (divides && !ir::is_floating(i.dtype)) return false;
      if ((i.op != Op::load && i.op != Op::store) || !varying_[n]) continue;
      if (!i.indirect.empty() || (i.index.uses(plan_.vector_dim) && !contiguous(i.index))) return false;
    }
    return true;
  }

  /// All kept variables are known: the phases, each a loop over the reduced dimensions, and what is stored
  /// once.
  void run_points() {
    row_depth_ = scopes_.size() - 1;
    if (plan_.split_dim >= 0) {
      for (const int n : reductions_needed()) recall(n);
      if (stage_ < kernel_.phases)
        run_phase(stage_);
      else
        store_rows();
      return;
    }
    for (int phase = 0; phase < kernel_.phases; ++phase) run_phase(phase);
    store_rows();
  }

  void store_rows() {
    for (size_t i = 0; i < kernel_.code.size(); ++i)
      if (kernel_.code[i].op == Op::store && !kernel_.code[i].full && !kernel_.code[i].once)
        put(static_cast<int>(i));
  }

  void put(int n) {
    if (kernel_.code[static_cast<size_t>(n)].adds)
      add(n);
    else
      store(n);
  }

  void run_phase(int phase) {
    std::vector<Accumulator> accumulators;
    std::vector<int> stores, kept, columns;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (codegen::is_scan(i.op)) start_scan(static_cast<int>(n));
      if (codegen::is_reduction(i.op) && !i.over_rows && i.phase == phase + 1)
        accumulators.push_back(start(static_cast<int>(n)));
      if (i.op == Op::store && i.full && i.phase == phase) stores.push_back(static_cast<int>(n));
      if (codegen::is_reduction(i.op) && i.column && i.phase == phase) columns.push_back(static_cast<int>(n));
    }
    if (accumulators.empty() && stores.empty() && columns.empty()) return;
    phase_ = phase;
    if (plan_.rows) kept = kept_for_later(phase);
    const auto fetched = phase == phase_to_fetch_in() ? loads_to_fetch() : std::vector<int>{};
    const auto point = [&](bool whole) {
      if (whole)
        for (const int n : fetched) fetch_of_next_row(n);
      for (const int n : stores) put(n);
      for (const int n : kept) keep(n);
      for (auto& accumulator : accumulators) accumulate(accumulator, whole);
      for (const int n : columns) add_to_column(n);
    };
    run_reduced(point);
    for (auto& accumulator : accumulators) finish(accumulator);
  }

  /// All points of a row; `point` is told whether it is for a whole vector.
  void run_reduced(const std::function<void(bool)>& point) {
    std::vector<size_t> dims;
    for (size_t d = 0; d < kernel_.dims.size(); ++d)
      if (kernel_.dims[d].reduced && static_cast<int>(d) != plan_.vector_dim) dims.push_back(d);
    run_reduced(dims, 0, point);
  }

  void run_reduced(const std::vector<size_t>& dims, size_t next, const std::function<void(bool)>& point) {
    if (next < dims.size()) {
      const auto [begin, end] = bounds(dims[next], kernel_.dims[dims[next]].extent);
      loop(begin, end, b_.getInt64(1), [&](Value* at) {
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
    if (whole > 0) {
      const auto [begin, end] = bounds(dim, whole);
      loop(begin, end, b_.getInt64(plan_.width), [&](Value* at) {
        width_ = plan_.width;
        define(dim, at);
        point(true);
      });
    }
    const auto rest = [&] {
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
    };
    if (plan_.split_dim == plan_.vector_dim && whole < extent)
      when(b_.CreateICmpEQ(part_, b_.getInt64(plan_.parts - 1)), rest);
    else
      rest();
    width_ = 1;
  }

  /// Of this task's loop over a reduced dimension that ends at `end`: its part where the dimension is dealt
  /// out.
  std::pair<Value*, Value*> bounds(size_t dim, int64_t end) {
    if (static_cast<int>(dim) != plan_.split_dim) return {b_.getInt64(0), b_.getInt64(end)};
    stand_at(scopes_.size() - 1);
    auto* begin = b_.CreateMul(part_, b_.getInt64(plan_.part));
    auto* last = b_.CreateAdd(begin, b_.getInt64(plan_.part));
    return {begin, b_.CreateSelect(b_.CreateICmpSLT(last, b_.getInt64(end)), last, b_.getInt64(end))};
  }

  /// By this stage's reductions and stores, directly or through values that are computed again.
  std::vector<int> reductions_needed() const {
    std::vector<bool> needed(kernel_.code.size());
    std::vector<int> found;
    for (size_t n = kernel_.code.size(); n-- > 0;) {
      const auto& i = kernel_.code[n];
      const bool reduces = codegen::is_reduction(i.op);
      const bool stored = i.op == Op::store && (i.full ? i.phase == stage_ : stage_ == kernel_.phases);
      const bool made_here = reduces && i.phase == stage_ + 1;
      if (!needed[n] && !stored && !made_here) continue;
      if (reduces && !made_here) {
        found.push_back(static_cast<int>(n));
        continue;
      }
      for (const int arg : i.args) needed[static_cast<size_t>(arg)] = true;
      for (const auto& x : i.indirect) needed[static_cast<size_t>(x.value)] = true;
      if (i.guard >= 0) needed[static_cast<size_t>(i.guard)] = true;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  // --- reductions over rows

  /// The first stage: the rows of this part one after the other, and what their reductions came to.
  void run_rows() {
    std::vector<Accumulator> totals;
    const auto columns = column_sums();
    if (!columns.empty())
      run_reduced([&](bool) {
        for (const int n : columns) start_column(n);
      });
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (!i.over_rows || i.column) continue;
      const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
      Accumulator total{.reduction = static_cast<int>(n)};
      total.single = fresh(dtype, 1, reduction_identity(b_, i.op, dtype));
      if (i.args.size() == 2) total.single_place = fresh(DType::i64, 1, b_.getInt64(-1));
      totals.push_back(total);
    }
    auto* begin = b_.CreateMul(part_, b_.getInt64(plan_.part));
    auto* rows = b_.getInt64(kernel_.kept_points());
    Value* end = b_.CreateAdd(begin, b_.getInt64(plan_.part));
    end = b_.CreateSelect(b_.CreateICmpSLT(end, rows), end, rows);
    loop(begin, end, b_.getInt64(1), [&](Value* row) {
      define_kept(row);
      width_ = 1;
      run_points();
      for (const auto& total : totals) {
        const auto& i = kernel_.code[static_cast<size_t>(total.reduction)];
        Value* x = value(i.args[0]);
        Value* place = i.args.size() == 2 ? value(i.args[1]) : nullptr;
        stand_at(scopes_.size() - 1);
        add_to(total.reduction, total.single, total.single_place, x, place);
      }
    });
    for (const auto& total : totals) {
      const auto& i = kernel_.code[static_cast<size_t>(total.reduction)];
      const auto dtype = kernel_.code[static_cast<size_t>(i.args[0])].dtype;
      auto* x = b_.CreateLoad(type_of(dtype, 1), total.single);
      leave(total.reduction, x, total.single_place ? b_.CreateLoad(i64_, total.single_place) : nullptr);
    }
  }

  /// The second stage: what follows from all rows.
  void store_once() {
    row_depth_ = scopes_.size() - 1;
    width_ = 1;
    std::vector<int> stores, column_stores;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (i.over_rows && !i.column) recall(static_cast<int>(n));
      if (i.op == Op::store && i.once) (i.column ? column_stores : stores).push_back(static_cast<int>(n));
    }
    for (const int n : stores) store(n);
    if (column_stores.empty()) return;
    run_reduced([&](bool) {
      for (const int n : column_sums()) finish_column(n);
      for (const int n : column_stores) store(n);
    });
  }

  std::vector<int> column_sums() const {
    std::vector<int> found;
    for (size_t n = 0; n < kernel_.code.size(); ++n)
      if (codegen::is_reduction(kernel_.code[n].op) && kernel_.code[n].column)
        found.push_back(static_cast<int>(n));
    return found;
  }

  // --- the next row, on its way while this one is computed

  /// The longest of the phases that find their row in the cache: memory would stand idle.
  int phase_to_fetch_in() const {
    if (!plan_.rows || plan_.split_dim >= 0) return -1;
    std::vector<int> work(static_cast<size_t>(kernel_.phases) + 1);
    for (const auto& i : kernel_.code)
      if (i.full && !i.over_rows) work[static_cast<size_t>(i.phase)] += codegen::is_expensive(i.op) ? 20 : 1;
    const auto longest = std::max_element(work.begin() + 1, work.end());
    return longest == work.end() || *longest == 0 ? -1 : static_cast<int>(longest - work.begin());
  }

  /// How far on the next row begins; 0: not known, or it is the same.
  int64_t to_next_row(const codegen::Index& index) const {
    for (size_t d = kernel_.dims.size(); d-- > 0;)
      if (!kernel_.dims[d].reduced && kernel_.dims[d].extent > 1)
        return index.coefficient(static_cast<int>(d));
    return 0;
  }

  std::vector<int> loads_to_fetch() const {
    std::vector<int> found;
    int64_t bytes = 0;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (i.op != Op::load || !i.full || i.guard >= 0 || !i.indirect.empty()) continue;
      if (!contiguous(i.index) || to_next_row(i.index) == 0) continue;
      bytes += kernel_.reduced_points() * ir::size_of(kernel_.buffers[static_cast<size_t>(i.buffer)].dtype);
      found.push_back(static_cast<int>(n));
    }
    return bytes <= longest_row_to_fetch ? found : std::vector<int>{};
  }

  /// Of a vector's place. Past the last row there may be no memory: a prefetch does not mind.
  void fetch_of_next_row(int n) {
    const auto& i = kernel_.code[static_cast<size_t>(n)];
    const auto dtype = kernel_.buffers[static_cast<size_t>(i.buffer)].dtype;
    stand_at(scopes_.size() - 1);
    auto* at = b_.CreateAdd(scalar_index(i.index), b_.getInt64(to_next_row(i.index)));
    auto* address = b_.CreateGEP(memory_type(context_, dtype), buffers_[static_cast<size_t>(i.buffer)], at);
    for (int64_t line = 0; line < width_ * ir::size_of(dtype); line += cache_line) {
      auto* place = b_.CreateConstGEP1_64(b_.getInt8Ty(), address, static_cast<uint64_t>(line));
      constexpr int read = 0, nearest = 3, data = 1;
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                         {place, b_.getInt32(read), b_.getInt32(nearest), b_.getInt32(data)});
    }
  }

  // --- dear values that a later phase needs again

  std::vector<int> kept_for_later(int phase) {
    std::vector<int> kept;
    if (plan_.split_dim >= 0) return kept;
    for (size_t n = 0; n < kernel_.code.size(); ++n) {
      const auto& i = kernel_.code[n];
      if (!i.full || i.phase != phase || !codegen::is_expensive(i.op)) continue;
      if (kernel_.reduced_points() * ir::size_of(i.dtype) > max_scratch) continue;
      if (!varying_[n]) continue;  // it is computed outside of the innermost loop, where few are
      if (scratch_.contains(static_cast<int>(n)) || !needed_after(static_cast<int>(n), phase)) continue;
      scratch_[static_cast<int>(n)] = {local(type_of(i.dtype, 1), b_.getInt64(kernel_.reduced_points() + 64)),
                                       phase};
      kept.push_back(static_cast<int>(n));
    }
    return kept;
  }

  bool needed_after(int n, int phase) const {
    for (const auto& i : kernel_.code) {
      const int when = codegen::is_reduction(i.op) && !i.column ? i.phase - 1 : i.phase;
      if (when <= phase || (!i.full && !codegen::is_reduction(i.op))) continue;
      if (std::find(i.args.begin(), i.args.end(), n) != i.args.end()) return true;
    }
    // Through values of the same phase that are computed again later.
    for (size_t m = static_cast<size_t>(n) + 1; m < kernel_.code.size(); ++m) {
      const auto& i = kernel_.code[m];
      if (i.full && i.phase == phase && i.op != Op::store &&
          std::find(i.args.begin(), i.args.end(), n) != i.args.end() &&
          needed_after(static_cast<int>(m), phase))
        return true;
    }
    return false;
  }

  void keep(int n) {
    auto* x = value(n);
    stand_at(scopes_.size() - 1);
    if (width_ > 1) x = widened(x);
    auto* type = type_of(kernel_.code[static_cast<size_t>(n)].dtype, 1);
    b_.CreateAlignedStore(x, b_.CreateInBoundsGEP(type, scratch_.at(n).slot, scratch_place()),
                          scratch_alignment(n));
  }

  int stage_ = 0;
  bool masks_;  // the machine reads and writes some lanes of a vector of any type
};

}  // namespace

void emit(llvm::Module& module, const Kernel& kernel, const Plan& plan, const std::string& name,
          const Host& host) {
  KernelEmitter(module, kernel, plan, name, host).run();
}

}  // namespace graft::cpu
