#include "capture/recorder.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Backtrace.h>
#include <torch/library.h>

#include "capture/ivalue.h"
#include "graft/error.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"

namespace graft {
namespace {

namespace functional = at::functionalization::impl;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;

// Both are free in programs without Python: one is meant for experiments above all other keys, the other is
// where the C++ fake tensors of a Python process would be.
constexpr DispatchKey swap_key = DispatchKey::TESTING_ONLY_GenericMode;
constexpr DispatchKey record_key = DispatchKey::Fake;
const DispatchKeySet capture_keys =
    DispatchKeySet(swap_key) | DispatchKeySet(DispatchKey::Functionalize) | DispatchKeySet(record_key);

thread_local Recorder* recorder = nullptr;

template <class F>
void each_tensor(const IValue& value, F f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& t : value.toTensorVector())
      if (t.defined()) f(t);
  } else if (value.isList()) {
    for (const IValue& item : value.toListRef()) each_tensor(item, f);
  }
}

void swap_in_fallback(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (recorder)
    recorder->swap_in(op, keys, stack);
  else
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, swap_key), stack);
}

void record_fallback(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  if (recorder)
    recorder->record(op, keys, stack);
  else
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, record_key), stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&swap_in_fallback>());
}
TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&record_fallback>()); }

bool reads_on_host(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::data_dependent_output); }

bool gives_no_tensor(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::none_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
    return r.type()->isSubtypeOf(*c10::TensorType::get()) ||
           r.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

/// "add_": gives back its first argument, changed.
bool in_place(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  return name.ends_with('_') && !name.ends_with("__") && op.schema().is_mutable() &&
         op.schema().returns().size() == 1;
}

/// Indexing with numbers gives a known shape; only masks make it depend on the data.
bool shape_depends_on_data(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  if (op.schema().name() != "aten::index" && op.schema().name() != "aten::_unsafe_index") return true;
  bool mask = false;
  each_tensor(stack.back(), [&](const at::Tensor& t) {
    mask |= t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
  });
  return mask;
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

}  // namespace

bool Recorder::active() { return recorder != nullptr; }

at::Tensor Recorder::seen(const at::Tensor& tensor) { return recorder ? recorder->swapped(tensor) : tensor; }

Recorder::Pause::Pause() : off_(capture_keys) {}
Recorder::Below::Below()
    : off_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | DispatchKeySet(swap_key)) {}

Recorder::Recorder(NameOutside name_outside)
    : name_outside_(std::move(name_outside)),
      // On CUDA backward runs on the engine's own thread, which no recorder watches: gradients would silently
      // become constants.
      was_multithreaded_(c10::AutogradState::get_tls_state().get_multithreading_enabled()),
      was_reapplying_views_(functional::getFunctionalizationReapplyViewsTLS()),
      was_caching_casts_(at::autocast::is_autocast_cache_enabled()) {
  TORCH_CHECK(!recorder, "a capture is already at work on this thread");
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  functional::setFunctionalizationReapplyViewsTLS(true);
  // The cache would keep stand-ins of parameters beyond the capture.
  at::autocast::set_autocast_cache_enabled(false);
  for (const auto key : {swap_key, DispatchKey::Functionalize, record_key})
    c10::impl::tls_set_dispatch_key_included(key, true);
  recorder = this;
}

Recorder::~Recorder() {
  recorder = nullptr;
  for (const auto key : {swap_key, DispatchKey::Functionalize, record_key})
    c10::impl::tls_set_dispatch_key_included(key, false);
  at::autocast::set_autocast_cache_enabled(was_caching_casts_);
  functional::setFunctionalizationReapplyViewsTLS(was_reapplying_views_);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(was_multithreaded_);
}

void Recorder::enter(const at::Tensor& tensor, ir::Value* value) {
  names_.insert_or_assign(tensor.unsafeGetTensorImpl(),
                          Name{c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), value});
}

const at::Tensor* Recorder::known_stand_in(const at::Tensor& tensor) const {
  const auto known = stand_ins_.find(tensor.unsafeGetTensorImpl());
  // An address may be used again after a tensor's death.
  if (known == stand_ins_.end() || inputs_[known->second].outside.expired()) return nullptr;
  return &inputs_[known->second].stand_in;
}

at::Tensor Recorder::stand_in(const at::Tensor& tensor, const Outside& as) {
  if (const auto* known = known_stand_in(tensor)) return *known;
  const Pause pause;
  const auto value = tensor.detach();
  auto wrapped = functional::to_functional_tensor(value);
  if (as.requires_grad) wrapped.set_requires_grad(true);
  auto& in_graph = graph_.add_input(as.name, type_of(tensor));
  enter(value, &in_graph);
  stand_ins_.insert_or_assign(tensor.unsafeGetTensorImpl(), inputs_.size());
  inputs_.push_back(
      {c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), wrapped, value, &in_graph});
  return wrapped;
}

ir::Value* Recorder::find(const at::Tensor& value) const {
  const auto found = names_.find(value.unsafeGetTensorImpl());
  return found == names_.end() || found->second.alive.expired() ? nullptr : found->second.value;
}

std::string Recorder::escaped(const std::vector<at::Tensor>& results) const {
  const auto may_live = [&](const c10::TensorImpl* impl) {
    for (const auto& r : results)
      if (r.unsafeGetTensorImpl() == impl) return true;
    for (const auto& input : inputs_)
      if (input.value.unsafeGetTensorImpl() == impl) return true;
    return false;
  };
  const ir::Node* first = nullptr;
  for (const auto& [impl, name] : names_) {
    if (name.alive.expired() || may_live(impl) || !name.value->producer()) continue;
    if (!first || name.value->id() < first->output().id()) first = name.value->producer();
  }
  if (!first) return "";
  return first->op() + (first->scope().empty() ? "" : " in " + first->scope());
}

at::Tensor Recorder::swapped(const at::Tensor& tensor) {
  if (!tensor.defined() || functional::isFunctionalTensor(tensor)) return tensor;
  // Sizes are worked out on meta tensors by functionalisation itself.
  if (tensor.is_meta()) return tensor;
  // A C++ number on its way into an operator is part of the program, not data.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  if (const auto* known = known_stand_in(tensor)) return *known;
  return stand_in(tensor, name_outside_(tensor));
}

void Recorder::swap_in(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = swapped(value.toTensor());
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& t : tensors) t = swapped(t);
      value = std::move(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor> t : value.toOptionalTensorList())
        tensors.push_back(t ? std::optional(swapped(*t)) : t);
      value = std::move(tensors);
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard off(swap_key);
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, swap_key), stack);
}

void Recorder::break_at(const c10::OperatorHandle& op, const std::string& why) const {
  throw GraphBreak(
      "[capture] " + name_of(op) + " " + why + (last_scope_.empty() ? "" : ", near module " + last_scope_),
      c10::get_backtrace(/*frames_to_skip=*/3, /*maximum_number_of_frames=*/48));
}

void Recorder::refuse_breaks(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (reads_on_host(op)) break_at(op, "reads a tensor's value on the host");
  if (shape_depends_on_data(op, stack)) break_at(op, "has a result whose shape depends on the data");
  const auto& schema = op.schema();
  if (schema.is_mutable())
    break_at(op, "changes a tensor that is neither an argument, nor in the module, nor made by the function");
}

ir::Value* Recorder::use(const at::Tensor& tensor, const c10::OperatorHandle& op) {
  if (auto* known = find(tensor)) return known;
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu()) {
    const Pause pause;
    const auto number = tensor.is_floating_point()          ? ir::Attribute(tensor.item<double>())
                        : tensor.scalar_type() == at::kBool ? ir::Attribute(tensor.item<bool>())
                                                            : ir::Attribute(tensor.item<int64_t>());
    auto& node = graph_.add_node("graft::number", {{"value", number}}, {type_of(tensor)});
    enter(tensor, &node.output());
    return &node.output();
  }
  break_at(op, "got a tensor that was made inside the function without the dispatcher (from_blob?)");
}

std::vector<ir::NamedArgument> Recorder::arguments_of(const c10::OperatorHandle& op,
                                                      const torch::jit::Stack& stack) {
  const auto& declared = op.schema().arguments();
  std::vector<ir::NamedArgument> arguments;
  arguments.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    const IValue& value = stack[stack.size() - declared.size() + i];
    const auto& name = declared[i].name();
    if (value.isTensor()) {
      if (value.toTensor().defined())
        arguments.push_back({name, use(value.toTensor(), op)});
      else
        arguments.push_back({name, ir::Attribute(ir::Undefined{})});
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      ir::ValueList list;
      for (const IValue& item : value.toListRef())
        list.push_back(item.isNone() || !item.toTensor().defined() ? nullptr : use(item.toTensor(), op));
      arguments.push_back({name, std::move(list)});
    } else {
      // What the schema says anyway is left out, so that a graph can be read.
      const auto& standard = declared[i].default_value();
      if (standard && (standard->isNone() ? value.isNone() : !value.isNone() && *standard == value)) continue;
      auto attribute = to_attribute(value, *declared[i].real_type(), generators_);
      if (!attribute) break_at(op, "has an argument \"" + name + "\" that a graph cannot hold");
      arguments.push_back({name, std::move(*attribute)});
    }
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

void Recorder::record(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto redispatch = [&] {
    const c10::impl::ExcludeDispatchKeyGuard off(capture_keys);
    op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, record_key), stack);
  };
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  bool meta = false;  // functionalisation runs each operator once more on meta tensors, to get sizes
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    each_tensor((*stack)[i], [&](const at::Tensor& t) { meta |= t.is_meta(); });
    if ((*stack)[i].isDevice()) meta |= (*stack)[i].toDevice().is_meta();
  }
  if (meta && !in_place(op)) return redispatch();
  if (meta) {
    // Some operators (logical_and_, which the gradient of clamp uses) have no kernel for meta tensors outside
    // Python. What works in place keeps its sizes, so nothing is lost but a check.
    const size_t base = stack->size() - count;
    const IValue self = (*stack)[base];
    try {
      redispatch();
    } catch (const c10::NotImplementedError&) {
      stack->resize(base);
      stack->push_back(self);
    }
    return;
  }
  if (gives_no_tensor(op) && !reads_on_host(op))
    return redispatch();  // promote_types and the like: about types

  refuse_breaks(op, *stack);
  auto arguments = arguments_of(op, *stack);
  redispatch();
  std::vector<ir::TensorType> types;
  std::vector<at::Tensor> made;
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    const IValue& value = (*stack)[i];
    if (value.isTensor() || value.isTensorList()) {
      if (value.isTensor() && !value.toTensor().defined()) {
        // A gradient that was not asked for: the place stays, with a type nobody may read.
        types.push_back({ir::DType::f32, {0}, {1}, {}});
        made.emplace_back();
        continue;
      }
      each_tensor(value, [&](const at::Tensor& t) { types.push_back(type_of(t)), made.push_back(t); });
    } else {
      break_at(op, "gives back something that is no tensor");
    }
  }
  auto scope = scope_of(arguments);
  auto& node = graph_.add_node(name_of(op), std::move(arguments), std::move(types));
  if (!scope.empty()) last_scope_ = scope;
  node.set_scope(std::move(scope));
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i].defined()) enter(made[i], &node.output(i));
}

}  // namespace graft
