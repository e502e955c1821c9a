#include "capture/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Backtrace.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <unordered_set>

#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/op_facts.h"
#include "capture/recorded_call.h"
#include "graft/error.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft {
namespace {

using c10::DispatchKeySet;
using c10::IValue;

std::string common_scope(const std::string& a, const std::string& b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0, end = 0;
  for (; i < n && a[i] == b[i]; ++i)
    if (a[i] == '.') end = i;
  const bool a_ends = i == a.size() && (i == b.size() || b[i] == '.');
  const bool b_ends = i == b.size() && (i == a.size() || a[i] == '.');
  return a.substr(0, a_ends || b_ends ? i : end);
}

}  // namespace

Recorder::Pause::Pause() : off_(DispatchKeySet(record_key)) {}

Recorder::Recorder(NameOutside name_outside, bool throws)
    : name_outside_(std::move(name_outside)),
      throws_(throws),
      // On CUDA backward runs on the engine's own thread, which no recorder watches: gradients would silently
      // become constants.
      was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      was_caching_casts_(at::autocast::is_autocast_cache_enabled()) {
  begin();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  // A cast that was cached in an earlier call is a tensor from nowhere.
  at::autocast::set_autocast_cache_enabled(false);
}

Recorder::~Recorder() { stop(); }

void Recorder::stop() {
  if (!std::exchange(on_, false)) return;
  end();
  pointers_.clear();
  at::autocast::set_autocast_cache_enabled(was_caching_casts_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
}

void Recorder::on_pointer(c10::StorageImpl*) {
  give_up("[capture] the function takes the data pointer of a tensor");
}

void Recorder::give_up(const std::string& reason, const std::string& backtrace, bool by_read) {
  if (!reason_.empty()) return;
  reason_ = reason;
  by_read_ = by_read;
  backtrace_ = backtrace;
}

void Recorder::break_at(const c10::OperatorHandle& op, const std::string& why, bool by_read) {
  give_up(
      "[capture] " + name_of(op) + " " + why + (last_scope_.empty() ? "" : ", near module " + last_scope_),
      c10::get_backtrace(/*frames_to_skip=*/3, /*maximum_number_of_frames=*/48), by_read);
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
  // Memory may outlive the tensor objects that were made over it: set_data() gives it to another one.
  std::unordered_set<const c10::StorageImpl*> of_results;
  for (const auto& r : results)
    if (r.defined()) of_results.insert(storage_of(r));
  memory_.each_alive_storage([&](const c10::StorageImpl* storage, const Memory::Region& region) {
    if (of_results.contains(storage)) return;
    if (!first || region.value->id() < first->id()) first = region.value;
  });
  if (!first) return "";
  const auto* node = first->producer();
  if (!node) return "a call that shows an input";
  return node->op() + (node->scope().empty() ? "" : " in " + node->scope());
}

void Recorder::watch_memory(const std::vector<at::Tensor>& tensors) {
  const UnrecordedCalls aside;
  for (const auto& tensor : tensors)
    if (tensor.layout() == at::kStrided && storage_of(tensor))
      held_.push_back(
          {c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), tensor.variable_data()});
}

void Recorder::undo() const {
  const UnrecordedCalls aside;
  const at::NoGradGuard no_grad;
  for (const auto& held : held_)
    if (const at::Tensor tensor(held.tensor.lock());
        tensor.defined() && storage_of(tensor) != storage_of(held.before))
      tensor.set_data(held.before);
  for (const auto& input : inputs_)
    if (const auto tensor = input.tensor(); tensor.defined() && input.before.defined()) {
      if (tensor.sizes() != input.before.sizes()) tensor.resize_(input.before.sizes());
      row_of(tensor).copy_(row_of(input.before));
    }
}

void Recorder::rename(const at::Tensor& known, const at::Tensor& twin) {
  if (const auto place = memory_.find(known)) memory_.enter_twin(twin, *place);
  trace_.rename(known, twin);
}

std::shared_ptr<const Trace> Recorder::finish_trace(const std::vector<at::Tensor>& outputs) {
  tracing_ = false;
  return trace_.finish(outputs);
}

std::optional<Memory::Place> Recorder::adopt(const at::Tensor& tensor, bool of_inputs) {
  auto place = memory_.find(tensor);
  if (place) return place;
  place = memory_.find_twin(tensor);
  if (!place || (place->region->input && !of_inputs)) return std::nullopt;
  memory_.enter_twin(tensor, *place);
  return place;
}

bool Recorder::is_over_memory_made_here(const at::Tensor& tensor) const {
  const auto regions = memory_.regions_of(tensor);
  return std::any_of(regions.begin(), regions.end(), [](const auto& region) { return !region->input; });
}

ir::Value* Recorder::use(const at::Tensor& tensor, const c10::OperatorHandle& op, bool reads) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu()) {
    // A C++ number on its way into an operator is part of the program, not data.
    const UnrecordedCalls aside;
    const auto number = tensor.is_complex()                 ? std::optional<ir::Attribute>()
                        : tensor.is_floating_point()        ? ir::Attribute(tensor.item<double>())
                        : tensor.scalar_type() == at::kBool ? ir::Attribute(tensor.item<bool>())
                                                            : ir::Attribute(tensor.item<int64_t>());
    if (number) return &graph_.add_node("graft::number", {{"value", *number}}, {type_of(tensor)}).output();
  }
  // Autograd makes tensor objects of its own for what it saved, of the memory it was in. Elsewhere a tensor
  // over an input's memory may be one that the function reaches besides its arguments.
  const bool in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  const auto place = adopt(tensor, in_backward);
  if (!place) {
    if (is_over_memory_made_here(tensor)) {
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

/// The formula for the gradient of a product of elements asks how many of them are zero, and has one way that
/// is right for any number of them: the answer that leads there is "one".
bool Recorder::answer(const Call& call) {
  const auto& op = call.op.schema().name();
  const bool counts = op == "aten::_local_scalar_dense";
  if (!counts && op != "aten::nonzero") return false;
  const auto node = torch::autograd::get_current_node();
  if (!node || !node->name().starts_with("ProdBackward")) return false;
  const auto of = call.stack->back().toTensor();
  call.stack->pop_back();
  const UnrecordedCalls aside;
  if (counts)
    call.stack->emplace_back(at::Scalar(1));
  else
    call.stack->emplace_back(at::zeros({1, of.dim()}, of.options().dtype(at::kLong)));
  return true;
}

bool Recorder::refuse(const Call& call) {
  if (reads_on_host(call.op))
    break_at(call.op, "reads a tensor's value on the host", /*by_read=*/true);
  else if (shape_depends_on_data(call.op, *call.stack))
    break_at(call.op, "has a result whose shape depends on the data", /*by_read=*/true);
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
  const UnrecordedCalls aside;
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
    if (value.producer()->op() == "aten::as_strided") {
      const UnrecordedCalls aside;
      // Also within memory that is known: its gradient is lost where the tensor has no elements.
      if (!lies_within(made, type_of(*source), source->storage_offset()))
        return break_at(call.op, "shows memory that the tensor does not cover");
      // Its strides are those of the memory, which holds other numbers than the tensor shows.
      if (source->is_conj() || source->is_neg())
        return break_at(call.op, "shows the memory of a conjugated or negated tensor");
    }
    memory_.enter_view(made, *memory_.find(*source), value);
    return;
  }
  memory_.enter(made, value)->empty = makes_empty(call.op) && made.numel() > 0;
  pointers_.add(made);
}

void Recorder::record_pure(Call& call) {
  // A tensor of zeros without memory, for gradients: plain zeros to a program.
  const bool no_memory = call.op.schema().name() == "aten::_efficientzerotensor";
  const auto& op = no_memory ? operator_named("aten::zeros") : call.op;
  auto arguments = arguments_of(call, op);
  call.pass();
  if (!arguments) return;
  const auto made = Call::results(*call.stack, call.op.schema().returns().size(), gives_sizes_too(call.op));
  if (!made) return break_at(call.op, "gives back something that is not a tensor");
  std::vector<ir::TensorType> types;
  for (const auto& t : *made) types.push_back(type_or_none(t));
  auto& node = add_node(op, std::move(*arguments), std::move(types));
  for (size_t i = 0; i < made->size(); ++i) enter_result(call, (*made)[i], node.output(i));
}

void Recorder::on_call(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  Call call(op, keys, stack);
  refuse_effects(call);
  if (!reason_.empty() || computes_nothing(op, call.given)) return call.pass();
  if (answer(call)) return;
  if (refuse(call)) return call.pass();
  const auto generator = drawn_from(op, call.given);
  if (generator && draws_.is_seeded(*generator))
    break_at(op, "draws from a random number generator that the function seeds");
  try {
    if (op.schema().is_mutable())
      record_write(call);
    else
      record_pure(call);
    if (generator) draws_.note_draw(*generator);
    if (tracing_ && reason_.empty()) trace_.add(op, call.given, call.results());
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
