#include "capture/recorder.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Backtrace.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/library.h>

#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/op_facts.h"
#include "graft/error.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

// Free in programs without Python: it is where the C++ fake tensors of a Python process would be.
constexpr DispatchKey record_key = DispatchKey::Fake;

thread_local Recorder* recorder = nullptr;

void record_fallback(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (recorder)
    recorder->record(op, keys, stack);
  else
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, record_key), stack);
}

TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&record_fallback>()); }

bool overlap(const Memory::Region& a, const Memory::Region& b) {
  return bytes_of(a.type, a.offset).meets(bytes_of(b.type, b.offset));
}

std::string common_scope(const std::string& a, const std::string& b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0, end = 0;
  for (; i < n && a[i] == b[i]; ++i)
    if (a[i] == '.') end = i;
  const bool a_ends = i == a.size() && (i == b.size() || b[i] == '.');
  const bool b_ends = i == b.size() && (i == a.size() || a[i] == '.');
  return a.substr(0, a_ends || b_ends ? i : end);
}

/// Called by torch where somebody asks for a pointer to write through.
void pointer_taken(c10::StorageImpl*) {
  // Operators do so all the time, and below the recorder's key.
  if (recorder && !c10::impl::tls_is_dispatch_key_excluded(record_key))
    recorder->give_up("[capture] the function takes the data pointer of a tensor");
}

/// False where this torch cannot tell, or somebody else is told already.
template <class Storage>
bool watch(Storage& storage) {
  if constexpr (requires { storage.set_materializer(&pointer_taken); }) {
    if (storage.has_materializer()) return false;
    storage.set_materializer(&pointer_taken);
    return true;
  }
  return false;
}

template <class Storage>
void unwatch(Storage& storage) {
  if constexpr (requires { storage.clear_materializer(); }) storage.clear_materializer();
}

/// Plain calls of the recorder's own: neither recorded nor seen by autograd.
struct Aside {
  Recorder::Pause pause;
  at::AutoDispatchBelowADInplaceOrView below;
};

}  // namespace

bool Recorder::active() { return recorder != nullptr; }

Recorder::Pause::Pause() : off_(DispatchKeySet(record_key)) {}

Recorder::Recorder(NameOutside name_outside, bool throws)
    : name_outside_(std::move(name_outside)),
      throws_(throws),
      // On CUDA backward runs on the engine's own thread, which no recorder watches: gradients would silently
      // become constants.
      was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      was_caching_casts_(at::autocast::is_autocast_cache_enabled()) {
  TORCH_CHECK(!recorder, "a capture is already at work on this thread");
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  // A cast that was cached in an earlier call is a tensor from nowhere.
  at::autocast::set_autocast_cache_enabled(false);
  c10::impl::tls_set_dispatch_key_included(record_key, true);
  recorder = this;
}

Recorder::~Recorder() { stop(); }

void Recorder::stop() {
  if (!std::exchange(on_, false)) return;
  recorder = nullptr;
  for (const auto& storage : watched_)
    if (const auto alive = storage.lock()) unwatch(*alive);
  c10::impl::tls_set_dispatch_key_included(record_key, false);
  at::autocast::set_autocast_cache_enabled(was_caching_casts_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
}

void Recorder::watch_pointer(const at::Tensor& tensor) {
  if (tensor.has_storage() && watch(*tensor.storage().unsafeGetStorageImpl()))
    watched_.push_back(tensor.storage().getWeakStorageImpl());
}

void Recorder::give_up(const std::string& reason, const std::string& backtrace) {
  if (!reason_.empty()) return;
  reason_ = reason;
  backtrace_ = backtrace;
}

void Recorder::break_at(const c10::OperatorHandle& op, const std::string& why) {
  give_up(
      "[capture] " + name_of(op) + " " + why + (last_scope_.empty() ? "" : ", near module " + last_scope_),
      c10::get_backtrace(/*frames_to_skip=*/3, /*maximum_number_of_frames=*/48));
  if (throws_) throw GraphBreak(reason_, backtrace_);
}

size_t Recorder::input(const at::Tensor& tensor, const std::string& name) {
  if (const auto known = input_of(tensor)) return *known;
  for (const auto& region : memory_.regions_of(tensor)) {
    Memory::Region mine;
    mine.type = type_of(tensor);
    mine.offset = tensor.storage_offset();
    if (region->version > 0 && overlap(*region, mine))
      give_up("[capture] the function changes memory that it also reaches as " + name);
  }
  auto& value = graph_.add_input(name, type_of(tensor));
  auto region = memory_.enter(tensor, value);
  region->input = inputs_.size();
  input_numbers_.insert_or_assign(tensor.unsafeGetTensorImpl(), inputs_.size());
  inputs_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                     {},
                     std::move(region),
                     tensor.requires_grad(),
                     history_of(tensor)});
  return inputs_.size() - 1;
}

std::optional<size_t> Recorder::input_of(const at::Tensor& tensor) const {
  const auto known = input_numbers_.find(tensor.unsafeGetTensorImpl());
  // An address may be used again after a tensor's death.
  if (known == input_numbers_.end() || inputs_[known->second].outside.expired()) return std::nullopt;
  return known->second;
}

ir::Value* Recorder::find(const at::Tensor& tensor) {
  if (!reason_.empty()) return nullptr;
  auto place = memory_.find(tensor);
  if (!place) place = memory_.find_twin(tensor);
  return place ? &memory_.read(*place) : nullptr;
}

std::string Recorder::escaped(const std::vector<at::Tensor>& results) const {
  // Autograd has a view keep what it is a view of.
  std::unordered_map<const c10::TensorImpl*, size_t> owners;
  for (const auto& r : results)
    if (r.defined() && r.is_view()) ++owners[r._base().unsafeGetTensorImpl()];
  const auto may_live = [&](const c10::TensorImpl* impl) {
    size_t times = 0;
    for (const auto& r : results) times += r.unsafeGetTensorImpl() == impl;
    if (const auto base = owners.find(impl); base != owners.end()) times += base->second;
    return (times > 0 && c10::raw::intrusive_ptr::use_count(const_cast<c10::TensorImpl*>(impl)) <= times) ||
           input_numbers_.contains(impl);
  };
  const ir::Value* first = nullptr;
  memory_.each_alive([&](const c10::TensorImpl* impl, const Memory::Place& place) {
    if (may_live(impl)) return;
    const auto* value = place.view ? place.view->value : place.region->value;
    if (!first || value->id() < first->id()) first = value;
  });
  if (!first) return "";
  const auto* node = first->producer();
  if (!node) return "a call that shows an input";
  return node->op() + (node->scope().empty() ? "" : " in " + node->scope());
}

void Recorder::undo() const {
  const Aside aside;
  for (const auto& input : inputs_)
    if (const auto tensor = input.tensor(); tensor.defined() && input.before.defined())
      row_of(tensor).copy_(row_of(input.before));
}

ir::Value* Recorder::use(const at::Tensor& tensor, const c10::OperatorHandle& op, bool reads) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu()) {
    // A C++ number on its way into an operator is part of the program, not data.
    const Aside aside;
    const auto number = tensor.is_complex()                 ? std::optional<ir::Attribute>()
                        : tensor.is_floating_point()        ? ir::Attribute(tensor.item<double>())
                        : tensor.scalar_type() == at::kBool ? ir::Attribute(tensor.item<bool>())
                                                            : ir::Attribute(tensor.item<int64_t>());
    if (number) return &graph_.add_node("graft::number", {{"value", *number}}, {type_of(tensor)}).output();
  }
  auto place = memory_.find(tensor);
  if (!place) {
    // Autograd makes tensor objects of its own for what it saved, of the memory it was in. Elsewhere a tensor
    // over an input's memory may be one that the function reaches besides its arguments.
    const bool in_backward = torch::autograd::get_current_graph_task_id() >= 0;
    auto twin = memory_.find_twin(tensor);
    if (twin && (in_backward || !twin->region->input)) {
      memory_.enter_twin(tensor, *twin);
      place = std::move(twin);
    }
  }
  if (!place) {
    for (const auto& region : memory_.regions_of(tensor))
      if (!region->input) {
        break_at(op, "got a tensor over the memory of another that was made without the dispatcher");
        return nullptr;
      }
    const auto number = input(tensor, name_outside_(tensor));
    if (!reason_.empty()) return nullptr;
    return inputs_[number].region->value;
  }
  if (reads && place->region->empty) {
    break_at(op, "reads a tensor that no recorded operator filled (data pointers, from_blob?)");
    return nullptr;
  }
  return &memory_.read(*place);
}

struct Recorder::Call {
  const c10::OperatorHandle& op;
  DispatchKeySet keys;
  torch::jit::Stack* stack;
  std::vector<IValue> given = {};
  mutable bool done = false;  // its results are on the stack

  Call(const c10::OperatorHandle& o, DispatchKeySet k, torch::jit::Stack* s) : op(o), keys(k), stack(s) {
    given.assign(s->end() - static_cast<int64_t>(o.schema().arguments().size()), s->end());
  }
  void pass() const {
    run(op, *stack);
    done = true;
  }
  void run(const c10::OperatorHandle& what, torch::jit::Stack& on) const {
    const c10::impl::ExcludeDispatchKeyGuard off{DispatchKeySet(record_key)};
    what.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, record_key), &on);
  }
  /// The results as one list, undefined ones too; nothing if one is no tensor.
  static std::optional<std::vector<at::Tensor>> results(const torch::jit::Stack& stack, size_t count) {
    std::vector<at::Tensor> made;
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      if (stack[i].isTensorList())
        for (const at::Tensor& t : stack[i].toTensorVector()) made.push_back(t);
      else if (stack[i].isTensor())
        made.push_back(stack[i].toTensor());
      else
        return std::nullopt;
    }
    return made;
  }
};

bool Recorder::refuse(const Call& call) {
  if (reads_on_host(call.op))
    break_at(call.op, "reads a tensor's value on the host");
  else if (shape_depends_on_data(call.op, *call.stack))
    break_at(call.op, "has a result whose shape depends on the data");
  for (const auto& value : call.given)
    each_tensor(value, [&](const at::Tensor& t) {
      if (t.is_neg()) break_at(call.op, "got a tensor with the negative bit");
    });
  return !reason_.empty();
}

std::optional<ir::Attribute> Recorder::attribute_of(const IValue& value, const c10::Type& type) {
  const size_t before = generators_.size();
  auto attribute = to_attribute(value, type, generators_);
  if (generators_.size() == before) return attribute;
  for (size_t i = 0; i < before; ++i)
    if (generators_[i] == generators_.back()) {
      generators_.pop_back();
      return ir::Symbol{std::string(generator_symbol) + std::to_string(i)};
    }
  const std::lock_guard<std::mutex> lock(generators_.back().mutex());
  const Aside aside;
  generator_states_.push_back(generators_.back().get_state());
  return attribute;
}

/// The call's arguments for the operator `as`: its own, or its twin without those that results are written
/// into.
std::optional<std::vector<ir::NamedArgument>> Recorder::arguments_of(const Call& call,
                                                                     const c10::OperatorHandle& as) {
  const auto& declared = call.op.schema().arguments();
  std::vector<ir::NamedArgument> arguments;
  arguments.reserve(declared.size());
  for (size_t i = 0, k = 0; i < declared.size(); ++i) {
    if (declared[i].is_out() && as.schema().name() == call.op.schema().name() && !as.schema().is_mutable())
      continue;
    const auto& twin = as.schema().arguments()[k++];
    const IValue& value = call.given[i];
    const auto& name = twin.name();
    const bool written = declared[i].alias_info() && declared[i].alias_info()->isWrite();
    const bool reads = !makes_empty(call.op) && !(written && overwrites(call.op));
    if (value.isTensor()) {
      if (value.toTensor().defined())
        arguments.push_back({name, use(value.toTensor(), call.op, reads)});
      else
        arguments.push_back({name, ir::Attribute(ir::Undefined{})});
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      ir::ValueList list;
      for (const IValue& item : value.toListRef())
        list.push_back(item.isNone() || !item.toTensor().defined() ? nullptr
                                                                   : use(item.toTensor(), call.op, reads));
      arguments.push_back({name, std::move(list)});
    } else {
      // What the schema says anyway is left out, so that a graph can be read.
      const auto& standard = twin.default_value();
      if (standard && (standard->isNone() ? value.isNone() : !value.isNone() && *standard == value)) continue;
      auto attribute = attribute_of(value, *twin.real_type());
      if (!attribute) {
        break_at(call.op, "has an argument \"" + name + "\" that a graph cannot hold");
        return std::nullopt;
      }
      arguments.push_back({name, std::move(*attribute)});
    }
    if (!reason_.empty()) return std::nullopt;
  }
  return arguments;
}

/// No hook tells which module is running. Where a parameter is used its path says it; elsewhere it is the
/// smallest module that holds everything the call works on.
std::string Recorder::scope_of(const std::vector<ir::NamedArgument>& arguments) const {
  std::optional<std::string> scope, parameter;
  const auto consider = [&](const ir::Value* value) {
    if (!value) return;
    // Through views: a weight is mostly seen transposed.
    const auto* root = value;
    while (root->producer() && ir::kind_of(root->producer()->op()) == ir::OpKind::view)
      if (const auto* source = ir::value_of(*root->producer(), "self"))
        root = source;
      else
        break;
    if (root->producer()) {
      const auto& theirs = root->producer()->scope();
      if (!theirs.empty()) scope = scope ? common_scope(*scope, theirs) : theirs;
      return;
    }
    const auto& path = graph_.input_name(root->index());
    if (const auto dot = path.rfind('.'); dot != std::string::npos && !parameter)
      parameter = path.substr(0, dot);
  };
  for (const auto& argument : arguments) {
    if (const auto* value = std::get_if<ir::Value*>(&argument.value)) consider(*value);
    if (const auto* list = std::get_if<ir::ValueList>(&argument.value))
      for (const auto* value : *list) consider(value);
  }
  return parameter ? *parameter : scope.value_or("");
}

ir::Node& Recorder::add_node(const c10::OperatorHandle& op, std::vector<ir::NamedArgument> arguments,
                             std::vector<ir::TensorType> types) {
  auto scope = scope_of(arguments);
  auto& node = graph_.add_node(name_of(op), std::move(arguments), std::move(types));
  if (!scope.empty()) last_scope_ = scope;
  node.set_scope(std::move(scope));
  return node;
}

void Recorder::enter_result(const Call& call, const at::Tensor& made, ir::Value& value) {
  if (!made.defined()) return;
  const auto* storage = storage_of(made);
  const at::Tensor* source = nullptr;
  std::vector<at::Tensor> given;
  for (const auto& argument : call.given)
    each_tensor(argument, [&](const at::Tensor& t) { given.push_back(t); });
  for (const auto& t : given)
    if (!source && storage && storage_of(t) == storage) source = &t;
  if (source && source->is_same(made)) return;
  if (!storage || (!source && !memory_.regions_of(made).empty()) ||
      (source && (ir::kind_of(value.producer()->op()) != ir::OpKind::view || given.size() != 1))) {
    break_at(call.op, "gives a tensor over memory that a graph does not know");
    return;
  }
  if (source) {
    memory_.enter_view(made, *memory_.find(*source), value);
    return;
  }
  memory_.enter(made, value)->empty = makes_empty(call.op) && made.numel() > 0;
  watch_pointer(made);
}

/// A gradient that was not asked for is undefined: the place stays, with a type nobody may read.
static ir::TensorType type_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? type_of(tensor) : ir::TensorType{ir::DType::f32, {0}, {1}, {}};
}

void Recorder::record_pure(Call& call) {
  auto arguments = arguments_of(call, call.op);
  call.pass();
  if (!arguments) return;
  const auto made = Call::results(*call.stack, call.op.schema().returns().size());
  if (!made) return break_at(call.op, "gives back something that is not a tensor");
  std::vector<ir::TensorType> types;
  for (const auto& t : *made) types.push_back(type_or_none(t));
  auto& node = add_node(call.op, std::move(*arguments), std::move(types));
  for (size_t i = 0; i < made->size(); ++i) enter_result(call, (*made)[i], node.output(i));
}

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
    const Aside aside;
    mine.before = copy_as_it_lies(mine.tensor());
  }
  return true;
}

/// A call that writes, as it goes into the graph.
struct Recorder::Write {
  std::vector<at::Tensor> mutated;  // in the order of the twin's last results
  std::vector<at::Tensor> fresh;
  std::vector<ir::TensorType> types;  // of the twin's results
};

/// Runs the call, and where the twin's results may be of another dtype or layout than what is written to, the
/// twin before it.
void Recorder::run_write(Call& call, const FunctionalForm& form, Write& write) {
  const auto dtype = write.mutated.empty() ? at::kFloat : write.mutated[0].scalar_type();
  bool alike = at::isFloatingType(dtype) && form.fresh == 0;
  for (const auto& value : call.given)
    each_tensor(value, [&](const at::Tensor& t) {
      alike &= t.scalar_type() == dtype || t.unsafeGetTensorImpl()->is_wrapped_number() ||
               (t.dim() == 0 && t.is_floating_point()) || !t.is_floating_point();
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

void Recorder::record_write(Call& call) {
  if (call.op.hasTag(at::Tag::inplace_view)) return record_new_sizes(call);
  const auto form = functional_form(call.op);
  if (!form) {
    break_at(call.op, "changes its arguments, and torch has no operator that gives their new values");
    return call.pass();
  }
  auto arguments = arguments_of(call, form->op);
  Write write;
  for (const size_t i : form->mutated)
    each_tensor(call.given[i], [&](const at::Tensor& t) {
      if (reason_.empty()) use(t, call.op, false);
      write.mutated.push_back(t);
    });
  for (const auto& t : write.mutated)
    if (!reason_.empty() || !may_write(t, call.op)) return call.pass();
  if (!arguments) return call.pass();
  run_write(call, *form, write);
  if (!reason_.empty()) return;
  auto& node = add_node(form->op, std::move(*arguments), std::move(write.types));
  for (size_t i = 0; i < write.fresh.size(); ++i) enter_result(call, write.fresh[i], node.output(i));
  for (size_t i = 0; i < write.mutated.size(); ++i)
    if (!memory_.write(*memory_.find(write.mutated[i]), node.output(write.fresh.size() + i)))
      return break_at(call.op, "writes through a view that no graph can hold");
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

void Recorder::record(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  Call call(op, keys, stack);
  bool meta = false;  // about sizes
  for (const auto& value : call.given) {
    each_tensor(value, [&](const at::Tensor& t) { meta |= t.is_meta(); });
    if (value.isDevice()) meta |= value.toDevice().is_meta();
  }
  // promote_types and the like are about types.
  if (!reason_.empty() || meta || (gives_no_tensor(op) && !reads_on_host(op))) return call.pass();
  if (refuse(call)) return call.pass();
  try {
    if (op.schema().is_mutable())
      record_write(call);
    else
      record_pure(call);
  } catch (const GraphBreak&) {
    throw;
  } catch (const Error& error) {
    // A tensor of a kind that graphs do not have: before the call, or among its results.
    give_up(error.what());
    if (throws_) throw GraphBreak(reason_);
    if (!call.done) call.pass();
  }
}

}  // namespace graft
