#include "capture/split_run.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

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

/// Meanwhile calls are plain eager code.
class SplitRun::Suspended {
 public:
  explicit Suspended(SplitRun& run) : run_(run) { run_.stop(); }
  ~Suspended() { run_.follow(); }
  Suspended(const Suspended&) = delete;
  Suspended& operator=(const Suspended&) = delete;

 private:
  SplitRun& run_;
};

SplitRun::SplitRun(std::vector<TraceToFollow> traces, size_t arguments, Compute compute,
                   std::function<std::vector<at::Tensor>()> modules)
    : count_of_traces_(traces.size()),
      arguments_(arguments),
      compute_(std::move(compute)),
      follower_(std::move(traces)),
      modules_(std::move(modules)),
      inference_(c10::InferenceMode::is_enabled()) {}

SplitRun::~SplitRun() { stop(); }

void SplitRun::follow() {
  below_.emplace();
  begin();
}

void SplitRun::stop() {
  end();
  below_.reset();
}

std::optional<size_t> SplitRun::input_of(const at::Tensor& tensor) {
  const auto [known, is_new] = numbers_.try_emplace(tensor.unsafeGetTensorImpl(), inputs_.size());
  if (is_new) inputs_.push_back(tensor);
  return known->second;
}

void SplitRun::on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (writer_) return write_down(op, keys, *stack);
  if (torch::autograd::get_current_graph_task_id() >= 0)
    throw CannotBeReplayed("the function runs a backward pass");
  if (!follower_.is_next_here(op, *stack)) {
    if (calls_no_operator(op, keys, *stack)) return;
    if (!follower_.is_next(op, *stack)) {
      leave_traces();
      return op.callBoxed(stack);
    }
  }
  const auto& call = follower_.next();
  const bool then_pointer = call.pointer_after;
  // The code may look at such memory at once.
  const bool writes = writes_real_memory(op, *stack);
  hold(call);
  if (call.reads)
    read(op, *stack);
  else
    follower_.give_placeholders(*stack);
  if ((then_pointer || writes) && !writer_) compute();
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

void SplitRun::read(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  compute();
  const std::vector<c10::IValue> given(stack.end() - static_cast<int64_t>(op.schema().arguments().size()),
                                       stack.end());
  {
    const Suspended eager(*this);
    const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
    op.callBoxed(&stack);
  }
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
                              ? ref.number < arguments_
                              : ref.kind == Trace::Ref::Kind::made && held_.contains(ref.number);
    if (!is_given || std::ranges::find(part.inputs, ref) != part.inputs.end()) return;
    part.inputs.push_back(ref);
    inputs.push_back(ref.kind == Trace::Ref::Kind::input ? follower_.tensor(ref) : held_.at(ref.number));
  };
  for (size_t i = part.first; i < part.last; ++i)
    for (const auto& argument : follower_.trace().calls[i].arguments)
      for (const auto& ref : argument.tensors) take(ref);
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
  const size_t first = std::exchange(first_, follower_.calls());
  if (first == first_) return;
  has_acted_ = true;
  std::vector<at::Tensor> made(follower_.made().size());
  for (const auto& [number, tensor] : held_) made[number] = tensor;
  TraceRun(follower_.trace(), follower_.inputs(), std::move(made))
      .run(first, first_, [&](uint32_t number, at::Tensor result) {
        auto placeholder = follower_.made()[number].placeholder();
        if (!placeholder.defined()) return result;
        fill_placeholders({placeholder}, {result});
        follower_.note_computed(number);
        return placeholder;
      });
  held_.clear();
}

void SplitRun::leave_traces() {
  // Where such a mode ends, torch puts back the keys as they were when it began: without autograd's.
  if (c10::InferenceMode::is_enabled() != inference_)
    throw CannotBeReplayed("the function switches inference mode");
  stop();
  make_up();
  inputs_ = follower_.inputs();
  for (size_t i = 0; i < inputs_.size(); ++i) numbers_.try_emplace(inputs_[i].unsafeGetTensorImpl(), i);
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
  if (generator && draws_.is_seeded(*generator))
    writer_->refuse("it draws from a random number generator that it seeds");
  call_below(op, keys, stack);
  if (generator) draws_.note_draw(*generator);
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
      follow();
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
    if (dynamic_cast<const CannotBeReplayed*>(&error)) outcome.refused = error.what();
    if (is_about_a_placeholder(error.what()))
      outcome.refused = "the function reads elements of a tensor through a pointer";
    stop();
    if (!outcome.refused.empty()) {
      if (!has_acted_) return outcome;
      throw Error("[compile] the function cannot be compiled in parts: " + outcome.refused +
                  ". Use split=false or backend=eager for it");
    }
    make_up();
    throw;
  }
  stop();
  pointers_.clear();
  outcome.followed = count_of_traces_ > 0 ? follower_.current() : 0;
  return outcome;
}

}  // namespace graft
