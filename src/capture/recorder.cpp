#include "capture/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>

#include "capture/break_advice.h"
#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/number_twin.h"
#include "capture/op_facts.h"
#include "capture/recorded_call.h"
#include "capture/whole_calls.h"
#include "graft/error.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "support/user_code.h"

namespace graft {
namespace {

using c10::DispatchKeySet;
using c10::IValue;

constexpr const char* reads_a_value = "reads a tensor's value on the host";
constexpr const char* has_a_shape_by_data = "has a result whose shape depends on the data";

/// Where the user's code made the call.
std::string at_place(const std::vector<std::string>& code) { return code.empty() ? "" : " at " + code[0]; }

std::string lines_of(const std::vector<std::string>& code) {
  std::string text;
  for (const auto& line : code) text += "  " + line + "\n";
  return text;
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

/// `by_types`: of values their types alone count.
bool are_alike(const std::vector<ir::NamedArgument>& a, const std::vector<ir::NamedArgument>& b,
               bool by_types) {
  return std::ranges::equal(a, b, [&](const ir::NamedArgument& one, const ir::NamedArgument& other) {
    const auto* const* value = std::get_if<ir::Value*>(&one.value);
    const auto* const* theirs = std::get_if<ir::Value*>(&other.value);
    const bool same_type =
        by_types && value && theirs && *value && *theirs && (*value)->type() == (*theirs)->type();
    return one.name == other.name && (same_type || one.value == other.value);
  });
}

}  // namespace

Recorder::Pause::Pause() : off_(DispatchKeySet(record_key)) {}

Recorder::Recorder(NameOutside name_outside, bool throws, bool assumes)
    : name_outside_(std::move(name_outside)),
      throws_(throws),
      assumes_(assumes),
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
  if (!reason_.empty()) return;
  const auto code = user_code_on_stack();
  give_up("[capture] the function takes the data pointer of a tensor" + at_place(code) +
              ". Compute with operators in place of pointers, or take the pointer outside of the compiled "
              "function",
          lines_of(code));
}

void Recorder::give_up(const std::string& reason, const std::string& backtrace, bool by_read) {
  if (!reason_.empty()) return;
  reason_ = reason;
  by_read_ = by_read;
  backtrace_ = backtrace;
  breaks_.push_back(reason);
}

namespace {

std::string sentence_about(const c10::OperatorHandle& op, const std::string& why, const std::string& place) {
  const auto part = called_as();
  const auto name = part.empty() ? name_of(op) : std::string(part);
  return "[capture] " + name + " " + why + place;
}

std::string with_advice(const c10::OperatorHandle& op, const std::string& sentence) {
  return sentence + ". " + advice_for(called_as().empty() ? op.schema().name() : called_as());
}

}  // namespace

void Recorder::break_at(const c10::OperatorHandle& op, const std::string& why, bool by_read,
                        const std::string& origin) {
  if (reason_.empty()) {
    const auto code = user_code_on_stack();
    const auto sentence = sentence_about(op, why, origin + at_place(code));
    give_up(by_read ? with_advice(op, sentence) : sentence, lines_of(code), by_read);
  }
  if (throws_) throw GraphBreak(reason_, backtrace_);
}

/// No graph is made any more: what else would stand in its way is noted.
void Recorder::note_later_break(const Call& call) {
  if (computes_nothing(call.op, call.given)) return;
  const auto& declared = call.op.schema().arguments();
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].alias_info() && declared[i].alias_info()->isWrite())
      each_tensor(call.given[i], [&](const at::Tensor& t) { written_later_.save(t); });
  const bool reads = reads_on_host(call.op), shapes = shape_depends_on_data(call.op, *call.stack);
  if (!reads && !shapes) return;
  const auto* why = reads ? reads_a_value : has_a_shape_by_data;
  auto text = with_advice(call.op, sentence_about(call.op, why, at_place(user_code_on_stack())));
  if (std::ranges::find(breaks_, text) == breaks_.end()) breaks_.push_back(std::move(text));
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
  has_number_inputs_ |= is_number(tensor);
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
  written_later_.restore();
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
    // A C++ number on its way into an operator is part of the program, not data, unless it changes all the
    // time.
    if (has_number_inputs_)
      if (const auto place = adopt(tensor, /*of_inputs=*/true)) return &memory_.read(*place);
    const UnrecordedCalls aside;
    auto number = tensor.is_complex()
                      ? ir::Attribute(std::complex<double>(tensor.item<c10::complex<double>>()))
                  : tensor.is_floating_point()        ? ir::Attribute(tensor.item<double>())
                  : tensor.scalar_type() == at::kBool ? ir::Attribute(tensor.item<bool>())
                                                      : ir::Attribute(tensor.item<int64_t>());
    return &graph_.add_node("graft::number", {{"value", std::move(number)}}, {type_of(tensor)}).output();
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

bool Recorder::refuse(const Call& call) {
  if (reads_on_host(call.op))
    break_at(call.op, reads_a_value, /*by_read=*/true, origin_of(call));
  else if (shape_depends_on_data(call.op, *call.stack))
    break_at(call.op, has_a_shape_by_data, /*by_read=*/true, origin_of(call));
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
    if (declared[i].is_out() && !as.schema().is_mutable()) continue;
    const auto& twin = as.schema().arguments()[k++];
    const IValue& value = call.given[i];
    const auto& name = twin.name();
    const bool written = declared[i].alias_info() && declared[i].alias_info()->isWrite();
    const bool reads = !makes_empty(call.op) && !(written && overwrites(call.op)) &&
                       ir::kind_of(name_of(call.op)) != ir::OpKind::view;
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

/// The module that a value which is read comes from, as a clause; empty where nobody knows.
std::string Recorder::origin_of(const Call& call) {
  std::string scope;
  for (const auto& value : call.given)
    each_tensor(value, [&](const at::Tensor& t) {
      const auto place = memory_.find(t);
      const auto* known = !place ? nullptr : place->view ? place->view->value : place->region->value;
      while (known && known->producer() && known->producer()->scope().empty() &&
             ir::kind_of(known->producer()->op()) == ir::OpKind::view)
        known = known->producer()->inputs().empty() ? nullptr : known->producer()->inputs().front();
      if (scope.empty() && known && known->producer()) scope = known->producer()->scope();
    });
  return scope.empty() ? scope : ", of a value that comes from module \"" + scope + "\",";
}

ir::Node& Recorder::add_node(const c10::OperatorHandle& op, std::vector<ir::NamedArgument> arguments,
                             std::vector<ir::TensorType> types) {
  auto scope = scope_of(arguments);
  auto& node = graph_.add_node(name_of(op), std::move(arguments), std::move(types));
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
  auto& node = draw_.place ? drawing_node(call, op, std::move(*arguments), std::move(types))
                           : add_node(op, std::move(*arguments), std::move(types));
  for (size_t i = 0; i < made->size(); ++i) enter_result(call, (*made)[i], node.output(i));
}

/// In the call that comes now.
bool Recorder::is_number_input(size_t argument) const {
  return tracing_ && reason_.empty() &&
         std::ranges::any_of(number_places_, [&](const Trace::NumberPlace& place) {
           return place.call == trace_.calls() && place.argument == argument;
         });
}

/// A number that is an input goes into the operator as a tensor, so that gradients are computed from that,
/// too.
void Recorder::on_first(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto twin = number_twin(op);
  if (!twin || !is_number_input(twin->argument)) return pass_first(op, keys, stack);
  auto& value = (*stack)[stack->size() - op.schema().arguments().size() + twin->argument];
  if (!value.isDouble() && !value.isInt()) return pass_first(op, keys, stack);
  value = number_tensor(value.toScalar());
  trace_.note_spelling(twin->op, op);
  twin->op.callBoxed(stack);
}

void Recorder::enter_numbers(const Call& call) {
  for (size_t i = 0; i < number_places_.size(); ++i) {
    const auto& place = number_places_[i];
    if (place.call != trace_.calls() || place.argument >= call.given.size()) continue;
    const auto& value = call.given[place.argument];
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().is_complex() ||
        !value.toTensor().unsafeGetTensorImpl()->is_wrapped_number())
      continue;
    numbers_.push_back(value.toTensor());
    trace_.note_input(numbers_.back(), static_cast<uint32_t>(input(numbers_.back(), name_number_(i))));
  }
}

/// Graphs have dense tensors only: the two that this one consists of are its results in its place.
void Recorder::record_sparse(Call& call) {
  const auto part = [&](const char* name) {
    const auto place = call.op.schema().argumentIndexWithName(name);
    return use(call.given[static_cast<size_t>(*place)].toTensor(), call.op, /*reads=*/true);
  };
  auto* const indices = part("indices");
  auto* const values = indices && reason_.empty() ? part("values") : nullptr;
  call.pass();
  if (!values || !reason_.empty()) return;
  const auto made = call.stack->back().toTensor();
  sparse_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(made.getIntrusivePtr()), {indices, values}});
}

std::optional<Recorder::SparseParts> Recorder::sparse_parts(const at::Tensor& tensor) const {
  for (const auto& known : sparse_)
    if (!known.tensor.expired() && known.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl())
      return known.parts;
  return std::nullopt;
}

void Recorder::find_draws_here(const Call& call) {
  draw_ = {};
  if (!reason_.empty()) return;
  const auto generator = drawn_from(call.op, call.given);
  if (!generator) return;
  draw_.place = DrawWatch::now(*generator);
  for (const size_t draw : draws_.drawn_here(*draw_.place)) draw_.before.push_back(drawn_[draw]);
}

/// The node that stands for a call: a new one; or a copy of what an earlier one gave, where that drew the
/// same numbers.
ir::Node& Recorder::drawing_node(const Call& call, const c10::OperatorHandle& as,
                                 std::vector<ir::NamedArgument> arguments,
                                 std::vector<ir::TensorType> types) {
  for (auto* known : draw_.before) {
    if (!known || known->op() != name_of(as) || known->outputs().size() != 1 || types.size() != 1 ||
        known->output().type() != types[0] || !are_alike(arguments, known->arguments(), overwrites(call.op)))
      continue;
    draw_.node = known;
    return add_node(operator_named("aten::clone"), {{"self", &known->output()}}, std::move(types));
  }
  if (!draw_.before.empty())
    break_at(call.op, "sets a random number generator back and draws other numbers than before");
  draw_.node = &add_node(as, std::move(arguments), std::move(types));
  return *draw_.node;
}

void Recorder::note_draw() {
  if (!draw_.place) return;
  const bool again = !draw_.before.empty();
  if (draws_.note_draw(*draw_.place, again)) drawn_.push_back(draw_.node);
  if (again && tracing_) trace_.refuse("the function sets a random number generator back");
}

void Recorder::on_call(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  Call call(op, keys, stack);
  find_draws_here(call);
  refuse_effects(call);
  if (!reason_.empty() && lists_breaks_) note_later_break(call);
  if (!reason_.empty() || computes_nothing(op, call.given)) return call.pass();
  if (answer(call)) return;
  if (refuse(call)) return call.pass();
  if (draw_.place && draws_.is_seeded(*draw_.place))
    break_at(op, "draws from a random number generator that the function seeds");
  try {
    if (tracing_) enter_numbers(call);
    if (!tracing_ && op.schema().name() == "aten::_sparse_coo_tensor_with_dims_and_tensors")
      record_sparse(call);
    else if (op.schema().is_mutable())
      record_write(call);
    else
      record_pure(call);
    note_draw();
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
