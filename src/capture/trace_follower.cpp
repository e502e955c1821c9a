#include "capture/trace_follower.h"

#include <ATen/core/List.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "capture/call_watcher.h"
#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/number_twin.h"
#include "capture/placeholder.h"
#include "capture/trace_run.h"

namespace graft {

using c10::IValue;

bool TraceFollower::is(const Trace::Ref& ref, const at::Tensor& tensor, bool grad_mode) const {
  const auto* impl = tensor.unsafeGetTensorImpl();
  switch (ref.kind) {
    case Trace::Ref::Kind::undefined:
      return !tensor.defined();
    case Trace::Ref::Kind::input:
      return is_input(ref.number, tensor);
    default:
      // The code may have given a tensor object other memory (set_data()).
      return impl == made_[ref.number].tensor._unsafe_get_target() &&
             storage_of(tensor) == made_[ref.number].storage &&
             has_same_flags(made_[ref.number], tensor, grad_mode);
  }
}

bool TraceFollower::is_input(uint32_t input, const at::Tensor& tensor) const {
  if (inputs()[input].defined()) return inputs()[input].is_same(tensor);
  if (const auto told = told_.find(input); told != told_.end()) return told->second.is_same(tensor);
  const auto& may_be = traces_[current_].may_be;
  return may_be && tensor.defined() && !is_known(tensor) && may_be(input, tensor);
}

/// Whether it is an input, or what a call gave: the trace would say so.
bool TraceFollower::is_known(const at::Tensor& tensor) const {
  return std::ranges::any_of(inputs(), [&](const at::Tensor& input) { return input.is_same(tensor); }) ||
         std::ranges::any_of(told_, [&](const auto& told) { return told.second.is_same(tensor); }) ||
         std::ranges::any_of(made_, [&](const Object& object) {
           return object.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl() &&
                  !object.tensor.expired();
         });
}

/// Code can ask for a gradient, or put hooks on a tensor, without calling an operator. To a call in a scope
/// without gradients it is all one whether its arguments want any.
bool TraceFollower::has_same_flags(const Object& object, const at::Tensor& tensor, bool grad_mode) const {
  return (!grad_mode || tensor.requires_grad() == at(object.shown).requires_grad) && marks_of({tensor}) == 0;
}

bool TraceFollower::matches(const Trace::Argument& argument, const IValue& value, bool grad_mode) const {
  switch (argument.kind) {
    case Trace::Argument::Kind::literal:
      return !value.isTensor() && is_same_literal(argument.value, value);
    case Trace::Argument::Kind::number:
      if (argument.input && is_number_like(value, argument.value.toTensor())) return true;
      return value.isTensor() && value.toTensor().defined() &&
             value.toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
             (argument.input ? is_same_kind_of_number(argument.value.toTensor(), value.toTensor())
                             : is_same_number(argument.value.toTensor(), value.toTensor()));
    case Trace::Argument::Kind::tensor:
      return value.isTensor() && is(argument.tensors[0], value.toTensor(), grad_mode);
    default:
      if (!value.isTensorList() && !value.isOptionalTensorList()) return false;
      return std::ranges::equal(argument.tensors, value.toListRef(),
                                [&](const Trace::Ref& ref, const IValue& item) {
                                  return is(ref, item.isNone() ? at::Tensor() : item.toTensor(), grad_mode);
                                });
  }
}

bool TraceFollower::is_next_here(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
  if (next_ == trace().calls.size()) return false;
  const auto& call = next();
  if (!(call.op == op || call.spelled == op) || call.grad_mode != c10::GradMode::is_enabled()) return false;
  return std::equal(call.arguments.begin(), call.arguments.end(),
                    stack.end() - static_cast<int64_t>(call.arguments.size()),
                    [&](const Trace::Argument& argument, const IValue& value) {
                      return matches(argument, value, call.grad_mode);
                    }) &&
         tells_one_thing(stack);
}

namespace {

/// Each input among the next call's arguments, with the tensor that is given for it.
template <class See>
void each_input(const Trace::Call& call, const torch::jit::Stack& stack, const See& see) {
  const auto see_tensor = [&](const Trace::Ref& ref, const IValue& value) {
    if (ref.kind == Trace::Ref::Kind::input) see(ref.number, value.toTensor());
  };
  auto value = stack.end() - static_cast<int64_t>(call.arguments.size());
  for (const auto& argument : call.arguments) {
    if (argument.kind == Trace::Argument::Kind::tensor) see_tensor(argument.tensors[0], *value);
    if (argument.kind == Trace::Argument::Kind::tensors)
      for (size_t i = 0; i < argument.tensors.size(); ++i)
        see_tensor(argument.tensors[i], value->toListRef()[i]);
    ++value;
  }
}

}  // namespace

/// Where one call is given the same new input twice, it is one tensor, and two are two.
bool TraceFollower::tells_one_thing(const torch::jit::Stack& stack) const {
  if (!traces_[current_].may_be) return true;
  std::map<uint32_t, const c10::TensorImpl*> now;
  bool is_so = true;
  each_input(next(), stack, [&](uint32_t input, const at::Tensor& tensor) {
    if (inputs()[input].defined() || told_.contains(input)) return;
    const auto* impl = tensor.unsafeGetTensorImpl();
    is_so &= now.try_emplace(input, impl).first->second == impl &&
             std::ranges::none_of(
                 now, [&](const auto& other) { return other.first != input && other.second == impl; });
  });
  return is_so;
}

void TraceFollower::note_inputs(const torch::jit::Stack& stack) {
  const auto& call = next();
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (const auto input = call.arguments[i].input) {
      const auto& value = stack[stack.size() - call.arguments.size() + i];
      told_.insert_or_assign(*input, value.isTensor() ? value.toTensor() : number_tensor(value.toScalar()));
    }
  if (traces_[current_].may_be)
    each_input(call, stack, [&](uint32_t input, const at::Tensor& tensor) {
      if (!inputs()[input].defined()) told_.try_emplace(input, tensor);
    });
}

bool TraceFollower::is_next(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto fits = [&] { return is_next_here(op, stack); };
  return fits() || turn(fits);
}

bool TraceFollower::has_same_inputs(const TraceToFollow& other) const {
  const auto same = [&](const Trace::Ref& ref) {
    if (ref.kind != Trace::Ref::Kind::input) return true;
    if (ref.number >= other.inputs->size()) return false;
    const auto mine = tensor(ref);
    const auto& theirs = (*other.inputs)[ref.number];
    return theirs.defined() ? theirs.is_same(mine) : other.may_be && other.may_be(ref.number, mine);
  };
  for (size_t i = 0; i < next_; ++i)
    for (const auto& argument : trace().calls[i].arguments)
      if (!std::ranges::all_of(argument.tensors, same)) return false;
  return true;
}

bool TraceFollower::turn(const std::function<bool()>& fits) {
  const size_t before = current_;
  for (size_t i = 0; i < traces_.size(); ++i) {
    if (i == before || !begin_alike(*traces_[i].trace, *traces_[before].trace, next_) ||
        !has_same_inputs(traces_[i]))
      continue;
    current_ = i;
    if (fits()) return true;
    current_ = before;
  }
  return false;
}

at::Tensor TraceFollower::tensor(const Trace::Ref& ref) const {
  if (ref.kind == Trace::Ref::Kind::undefined) return {};
  if (ref.kind == Trace::Ref::Kind::made) return made_[ref.number].lock();
  const auto told = told_.find(ref.number);
  return told == told_.end() ? inputs()[ref.number] : told->second;
}

void TraceFollower::enter(const at::Tensor& tensor, size_t result, bool is_computed) {
  const bool owns_memory =
      next().results[result].of.kind == Trace::Ref::Kind::undefined && storage_of(tensor) && !is_computed;
  made_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                   storage_of(tensor),
                   owns_memory
                       ? tensor.storage().getWeakStorageImpl()
                       : c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>()),
                   {next_, result},
                   {next_, result},
                   is_computed});
}

at::Tensor TraceFollower::Object::placeholder() const {
  auto found = lock();
  return found.defined() && storage_of(found) == storage ? found : at::Tensor();
}

void TraceFollower::note_computed(uint32_t number) {
  made_[number].is_computed = true;
  made_[number].storage = storage_of(made_[number].lock());
}

void TraceFollower::give_placeholders(torch::jit::Stack& stack) {
  note_inputs(stack);
  const auto& call = next();
  std::vector<IValue> values;
  values.reserve(call.results.size());
  for (size_t i = 0; i < call.results.size(); ++i) {
    const auto& result = call.results[i];
    switch (result.kind) {
      case Trace::Result::Kind::undefined:
        values.emplace_back(at::Tensor());
        break;
      case Trace::Result::Kind::literal:
        values.push_back(result.value);
        break;
      case Trace::Result::Kind::given: {
        auto given = tensor(result.of);
        if (result.of.kind == Trace::Ref::Kind::made) {
          made_[result.of.number].shown = {next_, i};
          if (flags_ == Flags::by_trace && !made_[result.of.number].is_computed &&
              given.requires_grad() != result.requires_grad)
            given.set_requires_grad(result.requires_grad);
        }
        values.emplace_back(std::move(given));
        break;
      }
      case Trace::Result::Kind::made: {
        auto placeholder = make_placeholder(result, tensor(result.of));
        if (flags_ == Flags::by_trace && result.requires_grad) placeholder.set_requires_grad(true);
        enter(placeholder, i, /*is_computed=*/false);
        values.emplace_back(std::move(placeholder));
        break;
      }
    }
  }
  torch::jit::drop(stack, call.arguments.size());
  size_t at = 0;
  for (const auto length : call.lists) {
    if (length < 0) {
      stack.push_back(std::move(values[at++]));
      continue;
    }
    c10::List<at::Tensor> list;
    for (int64_t i = 0; i < length; ++i) list.push_back(values[at++].toTensor());
    stack.emplace_back(std::move(list));
  }
  ++next_;
}

bool TraceFollower::take_results(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> results;  // undefined where it is not a tensor
  for (auto value = stack.end() - static_cast<int64_t>(next().lists.size()); value != stack.end(); ++value)
    if (value->isTensorList())
      for (const at::Tensor& t : value->toTensorVector()) results.push_back(t);
    else
      results.push_back(value->isTensor() ? value->toTensor() : at::Tensor());
  const size_t here = next_;
  const auto fits = [&] {
    const auto& call = trace().calls[here];
    return call.results.size() == results.size() &&
           std::ranges::equal(call.results, results, [](const Trace::Result& result, const at::Tensor& t) {
             return result.kind != Trace::Result::Kind::made || (t.defined() && lies_as(t, result));
           });
  };
  const auto call = next();
  const auto is_this_call = [&] {
    return here < trace().calls.size() && is_same_call_but_results(call, trace().calls[here]) && fits();
  };
  if (!fits() && !turn(is_this_call)) return false;
  for (size_t i = 0; i < results.size(); ++i)
    if (next().results[i].kind == Trace::Result::Kind::made) enter(results[i], i, /*is_computed=*/true);
  ++next_;
  return true;
}

/// What was made, lying as its placeholder does.
at::Tensor TraceFollower::as_placeholder(uint32_t number, at::Tensor made) const {
  const auto& object = made_[number];
  const auto& result = at(object.made);
  const auto memory = object.memory.lock();
  if (!memory) return made;
  if (lies_as(made, result) && made.storage_offset() == result.offset &&
      made.storage().nbytes() >= memory->nbytes()) {
    lend_elements(*memory, made);
    return made;
  }
  const auto elements = static_cast<int64_t>(memory->nbytes() / made.element_size());
  auto laid = at::empty({elements}, made.options()).as_strided(result.sizes, result.strides, result.offset);
  laid.copy_(made);
  lend_elements(*memory, laid);
  return laid;
}

std::vector<at::Tensor> TraceFollower::inputs_now() const {
  auto given = inputs();
  for (const auto& [input, tensor] : told_) given[input] = tensor;
  return given;
}

void TraceFollower::compute_elements() {
  const UnrecordedCalls plain;
  TraceRun(trace(), inputs_now()).run(0, next_, [&](uint32_t number, at::Tensor made) {
    return as_placeholder(number, std::move(made));
  });
}

bool TraceFollower::ends(const std::vector<at::Tensor>& outputs) {
  const auto fits = [&] {
    return next_ == trace().calls.size() &&
           std::ranges::equal(trace().outputs, outputs, [&](const Trace::Ref& ref, const at::Tensor& t) {
             return is(ref, t, /*grad_mode=*/true);
           });
  };
  return fits() || turn(fits);
}

}  // namespace graft
