#include "compiler/program.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>

#include "autograd/absent_tangents.h"
#include "autograd/common_history.h"
#include "autograd/node.h"
#include "autograd/partition.h"
#include "autograd/recompute.h"
#include "capture/ivalue.h"
#include "codegen/lowering.h"
#include "compiler/backward_calls.h"
#include "compiler/build.h"
#include "compiler/joined_gradients.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "passes/pipeline.h"
#include "runtime/side_by_side.h"
#include "support/residency.h"
#include "support/stopwatch.h"

namespace graft {
namespace {

std::vector<at::Tensor> pick(const std::vector<at::Tensor>& from, const std::vector<size_t>& which) {
  std::vector<at::Tensor> chosen;
  chosen.reserve(which.size());
  for (const size_t i : which) chosen.push_back(from[i]);
  return chosen;
}

/// A gradient comes with whatever strides it has (a sum's is expanded), or not at all.
at::Tensor as_typed(const at::Tensor& tangent, const ir::TensorType& type) {
  if (tangent.defined() && tangent.strides() == at::IntArrayRef(type.strides) &&
      tangent.scalar_type() == to_torch(type.dtype))
    return tangent;
  auto made = at::empty_strided(type.sizes, type.strides,
                                at::dtype(to_torch(type.dtype)).device(to_torch(type.device)));
  if (tangent.defined())
    made.copy_(tangent);
  else
    made.zero_();
  return made;
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

/// set_data() may have given it another shape.
bool is_of(const at::Tensor& tensor, const ir::TensorType& type) {
  return !tensor.defined() ||
         (tensor.sizes() == at::IntArrayRef(type.sizes) && tensor.strides() == at::IntArrayRef(type.strides));
}

bool has_memory(const at::Tensor& tensor) {
  const auto* const storage = storage_of(tensor);
  return tensor.numel() == 0 ||
         (storage && storage->data() && bytes_of(tensor).end <= static_cast<int64_t>(storage->nbytes()));
}

/// The values that are computed from one, itself included.
std::unordered_set<const ir::Value*> reached_from(const ir::Value* value, const ir::Graph& graph) {
  std::unordered_set<const ir::Value*> reached{value};
  for (const auto& node : graph.nodes()) {
    const auto inputs = node->inputs();
    if (std::none_of(inputs.begin(), inputs.end(), [&](const auto* v) { return reached.contains(v); }))
      continue;
    for (const auto& output : node->outputs()) reached.insert(output.get());
  }
  return reached;
}

at::Tensor zeros_of(const ir::TensorType& type) { return as_typed(at::Tensor(), type); }

Bindings backward_bindings() { return {.in_place = {}, .frozen = {}, .keep_results = false}; }

bool changes_slots(const Capture& capture) {
  return std::ranges::any_of(capture.mutations, [&](const Mutation& mutation) {
    return capture.sources[mutation.input].kind == Source::Kind::slot;
  });
}

CapturedFunction without_values(const Capture& capture) {
  return {.graph = ir::clone(capture.graph),
          .sources = capture.sources,
          .outside = capture.outside,
          .told = capture.told,
          .told_tensors = capture.told_tensors,
          .generators = capture.generators,
          .outputs = capture.outputs,
          .mutations = capture.mutations,
          .gradients = capture.gradients,
          .tangent_inputs = capture.tangent_inputs,
          .forward_results = capture.forward_results,
          .trace = capture.trace,
          .assumptions = capture.assumptions};
}

/// A graph that changes weights and gives a number first is a training step, and the number its loss.
ir::Graph step_of(ir::Graph graph, const CompileOptions& options) {
  const auto* loss = graph.results().empty() ? nullptr : graph.results()[0];
  const bool is_step = loss && loss->type().numel() == 1 && ir::is_floating(loss->type().dtype);
  if (!is_step || options.backend != Backend::graft || options.regional) return graph;
  passes::run_passes(passes::joint_kernel_passes(), graph);
  return autograd::with_recomputation(graph, 1);
}

/// Of which something becomes a result.
std::vector<bool> inputs_needed_by(const ir::Graph& graph) {
  std::unordered_set<const ir::Value*> needed(graph.results().begin(), graph.results().end());
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (ir::must_run(**node) || std::ranges::any_of((*node)->outputs(), [&](const auto& output) {
          return needed.contains(output.get());
        }))
      for (const auto* input : (*node)->inputs()) needed.insert(input);
  std::vector<bool> found;
  found.reserve(graph.inputs().size());
  for (const auto& input : graph.inputs()) found.push_back(needed.contains(input.get()));
  return found;
}

/// Weights that follow each other in one storage, in lists, as numbers among `inputs`. Not those that the
/// program changes: it would have to know when it has read them for the last time.
passes::Neighbours neighbours_among(const Capture& capture, const std::vector<size_t>& inputs) {
  std::unordered_set<size_t> changed;
  for (const auto& mutation : capture.mutations) changed.insert(mutation.input);
  std::map<std::pair<const void*, int64_t>, size_t> by_place;  // storage and offset
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const auto& value = capture.input_values[inputs[i]];
        capture.sources[inputs[i]].kind == Source::Kind::slot && !changed.contains(inputs[i]) &&
        value.dim() == 2 && value.is_contiguous() && value.numel() > 0 && value.has_storage())
      by_place.emplace(std::pair(value.storage().unsafeGetStorageImpl(), value.storage_offset()), i);
  passes::Neighbours found;
  const at::Tensor* before = nullptr;
  for (const auto& [place, i] : by_place) {
    const auto& value = capture.input_values[inputs[i]];
    if (!before || !runtime::follows(*before, value)) found.emplace_back();
    found.back().push_back(i);
    before = &value;
  }
  std::erase_if(found, [](const auto& list) { return list.size() < 2; });
  return found;
}

}  // namespace

Bindings forward_bindings(const Capture& capture, const ProgramGraphs& parts, const CompileOptions& options) {
  const auto& inputs = parts.forward_inputs;
  Bindings bindings{.keep_results = !parts.backward};
  for (const auto& mutation : capture.mutations) {
    const auto place = std::ranges::find(inputs, mutation.input);
    if (place != inputs.end())
      bindings.in_place.push_back({mutation.result, static_cast<size_t>(place - inputs.begin())});
  }
  bindings.neighbours = neighbours_among(capture, inputs);
  // Without gradients nobody trains the weights: they are the same until their version changes. A step that
  // changes some of them could keep others in the form its products like best, but that is a second copy of
  // them, and training is short of memory.
  if (parts.backward || changes_slots(capture) || options.freeze == Freeze::off) return bindings;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (capture.sources[inputs[i]].kind == Source::Kind::slot) bindings.frozen.push_back(i);
  return bindings;
}

Program::Program(const Capture& capture, const CompileOptions& options)
    : captured_(without_values(capture)), options_(options) {
  draws_ = std::ranges::any_of(captured_.graph.nodes(), [](const auto& node) {
    return ir::must_run(*node) && node->op() != "graft::assume" && node->op() != "graft::bincount";
  });
  find_dependent_outputs();
  for (const size_t i : capture.tangent_inputs) tangent_types_.push_back(capture.graph.inputs()[i]->type());
  auto parts = program_graphs(capture, options.backend);
  const auto bindings = forward_bindings(capture, parts, options);
  forward_inputs_ = std::move(parts.forward_inputs);
  backward_inputs_ = std::move(parts.backward_inputs);
  read_again_ = std::move(parts.read_again);
  if (changes_slots(capture) && !parts.backward) parts.forward = step_of(std::move(parts.forward), options);
  forward_ = build(std::move(parts.forward), captured_.generators, options, bindings);
  if (!parts.backward) return;
  if (tangent_types_.size() > 1) {
    backward_graph_ = ir::clone(*parts.backward);
    saved_in_common_ = autograd::common_history(captured_.graph, captured_.tangent_inputs);
  } else {
    saved_in_common_ = {{parts.backward->inputs().size() > tangent_types_.size()}};
  }
  backward_ = build(std::move(*parts.backward), captured_.generators, options_, backward_bindings());
}

const Program::PartialBackward& Program::backward_without(const std::vector<bool>& absent) const {
  const std::lock_guard<std::mutex> lock(partial_backwards_guard_);
  if (const auto found = partial_backwards_.find(absent); found != partial_backwards_.end())
    return found->second;
  auto graph = autograd::without_tangents(*backward_graph_, absent);
  auto needs = inputs_needed_by(graph.graph);
  auto run = build(std::move(graph.graph), captured_.generators, options_, backward_bindings());
  has_unchecked_.store(true, std::memory_order_release);
  return partial_backwards_
      .emplace(absent, PartialBackward{std::move(run), std::move(graph.zeros), std::move(needs)})
      .first->second;
}

std::vector<std::vector<bool>> Program::partial_backwards() const {
  const std::lock_guard<std::mutex> lock(partial_backwards_guard_);
  std::vector<std::vector<bool>> all;
  all.reserve(partial_backwards_.size());
  for (const auto& [absent, partial] : partial_backwards_) all.push_back(absent);
  return all;
}

void Program::note_checked(size_t partial_backwards) const {
  const std::lock_guard<std::mutex> lock(partial_backwards_guard_);
  if (partial_backwards_.size() == partial_backwards) has_unchecked_.store(false, std::memory_order_release);
}

void Program::keep_what_others_need(ForwardPass& pass, const std::vector<bool>& gone) const {
  if (!backward_graph_) return;  // one output, for which nothing was saved
  const auto& needs = [&]() -> const std::vector<bool>& {
    const std::lock_guard<std::mutex> lock(partial_backwards_guard_);
    const auto found = needs_without_.find(gone);
    if (found != needs_without_.end()) return found->second;
    return needs_without_
        .emplace(gone, inputs_needed_by(autograd::without_tangents(*backward_graph_, gone).graph))
        .first->second;
  }();
  for (size_t i = 0; i < pass.saved.size(); ++i)
    if (!needs[i]) pass.saved[i].reset();
  std::vector<at::Tensor> inputs(pass.inputs.size());
  for (size_t i = 0; i < backward_inputs_.size(); ++i)
    if (needs[pass.saved.size() + i]) inputs[backward_inputs_[i]] = pass.inputs[backward_inputs_[i]];
  pass.inputs = std::move(inputs);
}

ProgramGraphs program_graphs(const Capture& capture, Backend backend) {
  ProgramGraphs parts;
  auto joint = ir::clone(capture.graph);
  if (capture.gradients.empty()) {
    for (size_t i = 0; i < capture.sources.size(); ++i) parts.forward_inputs.push_back(i);
    parts.forward = std::move(joint);
    return parts;
  }
  const Stopwatch watch("partition");
  passes::run_passes(backend == Backend::graft ? passes::joint_kernel_passes() : passes::joint_passes(),
                     joint);
  // Memory is what training is short of; to write once more what a product reads costs less than the product.
  autograd::PartitionOptions how{.recompute_materialized = true};
  for (const auto& mutation : capture.mutations) how.mutated_inputs.push_back(mutation.input);
  if (backend == Backend::graft)
    how.is_library_call = [](const ir::Node& node) { return !codegen::is_pointwise(node); };
  auto cut = autograd::partition(joint, capture.forward_results, capture.tangent_inputs, how);
  parts.forward = std::move(cut.forward);
  parts.forward_inputs = std::move(cut.forward_inputs);
  parts.backward = std::move(cut.backward);
  parts.backward_inputs = std::move(cut.backward_inputs);
  parts.read_again = std::move(cut.read_again);
  return parts;
}

/// Outputs that others are computed from: a gradient by one of them would have to count these in.
void Program::find_dependent_outputs() {
  std::vector<const ir::Value*> values;
  for (const auto& output : captured_.outputs)
    if (output.kind == Output::Kind::computed && output.requires_grad)
      values.push_back(captured_.graph.results()[output.index]);
  computed_from_.assign(values.size(), {});
  for (size_t i = 0; values.size() > 1 && i < values.size(); ++i) {
    const auto reached = reached_from(values[i], captured_.graph);
    for (size_t k = 0; k < values.size(); ++k)
      if (k != i && values[k] != values[i] && reached.contains(values[k])) computed_from_[k].push_back(i);
  }
}

Program::ForwardPass Program::forward(std::vector<at::Tensor> inputs) const {
  ForwardPass pass;
  pass.results = forward_->run(trains() ? pick(inputs, forward_inputs_) : inputs, /*in_place=*/true);
  if (trains()) {
    pass.saved.assign(
        std::make_move_iterator(pass.results.begin() + static_cast<int64_t>(captured_.forward_results)),
        std::make_move_iterator(pass.results.end()));
    pass.results.resize(captured_.forward_results);
    // An output gets history; if it is saved too, that would be a circle of owners. And its new owner may
    // write into it: the version, which they share, tells.
    for (size_t i = 0; i < pass.saved.size(); ++i)
      for (const auto& result : pass.results) {
        auto& saved = pass.saved[i];
        if (!saved.defined() || !result.defined() || !saved.is_alias_of(result)) continue;
        if (saved.is_same(result)) saved = saved.detach();
        pass.saved_versions.emplace_back(i, version_of(result));
        break;
      }
    for (const size_t i : backward_inputs_) pass.versions.push_back(version_of(inputs[i]));
  }
  pass.inputs = std::move(inputs);
  note_contents(pass);
  return pass;
}

/// data() and torch's C++ optimizers write past the version. What a Residency takes away and brings back, it
/// does not change.
void Program::note_contents(ForwardPass& pass) const {
  if (Residency::current()) return;
  constexpr runtime::Fingerprint::Effort samples{.uses = 1, .part_bytes = 0};
  for (const size_t i : read_again_) {
    const bool is_saved = i < pass.saved.size();
    const auto& tensor = is_saved ? pass.saved[i] : pass.inputs[backward_inputs_[i - pass.saved.size()]];
    const auto is_this = [&](const auto& saved) { return saved.first == i; };
    if (is_saved && std::ranges::none_of(pass.saved_versions, is_this)) continue;  // nobody else has it
    if (tensor.defined() && tensor.is_cpu())
      pass.contents.emplace_back(i, runtime::Fingerprint(tensor, samples));
  }
}

/// `partial`: the backward pass that is to run, if it is not the whole one. What it does not need may be
/// anything.
void Program::check_unchanged(const ForwardPass& pass, const PartialBackward* partial) const {
  const auto is_needed = [&](size_t i) { return !partial || partial->needs[i]; };
  const auto refuse_saved = [] {
    throw Error(
        "[autograd] an output of a compiled function that its backward pass needs has been changed in place. "
        "Change a copy of it");
  };
  const auto refuse_input = [&](size_t i) {
    throw Error(
        "[autograd] an input that the backward pass of a compiled function needs has been changed in place "
        "since the forward pass: " +
        captured_.graph.input_name(backward_inputs_[i]) +
        ". Change it after the backward pass, or give the function a copy");
  };
  const size_t saved = pass.saved.size();
  for (const auto& [i, version] : pass.saved_versions)
    if (is_needed(i) && version_of(pass.saved[i]) != version) refuse_saved();
  for (size_t i = 0; i < backward_inputs_.size(); ++i) {
    const auto& input = pass.inputs[backward_inputs_[i]];
    if (!is_needed(saved + i)) continue;
    if (version_of(input) != pass.versions[i] ||
        !is_of(input, captured_.graph.inputs()[backward_inputs_[i]]->type()))
      refuse_input(i);
  }
  for (const auto& [i, contents] : pass.contents) {
    if (!is_needed(i)) continue;
    const auto& tensor = i < saved ? pass.saved[i] : pass.inputs[backward_inputs_[i - saved]];
    if (has_memory(tensor) && contents.samples_agree(tensor)) continue;
    if (i < saved) refuse_saved();
    refuse_input(i - saved);
  }
}

std::vector<at::Tensor> Program::backward(ForwardPass& pass, const std::vector<at::Tensor>& tangents,
                                          bool last, bool sparse) const {
  std::vector<bool> absent;
  absent.reserve(tangents.size());
  for (const auto& tangent : tangents) absent.push_back(!tangent.defined());
  const auto is_absent = [](bool flag) { return flag; };
  if (std::ranges::all_of(absent, is_absent)) return std::vector<at::Tensor>(captured_.gradients.size());
  const auto* partial = std::ranges::any_of(absent, is_absent) ? &backward_without(absent) : nullptr;
  check_unchanged(pass, partial);
  auto arguments = last ? std::move(pass.saved) : pass.saved;
  arguments.reserve(arguments.size() + backward_inputs_.size() + tangents.size());
  for (const size_t i : backward_inputs_) arguments.push_back(pass.inputs[i]);
  for (size_t i = 0; i < tangents.size(); ++i)
    if (!absent[i]) arguments.push_back(as_typed(tangents[i], tangent_types_[i]));
  if (partial)
    for (const auto& type : partial->zeros) arguments.push_back(zeros_of(type));
  const auto found = (partial ? *partial->run : *backward_).run(std::move(arguments), false);
  std::vector<at::Tensor> gradients;
  gradients.reserve(captured_.gradients.size());
  for (const auto& gradient : captured_.gradients) {
    bool reached = false;
    for (size_t i = 0; i < absent.size(); ++i) reached |= !absent[i] && gradient.by[i];
    gradients.push_back(gradient.result && reached ? found[*gradient.result - captured_.forward_results]
                                                   : at::Tensor());
  }
  part_gradients(gradients);
  for (size_t i = 0; sparse && i < gradients.size(); ++i)
    if (const auto& gradient = captured_.gradients[i]; gradient.indices && gradients[i].defined())
      gradients[i] = at::_sparse_coo_tensor_unsafe(found[*gradient.indices - captured_.forward_results],
                                                   gradients[i], gradient.sizes);
  return gradients;
}

namespace {

at::Tensor strided_view(const at::Tensor& base, const Output& output) {
  const at::AutoGradMode mode(at::GradMode::is_enabled() && (output.requires_grad || !base.requires_grad()));
  // It has a gradient and is none of autograd's views (unsafe_chunk gives such).
  std::optional<c10::impl::ExcludeDispatchKeyGuard> untracked;
  if (!output.tracked && output.requires_grad) untracked.emplace(c10::DispatchKey::ADInplaceOrView);
  const auto made = base.as_strided(output.sizes, output.strides, base.storage_offset() + output.offset);
  if (output.before_a_write && made._version() > 0)
    if (auto* view = torch::autograd::impl::get_view_autograd_meta(made); view && view->has_bw_view())
      view->set_attr_version(static_cast<uint32_t>(made._version()) - 1);
  return output.tracked || untracked ? made : made.detach();
}

/// What is conjugated twice has no bit in eager code, and a product of what is conjugated has one. In a graph
/// the memory may have been read again in between.
at::Tensor with_bit(const at::Tensor& result, bool conj) {
  if (!result.defined() || result.is_conj() == conj) return result;
  const at::AutoDispatchBelowADInplaceOrView plain;  // a result of its own, not a view
  return conj ? at::_conj(at::conj_physical(result)) : result.resolve_conj();
}

}  // namespace

/// The outputs that are not views of other outputs.
std::vector<at::Tensor> Program::outputs_of(const ForwardPass& pass) const {
  std::vector<at::Tensor> outputs(captured_.outputs.size());
  for (size_t i = 0; i < captured_.outputs.size(); ++i) {
    const auto& output = captured_.outputs[i];
    if (output.kind == Output::Kind::input)
      outputs[i] = pass.inputs[output.index];
    else if (output.kind == Output::Kind::view)
      outputs[i] = strided_view(pass.inputs[output.index], output);
    else if (output.kind == Output::Kind::piece)
      outputs[i] = strided_view(pass.results[output.index], output);
    else if (output.kind == Output::Kind::computed)
      outputs[i] = with_bit(pass.results[output.index], output.conj);
  }
  separate(pass, outputs);
  return outputs;
}

/// Equal values are computed once and copies that change nothing are left out, but the caller has the right
/// to change one output alone. And an output lies in its memory where it lies in eager code: an operator may
/// go by where its argument begins, which is not the same in each call.
void Program::separate(const ForwardPass& pass, std::vector<at::Tensor>& outputs) const {
  std::call_once(looked_for_shared_, [&] {
    std::unordered_set<const c10::StorageImpl*> owned;
    std::unordered_set<size_t> bases;
    shared_.assign(captured_.outputs.size(), false);
    for (const auto& input : pass.inputs)
      if (const auto* storage = storage_of(input)) owned.insert(storage);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto& output = captured_.outputs[i];
      if (output.kind == Output::Kind::computed && outputs[i].defined())
        shared_[i] = !owned.insert(storage_of(outputs[i])).second;
      if (output.kind == Output::Kind::piece && bases.insert(output.index).second)
        bases_.push_back({output.index, output.whole_offset,
                          !owned.insert(storage_of(pass.results[output.index])).second});
    }
  });
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& output = captured_.outputs[i];
    if (output.kind == Output::Kind::computed && outputs[i].defined() &&
        (shared_[i] || outputs[i].storage_offset() != output.offset))
      outputs[i] = copy_as_it_lies(outputs[i], output.offset);
  }
  for (const auto& base : bases_) {
    const auto& result = pass.results[base.result];
    if (!base.shared && result.storage_offset() == base.offset) continue;
    const auto copy = copy_as_it_lies(result, base.offset);
    for (size_t i = 0; i < outputs.size(); ++i)
      if (captured_.outputs[i].kind == Output::Kind::piece && captured_.outputs[i].index == base.result)
        outputs[i] = strided_view(copy, captured_.outputs[i]);
  }
}

/// Whether it depends on one of the leaves that require a gradient just now.
bool Program::has_gradient_by(size_t tangent, const std::vector<at::Tensor>& leaves) const {
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].defined() && leaves[i].requires_grad() && captured_.gradients[i].by[tangent]) return true;
  return false;
}

/// Gives outputs their history: those that depend on what requires a gradient now.
void Program::differentiate(const std::shared_ptr<ForwardPass>& pass, const std::vector<at::Tensor>& outputs,
                            const std::vector<at::Tensor>& leaves) const {
  const auto asks = [](const at::Tensor& leaf) { return !leaf.defined() || leaf.requires_grad(); };
  const bool all = std::ranges::all_of(leaves, asks);
  std::vector<at::Tensor> differentiated;
  std::vector<size_t> tangent_of;  // in the order of these, among all tangents
  std::vector<std::optional<size_t>> place_of;
  for (size_t i = 0; i < captured_.outputs.size(); ++i) {
    if (captured_.outputs[i].kind != Output::Kind::computed || !captured_.outputs[i].requires_grad) continue;
    const size_t tangent = place_of.size();
    const bool depends = all || has_gradient_by(tangent, leaves);
    place_of.push_back(depends ? std::optional(differentiated.size()) : std::nullopt);
    if (!depends) continue;
    differentiated.push_back(outputs[i]);
    tangent_of.push_back(tangent);
  }
  if (differentiated.empty()) return;
  std::vector<std::vector<size_t>> computed_from;
  for (const size_t tangent : tangent_of) {
    auto& from = computed_from.emplace_back();
    for (const size_t other : computed_from_[tangent])
      if (place_of[other]) from.push_back(*place_of[other]);
  }
  const auto calls = std::make_shared<BackwardCalls>(shared_from_this(), pass, std::move(tangent_of));
  connect(differentiated, computed_from, leaves,
          [calls](const std::vector<at::Tensor>& given, bool last) { return calls->run(given, last); });
}

void Program::write_mutations(ForwardPass& pass) const {
  if (captured_.mutations.empty()) return;
  const auto versions_now = [&] {
    std::vector<uint32_t> versions;
    versions.reserve(backward_inputs_.size());
    for (const size_t i : backward_inputs_) versions.push_back(version_of(pass.inputs[i]));
    return versions;
  };
  const auto before = versions_now();
  for (const auto& mutation : captured_.mutations) {
    auto& input = pass.inputs[mutation.input];
    if (input.is_same(pass.results[mutation.result])) {
      if (!input.is_inference()) input.unsafeGetTensorImpl()->bump_version();
      continue;
    }
    const at::NoGradGuard no_grad;
    input.copy_(pass.results[mutation.result]);
  }
  // Parts of one memory have one version: what is written here does not change the others.
  const auto is_written = [&](size_t input) {
    return std::ranges::any_of(captured_.mutations, [&](const Mutation& m) { return m.input == input; });
  };
  const auto after = versions_now();
  for (size_t i = 0; i < pass.versions.size(); ++i)
    if (!is_written(backward_inputs_[i])) pass.versions[i] += after[i] - before[i];
}

/// What waits for a backward pass holds no input that this does not read, and no history of one: that is the
/// caller's to keep, and a chain of calls, each with the last one's results, would hold all of them.
void Program::let_go(ForwardPass& pass) const {
  std::vector<at::Tensor> kept(pass.inputs.size());
  for (const size_t i : backward_inputs_) {
    const auto& input = pass.inputs[i];
    kept[i] = !input.defined() || input.is_leaf() ? input : input.detach();
  }
  pass.inputs = std::move(kept);
}

std::vector<at::Tensor> Program::finish(ForwardPass&& finished) const {
  const auto pass = std::make_shared<ForwardPass>(std::move(finished));
  write_mutations(*pass);
  auto outputs = outputs_of(*pass);
  pass->results.clear();
  auto leaves = std::move(pass->leaves);
  if (leaves.empty())
    for (const auto& gradient : captured_.gradients) leaves.push_back(pass->inputs[gradient.input]);
  // What the outputs do not depend on has no place in their history.
  for (size_t i = 0; i < leaves.size(); ++i)
    if (!captured_.gradients[i].result) leaves[i] = at::Tensor();
  if (trains()) {
    differentiate(pass, outputs, leaves);
    let_go(*pass);
  }
  for (size_t i = 0; i < captured_.outputs.size(); ++i) {
    if (captured_.outputs[i].kind == Output::Kind::part)
      outputs[i] = strided_view(outputs[captured_.outputs[i].index], captured_.outputs[i]);
    if (captured_.outputs[i].kind == Output::Kind::same) outputs[i] = outputs[captured_.outputs[i].index];
  }
  return outputs;
}

namespace {

class Run final : public verify::CheckedRun {
 public:
  Run(const Program& program, Program::ForwardPass pass) : program_(program), pass_(std::move(pass)) {}
  const std::vector<at::Tensor>& results() const override { return pass_.results; }
  std::vector<at::Tensor> backward(const std::vector<at::Tensor>& tangents) override {
    return program_.backward(pass_, tangents);
  }
  std::vector<at::Tensor> finish(std::vector<at::Tensor> leaves) override {
    pass_.leaves = std::move(leaves);
    return program_.finish(std::move(pass_));
  }

 private:
  const Program& program_;
  Program::ForwardPass pass_;
};

}  // namespace

std::unique_ptr<verify::CheckedRun> Program::run_forward(std::vector<at::Tensor> inputs) const {
  return std::make_unique<Run>(*this, forward(std::move(inputs)));
}

std::vector<const Executable*> Program::executables() const {
  std::vector<const Executable*> all{forward_.get()};
  if (backward_) all.push_back(backward_.get());
  return all;
}

}  // namespace graft
