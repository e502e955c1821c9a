#include "capture/trace_run.h"

#include <ATen/core/List.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace graft {
namespace {

using Kind = Trace::Argument::Kind;

bool takes_optional_tensors(const c10::Argument& declared) {
  const auto list = declared.type()->cast<c10::ListType>();
  return list && list->getElementType()->kind() == c10::TypeKind::OptionalType;
}

}  // namespace

TraceRun::TraceRun(const Trace& trace, std::vector<at::Tensor> inputs, std::vector<at::Tensor> made)
    : trace_(trace), inputs_(std::move(inputs)), made_(std::move(made)) {
  made_.resize(trace.made);
}

const at::Tensor& TraceRun::tensor(const Trace::Ref& ref) const {
  static const at::Tensor none;
  if (ref.kind == Trace::Ref::Kind::undefined) return none;
  return ref.kind == Trace::Ref::Kind::input ? inputs_[ref.number] : made_[ref.number];
}

torch::jit::Stack TraceRun::arguments_of(const Trace::Call& call) const {
  torch::jit::Stack stack;
  stack.reserve(call.arguments.size());
  const auto& declared = call.op.schema().arguments();
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const auto& argument = call.arguments[i];
    if (argument.kind == Kind::tensor) {
      stack.emplace_back(tensor(argument.tensors[0]));
    } else if (argument.input) {
      stack.emplace_back(inputs_[*argument.input]);
    } else if (argument.kind != Kind::tensors) {
      stack.push_back(argument.value);
    } else if (takes_optional_tensors(declared[i])) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& ref : argument.tensors)
        list.push_back(ref.kind == Trace::Ref::Kind::undefined ? std::nullopt : std::optional(tensor(ref)));
      stack.emplace_back(std::move(list));
    } else {
      c10::List<at::Tensor> list;
      for (const auto& ref : argument.tensors) list.push_back(tensor(ref));
      stack.emplace_back(std::move(list));
    }
  }
  return stack;
}

void TraceRun::run(size_t first, size_t last, const Made& made) {
  // The calls of a trace are what autocast has made of the code's.
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  for (size_t i = first; i < last; ++i) {
    const auto& call = trace_.calls[i];
    auto stack = arguments_of(call);
    {
      const c10::AutoGradMode grad_mode(call.grad_mode);
      call.op.callBoxed(&stack);
    }
    std::vector<at::Tensor> results;
    results.reserve(call.results.size());
    for (const auto& value : stack)
      if (value.isTensorList())
        for (const at::Tensor& t : value.toTensorVector()) results.push_back(t);
      else
        results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    stack.clear();
    for (size_t k = 0; k < call.results.size(); ++k) {
      const auto& result = call.results[k];
      if (result.kind != Trace::Result::Kind::made) continue;
      made_[result.number] = made ? made(result.number, std::move(results[k])) : std::move(results[k]);
    }
  }
}

}  // namespace graft
