#include "capture/split_run.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "capture/op_facts.h"
#include "capture/placeholder.h"
#include "capture/trace_run.h"
#include "graft/error.h"

namespace graft {

namespace {

/// That of arguments, say; not a placeholder's.
bool writes_real_memory(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.schema().is_mutable()) return false;
  const auto& declared = op.schema().arguments();
  bool real = false;
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].alias_info() && declared[i].alias_info()->isWrite())
      each_tensor(stack[stack.size() - declared.size() + i], [&](const at::Tensor& t) {
        auto* storage = t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
        real |= !storage || storage->_mutable_data_ptr_no_checks().get() != nullptr;
      });
  return real;
}

}  // namespace

/// Meanwhile calls are plain eager code, as before the run, also inside of an operator (where autograd is
/// switched off).
class SplitRun::Suspended {
 public:
  explicit Suspended(SplitRun& run) : run_(unwatched(run)), keys_(c10::impl::tls_local_dispatch_key_set()) {
    c10::impl::_force_tls_local_dispatch_key_set(run_.state_.keys());
  }
  ~Suspended() {
    c10::impl::_force_tls_local_dispatch_key_set(keys_);
    run_.begin(/*from_the_first=*/true);
  }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  static SplitRun& unwatched(SplitRun& run) {
    run.end();
    return run;
  }

  SplitRun& run_;
  c10::impl::LocalDispatchKeySet keys_;
};

SplitRun::SplitRun(std::vector<TraceToFollow> traces, size_t arguments, Compute compute,
                   std::function<std::vector<at::Tensor>()> modules)
    : count_of_traces_(traces.size()),
      arguments_(arguments),
      compute_(std::move(compute)),
      follower_(std::move(traces), TraceFollower::Flags::by_trace),
      modules_(std::move(modules)) {}

std::optional<size_t> SplitRun::input_of(const at::Tensor& tensor) {
  const auto [known, is_new] = numbers_.try_emplace(tensor.unsafeGetTensorImpl(), inputs_.size());
  if (is_new) inputs_.push_back(tensor);
  return known->second;
}

void SplitRun::on_first(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (writer_) return pass_first(op, keys, stack);
  // A read is a call like any other, with autograd and all, of what is computed.
  const bool reads = !follower_.is_at_end() && follower_.next().reads;
  if (reads && past_autograd_) {
    // In the middle of an operator (at::combinations): what it reads is computed, and has a history.
    no_more_past_autograd();
    op.callBoxed(stack);  // comes here again
    if (!writer_) past_autograd_ = skip_autograd();
    return;
  }
  if (reads) compute();
  const bool is_outermost = !reads && !past_autograd_;
  if (is_outermost) past_autograd_ = skip_autograd();
  try {
    pass_first(op, reads ? keys : keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView, stack);
  } catch (...) {
    if (is_outermost) no_more_past_autograd();
    throw;
  }
  if (is_outermost) no_more_past_autograd();
  if (std::exchange(is_looked_at_, false) && !writer_) compute();
}

/// Switched off is what was before; who watches may have changed meanwhile.
void SplitRun::no_more_past_autograd() {
  if (!past_autograd_) return;
  auto local = c10::impl::tls_local_dispatch_key_set();
  local.excluded_ = *std::exchange(past_autograd_, std::nullopt);
  c10::impl::_force_tls_local_dispatch_key_set(local);
}

void SplitRun::on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (writer_) return write_down(op, keys, *stack);
  if (!follower_.is_next_here(op, *stack)) {
    if (calls_no_operator(op, keys, *stack)) return;
    if (!follower_.is_next(op, *stack)) {
      // From the top, where this call has gone past autograd.
      const bool again = past_autograd_.has_value();
      leave_traces();
      return again ? op.callBoxed(stack) : write_down(op, keys, *stack);
    }
  }
  const auto& call = follower_.next();
  const bool then_pointer = call.pointer_after;
  // The code may look at such memory at once.
  const bool writes = writes_real_memory(op, *stack);
  hold(call);
  if (call.reads)
    read(op, keys, *stack);
  else
    follower_.give_placeholders(*stack);
  is_looked_at_ |= (then_pointer || writes) && !writer_;
}

void SplitRun::on_pointer(c10::StorageImpl*) {
  // It may read there what is not computed yet, and write what calls before must not see.
  if (writer_) writer_->refuse("it takes the data pointer of a tensor");
}

/// What an earlier part has given may be gone by the time that it is read.
void SplitRun::hold(const Trace::Call& call) {
  for (const auto& argument : call.arguments)
    for (const auto& ref : argument.tensors)
      if (ref.kind == Trace::Ref::Kind::made && follower_.made()[ref.number].is_computed)
        held_.try_emplace(ref.number, follower_.tensor(ref));
}

void SplitRun::read(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  follower_.note_inputs(stack);
  compute();
  const std::vector<c10::IValue> given(stack.end() - static_cast<int64_t>(op.schema().arguments().size()),
                                       stack.end());
  call_below(op, keys, stack);
  has_acted_ = true;
  if (follower_.take_results(stack)) {
    first_ = follower_.calls();
    return;
  }
  leave_traces();
  const auto results = static_cast<int64_t>(op.schema().returns().size());
  writer_->add(op, given, {stack.end() - results, stack.end()});
}

void SplitRun::compute() {
  Part part{follower_.current(), first_, follower_.calls(), {}, {}};
  if (part.first == part.last) return;
  std::vector<at::Tensor> inputs;
  const auto take = [&](const Trace::Ref& ref) {
    const bool is_given = ref.kind == Trace::Ref::Kind::input
                              ? ref.number < arguments_ || follower_.told().contains(ref.number)
                              : ref.kind == Trace::Ref::Kind::made && held_.contains(ref.number);
    if (!is_given || std::ranges::find(part.inputs, ref) != part.inputs.end()) return;
    part.inputs.push_back(ref);
    inputs.push_back(ref.kind == Trace::Ref::Kind::input ? follower_.tensor(ref) : held_.at(ref.number));
  };
  for (size_t i = part.first; i < part.last; ++i)
    for (const auto& argument : follower_.trace().calls[i].arguments) {
      for (const auto& ref : argument.tensors) take(ref);
      if (!argument.input) continue;
      part.inputs.push_back({Trace::Ref::Kind::input, *argument.input});
      inputs.push_back(follower_.told().at(*argument.input));
    }
  std::vector<at::Tensor> placeholders;
  for (uint32_t number = 0; number < follower_.made().size(); ++number) {
    const auto& object = follower_.made()[number];
    if (object.is_computed) continue;
    if (auto placeholder = object.placeholder(); placeholder.defined()) {
      part.outputs.push_back({Trace::Ref::Kind::made, number});
      placeholders.push_back(std::move(placeholder));
    }
  }
  first_ = part.last;
  has_acted_ = true;
  const Suspended eager(*this);
  const c10::AutoGradMode grad_mode(start_.grad_mode);
  const auto results = compute_(part, inputs);
  held_.clear();
  fill_placeholders(placeholders, results);
  for (const auto& ref : part.outputs) follower_.note_computed(ref.number);
}

/// What is not computed yet, as eager code does it.
void SplitRun::make_up() {
  end();
  const size_t first = std::exchange(first_, follower_.calls());
  if (first == first_) return;
  has_acted_ = true;
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  c10::impl::_force_tls_local_dispatch_key_set(state_.keys());
  std::vector<at::Tensor> made(follower_.made().size());
  for (const auto& [number, tensor] : held_) made[number] = tensor;
  TraceRun(follower_.trace(), follower_.inputs_now(), std::move(made))
      .run(first, first_, [&](uint32_t number, at::Tensor result) {
        auto placeholder = follower_.made()[number].placeholder();
        if (!placeholder.defined()) return result;
        fill_placeholders({placeholder}, {result});
        follower_.note_computed(number);
        return placeholder;
      });
  held_.clear();
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

void SplitRun::leave_traces() {
  make_up();
  no_more_past_autograd();
  inputs_ = follower_.inputs_now();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].defined()) numbers_.try_emplace(inputs_[i].unsafeGetTensorImpl(), i);
  std::vector<at::Tensor> made;
  made.reserve(follower_.made().size());
  for (const auto& object : follower_.made()) made.push_back(object.lock());
  begin_writing(std::make_unique<TraceWriter>([this](const at::Tensor& tensor) { return input_of(tensor); },
                                              follower_.trace(), follower_.calls(), made));
}

void SplitRun::begin_writing(std::unique_ptr<TraceWriter> writer) {
  auto watched = modules_();
  watched.insert(watched.end(), inputs_.begin(), inputs_.begin() + static_cast<int64_t>(arguments_));
  effects_.emplace(std::move(watched), start_);
  draws_.add(start_.generator);
  for (size_t i = 0; i < arguments_; ++i) pointers_.add(inputs_[i]);
  writer_ = std::move(writer);
  begin();
}

void SplitRun::write_down(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  const std::vector<c10::IValue> given(stack.end() - static_cast<int64_t>(schema.arguments().size()),
                                       stack.end());
  const auto generator = drawn_from(op, given);
  std::optional<DrawWatch::Place> place;
  if (generator) place = DrawWatch::now(*generator);
  if (place && (draws_.is_seeded(*place) || !draws_.drawn_here(*place).empty()))
    writer_->refuse("it draws from a random number generator that it seeds or sets back");
  call_below(op, keys, stack);
  if (place) draws_.note_draw(*place, /*again=*/false);
  if (computes_nothing(op, given)) return;
  const std::vector<c10::IValue> results(stack.end() - static_cast<int64_t>(schema.returns().size()),
                                         stack.end());
  writer_->add(op, given, results);
  for (const auto& value : results) each_tensor(value, [&](const at::Tensor& t) { pointers_.add(t); });
}

SplitRun::Outcome SplitRun::run(const Function& function, const std::vector<at::Tensor>& arguments) {
  Outcome outcome;
  try {
    if (count_of_traces_ > 0) {
      begin(/*from_the_first=*/true);
    } else {
      inputs_ = arguments;
      for (size_t i = 0; i < inputs_.size(); ++i) numbers_.try_emplace(inputs_[i].unsafeGetTensorImpl(), i);
      begin_writing(
          std::make_unique<TraceWriter>([this](const at::Tensor& tensor) { return input_of(tensor); }));
    }
    outcome.outputs = function(arguments);
    if (writer_) {
      if (const auto effect = effects_->found(); !effect.empty()) writer_->refuse("it " + effect);
      outcome.trace = writer_->finish(outcome.outputs);
      outcome.outside.assign(inputs_.begin() + static_cast<int64_t>(arguments_), inputs_.end());
    } else {
      compute();
    }
  } catch (const std::exception& error) {
    if (writer_) throw;
    if (is_about_a_placeholder(error.what()))
      outcome.refused = "the function reads elements of a tensor through a pointer";
    end();
    if (!outcome.refused.empty()) {
      if (!has_acted_) return outcome;
      throw Error("[compile] the function cannot be compiled in parts: " + outcome.refused +
                  ". Use split=false or backend=eager for it");
    }
    make_up();
    throw;
  }
  end();
  pointers_.clear();
  outcome.followed = count_of_traces_ > 0 ? follower_.current() : 0;
  return outcome;
}

}  // namespace graft
