#include "capture/trace.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/number_twin.h"
#include "capture/op_facts.h"

namespace graft {

using c10::IValue;

bool is_same_literal(const IValue& a, const IValue& b) {
  if (a.isInt() && b.isInt()) return a.toInt() == b.toInt();
  if (a.isDouble() && b.isDouble())  // NaN is NaN, and 0 is not -0
    return std::bit_cast<uint64_t>(a.toDouble()) == std::bit_cast<uint64_t>(b.toDouble());
  if (a.isNone() || b.isNone()) return a.isNone() && b.isNone();
  if (a.isList() && b.isList()) {
    const auto x = a.toListRef(), y = b.toListRef();
    return std::ranges::equal(x, y, is_same_literal);
  }
  if (a.isGenerator() && b.isGenerator()) return a.toGenerator() == b.toGenerator();
  return a.tagKind() == b.tagKind() && a == b;
}

bool is_same_kind_of_number(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type();
}

bool is_same_number(const at::Tensor& a, const at::Tensor& b) {
  return is_same_kind_of_number(a, b) &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.element_size()) == 0;
}

namespace {

bool is_same_argument(const Trace::Argument& a, const Trace::Argument& b) {
  if (a.kind != b.kind || a.tensors != b.tensors || a.input != b.input) return false;
  if (a.kind == Trace::Argument::Kind::number)
    return a.input ? is_same_kind_of_number(a.value.toTensor(), b.value.toTensor())
                   : is_same_number(a.value.toTensor(), b.value.toTensor());
  return a.kind != Trace::Argument::Kind::literal || is_same_literal(a.value, b.value);
}

bool has_same_flags(const Trace::Result& a, const Trace::Result& b) {
  return a.requires_grad == b.requires_grad;
}

/// What elements decide may be another.
bool has_same_shapes(const Trace::Result& a, const Trace::Result& b) {
  return a.kind == b.kind && a.sizes == b.sizes && a.strides == b.strides;
}

bool is_same_result(const Trace::Result& a, const Trace::Result& b) {
  return has_same_flags(a, b) && has_same_shapes(a, b);
}

bool is_same_call(const Trace::Call& a, const Trace::Call& b) {
  return is_same_call_but_results(a, b) && std::ranges::equal(a.results, b.results, has_same_flags) &&
         (!a.reads || std::ranges::equal(a.results, b.results, has_same_shapes));
}

}  // namespace

bool is_same_call_but_results(const Trace::Call& a, const Trace::Call& b) {
  return a.op == b.op && a.grad_mode == b.grad_mode &&
         std::ranges::equal(a.arguments, b.arguments, is_same_argument);
}

bool lies_as(const at::Tensor& tensor, const Trace::Result& result) {
  return tensor.sizes() == at::IntArrayRef(result.sizes) &&
         tensor.strides() == at::IntArrayRef(result.strides) && tensor.scalar_type() == result.dtype;
}

bool begin_alike(const Trace& a, const Trace& b, size_t calls) {
  return a.calls.size() >= calls && b.calls.size() >= calls &&
         std::equal(a.calls.begin(), a.calls.begin() + static_cast<int64_t>(calls), b.calls.begin(),
                    is_same_call);
}

bool is_same_trace(const Trace& a, const Trace& b) {
  return a.calls.size() == b.calls.size() && begin_alike(a, b, a.calls.size()) && a.outputs == b.outputs;
}

const at::Tensor& number_in(const Trace& trace, const Trace::NumberPlace& place) {
  return trace.calls[place.call].arguments[place.argument].value.toTensor();
}

namespace {

bool are_numbers_of_one_kind(const Trace::Call& call, const Trace::Argument& a, const Trace::Argument& b,
                             size_t place) {
  using Kind = Trace::Argument::Kind;
  if (a.kind == Kind::number && b.kind == Kind::number)
    return is_same_kind_of_number(a.value.toTensor(), b.value.toTensor());
  if (a.kind != Kind::literal || b.kind != Kind::literal) return false;
  const auto twin = number_twin(call.op);
  return twin && twin->argument == place &&
         ((a.value.isDouble() && b.value.isDouble()) || (a.value.isInt() && b.value.isInt()));
}

bool is_copy(const c10::OperatorHandle& op) {
  return op.schema().name() == "aten::_to_copy" || op.schema().name() == "aten::clone";
}

}  // namespace

std::optional<std::vector<Trace::NumberPlace>> differing_numbers(const Trace& a, const Trace& b) {
  if (a.calls.size() != b.calls.size() || a.outputs != b.outputs) return std::nullopt;
  std::vector<Trace::NumberPlace> places;
  for (size_t i = 0; i < a.calls.size(); ++i) {
    const auto &x = a.calls[i], &y = b.calls[i];
    if (!(x.op == y.op) || x.grad_mode != y.grad_mode || x.reads != y.reads ||
        x.arguments.size() != y.arguments.size() || !std::ranges::equal(x.results, y.results, is_same_result))
      return std::nullopt;
    for (size_t k = 0; k < x.arguments.size(); ++k) {
      const auto &p = x.arguments[k], &q = y.arguments[k];
      if (is_same_argument(p, q)) continue;
      if (!are_numbers_of_one_kind(x, p, q, k)) return std::nullopt;
      places.push_back({i, k});
    }
  }
  return places;
}

std::shared_ptr<const Trace> with_number_inputs(const Trace& trace,
                                                const std::vector<Trace::NumberPlace>& places,
                                                size_t inputs) {
  auto made = std::make_shared<Trace>(trace);
  for (const auto& place : places) {
    auto& call = made->calls[place.call];
    auto& argument = call.arguments[place.argument];
    if (argument.kind == Trace::Argument::Kind::literal) {
      call.spelled = call.op;
      call.op = number_twin(call.op)->op;
      argument = {Trace::Argument::Kind::number, number_tensor(argument.value.toScalar())};
    }
    argument.input = static_cast<uint32_t>(inputs++);
  }
  return made;
}

std::shared_ptr<const Trace> with_inputs_in_order(const Trace& trace, size_t arguments,
                                                  std::vector<size_t>& order) {
  auto made = std::make_shared<Trace>(trace);
  std::unordered_map<uint32_t, uint32_t> numbers;
  order.clear();
  const auto number = [&](uint32_t& input) {
    if (input < arguments) return;
    const auto [known, is_new] = numbers.try_emplace(input, static_cast<uint32_t>(arguments + order.size()));
    if (is_new) order.push_back(input);
    input = known->second;
  };
  const auto renumber = [&](Trace::Ref& ref) {
    if (ref.kind == Trace::Ref::Kind::input) number(ref.number);
  };
  for (auto& call : made->calls) {
    for (auto& argument : call.arguments) {
      std::ranges::for_each(argument.tensors, renumber);
      if (argument.input) number(*argument.input);
    }
    for (auto& result : call.results) renumber(result.of);
  }
  std::ranges::for_each(made->outputs, renumber);
  return made;
}

bool uses_inputs(const Trace& trace, size_t first, size_t last, const std::vector<size_t>& inputs) {
  const auto is_one = [&](const Trace::Ref& ref) {
    return ref.kind == Trace::Ref::Kind::input && std::ranges::find(inputs, ref.number) != inputs.end();
  };
  return std::any_of(
      trace.calls.begin() + static_cast<int64_t>(first), trace.calls.begin() + static_cast<int64_t>(last),
      [&](const Trace::Call& call) {
        return std::ranges::any_of(call.arguments, [&](const Trace::Argument& argument) {
          return std::ranges::any_of(argument.tensors, is_one) ||
                 (argument.input && std::ranges::find(inputs, *argument.input) != inputs.end());
        });
      });
}

bool copies_to_read(const Trace& trace) {
  return std::ranges::any_of(trace.calls, [](const Trace::Call& call) {
    return call.pointer_after && !call.kept && is_copy(call.op);
  });
}

void TraceWriter::refuse(const std::string& reason) {
  if (trace_->refused.empty()) trace_->refused = reason;
}

TraceWriter::Known* TraceWriter::find(const at::Tensor& tensor) {
  const auto found = known_.find(tensor.unsafeGetTensorImpl());
  return found == known_.end() || found->second.alive.expired() ? nullptr : &found->second;
}

/// What a tensor is when a call is given it says what it became by the call that made or changed it.
void TraceWriter::see_flags(Known& known, const at::Tensor& tensor) {
  auto& call = trace_->calls[known.call];
  auto& result = call.results[known.result];
  if (std::exchange(known.seen, true)) {
    if (result.requires_grad != tensor.requires_grad())
      refuse("the function asks for the gradient of a tensor that it has used before");
    return;
  }
  result.requires_grad = tensor.requires_grad();
  if (marks_of({tensor}) > 0) {
    trace_->has_hooks = true;
    refuse("the function puts a hook on a tensor, or has it keep its gradient");
  }
  // One that was made without a history, and has one. (A write without gradients leaves that as it is.)
  const auto [made_by, as] = shapes_[known.number];
  if (history_of(tensor) && !trace_->calls[made_by].grad_mode)
    refuse("the function has an autograd function of its own");
}

Trace::Ref TraceWriter::ref_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (auto* known = find(tensor)) {
    if (known->storage != storage_of(tensor)) refuse("the function gives a tensor other memory (set_data())");
    see_flags(*known, tensor);
    return {Trace::Ref::Kind::made, known->number};
  }
  const auto storage = storages_.find(storage_of(tensor));
  const bool is_made_here = storage != storages_.end() && !storage->second.expired();
  if (const auto input = is_made_here ? std::nullopt : input_of_(tensor))
    return {Trace::Ref::Kind::input, static_cast<uint32_t>(*input)};
  refuse("the function makes a tensor without the dispatcher (data())");
  return {};
}

Trace::Argument TraceWriter::argument_of(const IValue& value) {
  using Kind = Trace::Argument::Kind;
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (is_number(tensor)) {
      Trace::Argument number{Kind::number, tensor};
      if (const auto known = number_inputs_.find(tensor.unsafeGetTensorImpl()); known != number_inputs_.end())
        number.input = known->second;
      return number;
    }
    return {Kind::tensor, {}, {ref_of(tensor)}};
  }
  if (!value.isTensorList() && !value.isOptionalTensorList()) return {Kind::literal, value};
  Trace::Argument list{Kind::tensors};
  for (const IValue& item : value.toListRef())
    list.tensors.push_back(item.isNone() ? Trace::Ref() : ref_of(item.toTensor()));
  return list;
}

Trace::Result TraceWriter::made(const at::Tensor& tensor, const std::vector<at::Tensor>& given) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_conj() || tensor.is_neg() ||
      tensor._is_zerotensor() || !tensor.has_storage() || tensor.unsafeGetTensorImpl()->is_wrapped_number())
    refuse("the function makes tensors of an unusual kind");
  Trace::Result result{.kind = Trace::Result::Kind::made,
                       .number = trace_->made++,
                       .dtype = tensor.scalar_type(),
                       .device = tensor.device(),
                       .sizes = tensor.sizes().vec(),
                       .strides = tensor.strides().vec(),
                       .offset = tensor.storage_offset()};
  const auto* storage = storage_of(tensor);
  if (!storage) return result;
  result.bytes = storage->nbytes();
  for (const auto& other : given)
    if (storage_of(other) == storage) {
      result.of = ref_of(other);
      result.offset -= other.storage_offset();
      break;
    }
  return result;
}

Trace::Result TraceWriter::result_of(const IValue& value, const std::vector<at::Tensor>& given) {
  if (!value.isTensor()) return {.kind = Trace::Result::Kind::literal, .value = value};
  const auto& tensor = value.toTensor();
  if (!tensor.defined()) return {};
  const bool is_given = std::ranges::any_of(given, [&](const at::Tensor& t) { return t.is_same(tensor); });
  if (!is_given) return made(tensor, given);
  return {.kind = Trace::Result::Kind::given, .of = ref_of(tensor)};
}

void TraceWriter::add(const c10::OperatorHandle& op, const std::vector<IValue>& arguments,
                      const std::vector<IValue>& results) {
  if (!trace_->refused.empty()) return;
  if (c10::InferenceMode::is_enabled() != inference_) refuse("the function switches inference mode");
  if (torch::autograd::get_current_graph_task_id() >= 0) refuse("the function runs a backward pass");
  if (op.hasTag(at::Tag::inplace_view)) refuse("the function changes the sizes of a tensor in place");
  Trace::Call call{.op = op, .grad_mode = c10::GradMode::is_enabled()};
  if (const auto spelling = std::exchange(spelling_, std::nullopt); spelling && spelling->first == op)
    call.spelled = spelling->second;
  call.reads = reads_on_host(op) || shape_depends_on_data(op, arguments);
  std::vector<at::Tensor> given;
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = arguments[i];
    call.arguments.push_back(argument_of(value));
    if (declared[i].alias_info() && declared[i].alias_info()->isWrite())
      each_tensor(value, [&](const at::Tensor& t) {
        const auto storage = storages_.find(storage_of(t));
        trace_->writes_inputs |= storage == storages_.end() || storage->second.expired();
      });
    each_tensor(value, [&](const at::Tensor& t) { given.push_back(t); });
  }
  std::vector<at::Tensor> objects;  // by result; undefined where it is none
  const auto take = [&](const IValue& value) {
    call.results.push_back(result_of(value, given));
    objects.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    if (objects.back().defined()) given.push_back(objects.back());
  };
  for (const auto& value : results) {
    call.lists.push_back(value.isTensorList() ? static_cast<int64_t>(value.toListRef().size()) : -1);
    if (value.isTensorList())
      for (const IValue& item : value.toListRef()) take(item);
    else
      take(value);
  }
  trace_->calls.push_back(std::move(call));
  const size_t number = trace_->calls.size() - 1;
  for (size_t i = 0; i < objects.size(); ++i) {
    const auto& result = trace_->calls.back().results[i];
    if (result.kind == Trace::Result::Kind::made) {
      if (result.of.kind == Trace::Ref::Kind::undefined && storage_of(objects[i])) {
        storages_.insert_or_assign(storage_of(objects[i]), objects[i].storage().getWeakStorageImpl());
        if (is_copy(op)) copies_.emplace_back(number, objects[i].storage().getWeakStorageImpl());
      }
      enter(objects[i], result.number, number, i);
      shapes_.emplace_back(number, i);
    } else if (auto* known = result.kind == Trace::Result::Kind::given ? find(objects[i]) : nullptr) {
      const auto [of_call, of_result] = shapes_[known->number];
      if (!lies_as(objects[i], trace_->calls[of_call].results[of_result]))
        refuse("the function changes the sizes of a tensor in place");
      known->call = number;
      known->result = i;
      known->seen = false;
    }
  }
}

void TraceWriter::enter(const at::Tensor& tensor, uint32_t number, size_t call, size_t result) {
  known_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                          Known{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), number,
                                call, result, storage_of(tensor)});
}

TraceWriter::TraceWriter(InputOf input_of, const Trace& beginning, size_t calls,
                         const std::vector<at::Tensor>& made)
    : input_of_(std::move(input_of)) {
  trace_->calls.assign(beginning.calls.begin(), beginning.calls.begin() + static_cast<int64_t>(calls));
  for (size_t i = 0; i < calls; ++i)
    for (size_t k = 0; k < trace_->calls[i].results.size(); ++k) {
      const auto& result = trace_->calls[i].results[k];
      if (result.kind != Trace::Result::Kind::made) continue;
      trace_->made = result.number + 1;
      shapes_.emplace_back(i, k);
      const auto& tensor = made[result.number];
      if (!tensor.defined()) continue;
      enter(tensor, result.number, i, k);
      known_.at(tensor.unsafeGetTensorImpl()).seen = true;
      if (result.of.kind == Trace::Ref::Kind::undefined)
        storages_.insert_or_assign(storage_of(tensor), tensor.storage().getWeakStorageImpl());
    }
}

/// What no call reads and nobody is given was read by the code itself, through a pointer that torch does not
/// tell of (so tensors are printed).
void TraceWriter::find_reads() {
  std::vector<bool> is_used(trace_->made);
  const auto use = [&](const Trace::Ref& ref) {
    if (ref.kind == Trace::Ref::Kind::made) is_used[ref.number] = true;
  };
  for (const auto& call : trace_->calls)
    for (const auto& argument : call.arguments) std::ranges::for_each(argument.tensors, use);
  std::ranges::for_each(trace_->outputs, use);
  for (const auto& [call, memory] : copies_) trace_->calls[call].kept = !memory.expired();
  for (auto& call : trace_->calls) {
    const bool makes = std::ranges::any_of(
        call.results, [](const Trace::Result& result) { return result.kind == Trace::Result::Kind::made; });
    const bool is_read = std::ranges::none_of(call.results, [&](const Trace::Result& result) {
      return result.kind == Trace::Result::Kind::made && is_used[result.number];
    });
    if (makes && is_read && !call.op.schema().is_mutable()) call.pointer_after = true;
  }
}

std::shared_ptr<const Trace> TraceWriter::finish(const std::vector<at::Tensor>& outputs) {
  for (const auto& output : outputs) trace_->outputs.push_back(ref_of(output));
  find_reads();
  return std::move(trace_);
}

}  // namespace graft
