// Calls that write to memory, as a recorder takes them down: by their twins, which give the new values.
#include <algorithm>

#include "capture/ivalue.h"
#include "capture/op_facts.h"
#include "capture/recorded_call.h"
#include "capture/recorder.h"
#include "graft/error.h"
#include "ir/op_traits.h"

namespace graft {

bool Recorder::may_write(const at::Tensor& tensor, const c10::OperatorHandle& op) {
  const auto place = memory_.find(tensor);
  if (!place) {
    break_at(op, "changes a tensor that is neither an argument, nor in the module, nor made by the function");
    return false;
  }
  if (!place->region->input) return true;
  auto& mine = inputs_[*place->region->input];
  for (const auto& other : memory_.regions_of(tensor))
    if (other != place->region && overlap(*other, *place->region)) {
      break_at(op, "changes " + graph_.input_name(*place->region->input) +
                       ", whose memory the function also reaches as " + graph_.input_name(*other->input));
      return false;
    }
  if (!mine.before.defined()) {
    const UnrecordedCalls aside;
    mine.before = copy_as_it_lies(mine.tensor());
  }
  return true;
}

/// A call that writes, as it goes into the graph.
struct Recorder::Write {
  std::vector<at::Tensor> mutated;          // in the order of the twin's last results
  std::vector<std::vector<int64_t>> sizes;  // of these, before the call
  std::vector<at::Tensor> fresh;
  std::vector<ir::TensorType> types;  // of the twin's results
};

/// Whether what it gives depends on the order in which it goes over the elements: it reads some that it
/// writes, in places of others. One that goes element by element may read what lies just where it writes.
bool Recorder::reads_what_it_writes(const Call& call, const FunctionalForm& form, const Write& write) {
  const UnrecordedCalls aside;
  const bool by_element = ir::kind_of(name_of(form.op)) == ir::OpKind::pointwise;
  bool found = false;
  for (size_t i = 0; i < call.given.size(); ++i) {
    const bool is_written = std::ranges::find(form.mutated, i) != form.mutated.end();
    each_tensor(call.given[i], [&](const at::Tensor& read) {
      for (const auto& written : write.mutated)
        found |=
            !((by_element || is_written) && lies_alike(read, written)) && have_common_elements(read, written);
    });
  }
  return found;
}

/// Runs the call, and where the twin's results may be of another dtype or layout than what is written to, the
/// twin before it.
void Recorder::run_write(Call& call, const FunctionalForm& form, Write& write) {
  const auto dtype = write.mutated.empty() ? at::kFloat : write.mutated[0].scalar_type();
  bool alike = at::isFloatingType(dtype) && form.fresh == 0;
  for (const auto& value : call.given)
    each_tensor(value, [&](const at::Tensor& t) {
      alike &= t.scalar_type() == dtype || t.unsafeGetTensorImpl()->is_wrapped_number() ||
               (t.dim() == 0 && t.is_floating_point() && write.mutated[0].dim() > 0) ||
               !t.is_floating_point();
    });
  if (overwrites(call.op) || (alike && keeps_dtype(call.op))) {
    call.pass();
    for (const auto& t : write.mutated) {
      auto type = type_of(t);
      // Random numbers come in the order in which they lie in memory.
      if (!draws_numbers(call.op) && !type.is_dense()) type.strides = ir::contiguous_strides(type.sizes);
      write.types.push_back(std::move(type));
    }
    return;
  }
  std::optional<std::vector<at::Tensor>> twins;
  try {
    torch::jit::Stack stack;
    for (size_t i = 0; i < call.given.size(); ++i)
      if (!call.op.schema().arguments()[i].is_out()) stack.push_back(call.given[i]);
    call.run(form.op, stack);
    twins = Call::results(stack, stack.size());
  } catch (const c10::Error&) {
    twins.reset();  // then the call itself fails, too, or torch knows more of it than of its twin
  }
  call.pass();
  const size_t changed = write.mutated.size();
  bool fits = twins && twins->size() >= changed;
  const size_t fresh = fits ? twins->size() - changed : 0;
  for (size_t i = 0; fits && i < changed; ++i) fits = (*twins)[fresh + i].sizes() == write.mutated[i].sizes();
  if (!fits) return break_at(call.op, "writes to a tensor in a way that no graph can hold");
  for (const auto& t : *twins) write.types.push_back(type_or_none(t));
  const auto& schema = call.op.schema();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const auto& result = call.stack->at(call.stack->size() - schema.returns().size() + i);
    if (!schema.returns()[i].alias_info())
      each_tensor(result, [&](const at::Tensor& t) { write.fresh.push_back(t); });
  }
  if (write.fresh.size() != fresh) break_at(call.op, "gives other results than its twin without writes");
}

void Recorder::refuse_effects(const Call& call) const {
  if (effects_) return;
  const auto refuse = [&](const char* what) { throw Error(name_of(call.op) + " " + what); };
  if (draws_numbers(call.op, call.given) && draw_.before.empty()) refuse("draws random numbers");
  const auto& arguments = call.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
    each_tensor(call.given[i], [&](const at::Tensor& t) {
      const auto place = memory_.find(t);
      if (!place ? !is_over_memory_made_here(t) : place->region->input.has_value())
        refuse("changes a tensor that is not its own");
    });
  }
}

void Recorder::record_write(Call& call) {
  if (call.op.hasTag(at::Tag::inplace_view)) return record_new_sizes(call);
  const auto form = functional_form(call.op);
  if (!form) {
    break_at(call.op, "changes its arguments, and torch has no operator that gives their new values");
    return call.pass();
  }
  if (form->fresh > 0 && draws_numbers(call.op)) {
    break_at(call.op, "gives a result and writes random numbers into an argument");
    return call.pass();
  }
  auto arguments = arguments_of(call, form->op);
  Write write;
  for (const size_t i : form->mutated)
    each_tensor(call.given[i], [&](const at::Tensor& t) {
      if (reason_.empty()) use(t, call.op, false);
      write.mutated.push_back(t);
      write.sizes.push_back(t.sizes().vec());
    });
  for (const auto& t : write.mutated)
    if (!reason_.empty() || !may_write(t, call.op)) return call.pass();
  if (reads_what_it_writes(call, *form, write)) {
    break_at(call.op, "reads elements that it overwrites in places of others");
    return call.pass();
  }
  if (!arguments) return call.pass();
  run_write(call, *form, write);
  if (!reason_.empty()) return;
  auto& node = draw_.place ? drawing_node(call, form->op, std::move(*arguments), std::move(write.types))
                           : add_node(form->op, std::move(*arguments), std::move(write.types));
  for (size_t i = 0; i < write.fresh.size(); ++i) enter_result(call, write.fresh[i], node.output(i));
  for (size_t i = 0; i < write.mutated.size(); ++i) {
    auto& value = node.output(write.fresh.size() + i);
    const auto place = memory_.find(write.mutated[i]);
    if (write.mutated[i].sizes() != at::IntArrayRef(write.sizes[i]))
      enter_resized(call, write.mutated[i], value);
    else if (!place)
      break_at(call.op, "changes the memory of a tensor");
    else if (!memory_.write(*place, value))
      break_at(call.op, "writes through a view that no graph can hold");
    if (!reason_.empty()) return;
  }
}

/// An operator with an argument to write to gives that the sizes of its result: as good as a new tensor.
void Recorder::enter_resized(const Call& call, const at::Tensor& tensor, ir::Value& value) {
  const auto regions = memory_.regions_of(tensor);
  const bool had_elements = std::any_of(regions.begin(), regions.end(),
                                        [](const auto& region) { return region->type.numel() > 0; });
  if (had_elements || input_of(tensor) || tensor.strides() != at::IntArrayRef(value.type().strides) ||
      tensor.scalar_type() != to_torch(value.type().dtype))
    return break_at(call.op, "changes the sizes of a tensor that it writes to");
  memory_.enter(tensor, value);
}

/// transpose_ and its like: the tensor object becomes a view of what it was.
void Recorder::record_new_sizes(Call& call) {
  const auto self = call.given[0].isTensor() ? call.given[0].toTensor() : at::Tensor();
  const auto form = functional_form(call.op);
  const auto place = self.defined() ? memory_.find(self) : std::nullopt;
  const auto* storage = storage_of(self);
  if (!form || !place || input_of(self)) {
    break_at(call.op, "changes the sizes or the memory of a tensor");
    return call.pass();
  }
  auto arguments = arguments_of(call, form->op);
  call.pass();
  if (!arguments) return;
  if (storage_of(self) != storage) return break_at(call.op, "changes the memory of a tensor");
  auto& node = add_node(form->op, std::move(*arguments), {type_of(self)});
  memory_.enter_view(self, *place, node.output());
}

}  // namespace graft
