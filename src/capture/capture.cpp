#include "capture/capture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/SequenceNumber.h>
#include <torch/autograd.h>

#include <map>
#include <unordered_map>

#include "capture/hooks.h"
#include "capture/host_scalars.h"
#include "capture/ivalue.h"
#include "capture/recorder.h"
#include "graft/error.h"
#include "ir/verifier.h"
#include "support/trained_at_times.h"

namespace graft {
namespace {

/// Parameters that are trained at times have gradients in the program, also while they are frozen; and
/// without gradients, too, torch takes products apart in another way where a factor may want one. What the
/// code itself switches meanwhile stays as it says.
class WithGradients {
 public:
  explicit WithGradients(const ModuleTree& modules) {
    for (const auto& slot : modules.slots())
      if (const auto& tensor = slot.tensor();
          slot.at_times && tensor.defined() && tensor.is_floating_point() && !tensor.requires_grad()) {
        tensor.set_requires_grad(true);
        frozen_.push_back(tensor);
      }
  }
  ~WithGradients() {
    for (const auto& tensor : frozen()) tensor.set_requires_grad(false);
  }
  WithGradients(const WithGradients&) = delete;
  WithGradients& operator=(const WithGradients&) = delete;

  std::vector<at::Tensor> frozen() const {
    auto left = frozen_;
    std::erase_if(left,
                  [&](const at::Tensor& tensor) { return seen_.contains(tensor.unsafeGetTensorImpl()); });
    return left;
  }

 private:
  SwitchesSeen seen_;
  std::vector<at::Tensor> frozen_;
};

/// What a run begins with.
struct StartOfRun {
  EffectsWatch::Start effects;
  uint64_t first_node = at::sequence_number::peek();
};

/// What is written down of a run.
class Session {
 public:
  Session(const CaptureRequest& request, const StartOfRun& start) : request_(request), start_(start) {
    const auto& slots = request.modules->slots();
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].tensor().defined()) slot_of_.emplace(slots[i].tensor().unsafeGetTensorImpl(), i);
    observed_.recorder = std::make_unique<Recorder>([this](const at::Tensor& t) { return name_outside(t); },
                                                    request.throws, request.assumes);
    for (const auto& tensor : request.arguments)
      if (tensor.defined()) marked_.push_back(tensor);
    for (const auto& slot : slots)
      if (slot.tensor().defined()) marked_.push_back(slot.tensor());
    if (request.lists_breaks) recorder().list_breaks();
    effects_.emplace(marked_, start.effects);
    recorder().watch_memory(marked_);
    recorder().watch_generator(start_.effects.generator);
    for (const auto& generator : request.generators) recorder().watch_generator(generator);
  }

  void begin() {
    enter_arguments();
    recorder().make_inputs_of(request_.told.numbers, [this](size_t which) {
      auto& numbers = done_.told.numbers;
      done_.sources.push_back({Source::Kind::number, numbers.size()});
      numbers.push_back(request_.told.numbers[which]);
      return "number" + std::to_string(numbers.size() - 1);
    });
  }

  /// The function has given these.
  ObservedRun finish(std::vector<at::Tensor> outputs, const WithGradients& at_times) {
    observed_.outputs = std::move(outputs);
    describe_run();
    if (request_.throws && !going_on()) throw GraphBreak(recorder().broken());
    recorder().stop();
    if (const auto frozen = at_times.frozen(); !frozen.empty()) {
      forget_leaves(observed_.outputs, frozen, start_.first_node);
      forget_leaves(marked_, frozen, start_.first_node);
    }
    observed_.broken = recorder().broken();
    observed_.backtrace = recorder().backtrace();
    observed_.breaks = recorder().breaks();
    observed_.broken_by_read = recorder().broken_by_read();
    observed_.generators = recorder().generators();
    observed_.generator_states = recorder().generator_states();
    if (observed_.broken.empty()) observed_.capture = std::move(done_);
    return std::move(observed_);
  }

  /// It is as if the function had not been called.
  void undo() {
    recorder().stop();
    recorder().undo();
  }

 private:
  Recorder& recorder() { return *observed_.recorder; }
  bool going_on() { return recorder().broken().empty(); }

  void give_up(const std::string& reason, bool by_read = false) {
    recorder().give_up(reason, "", by_read);
    if (request_.throws) throw GraphBreak(reason);
  }

  void enter_arguments() {
    for (size_t i = 0; i < request_.arguments.size(); ++i) {
      const auto& argument = request_.arguments[i];
      if (!argument.defined()) continue;
      if (argument.is_neg()) return give_up("[capture] an argument has the negative bit");
      try {
        const size_t before = recorder().inputs().size();
        // An argument that is also a parameter or a buffer is bound as the argument it is.
        recorder().input(argument, "arg" + std::to_string(i));
        if (recorder().inputs().size() > before) done_.sources.push_back({Source::Kind::argument, i});
        recorder().watch_pointer(argument);
      } catch (const UsageError& error) {
        return give_up(error.what());
      }
    }
  }

  std::string name_outside(const at::Tensor& tensor) {
    if (const auto slot = slot_of_.find(tensor.unsafeGetTensorImpl()); slot != slot_of_.end()) {
      done_.sources.push_back({Source::Kind::slot, slot->second});
      const auto& place = request_.modules->slots()[slot->second];
      if (place.buffer) remember(done_.sources.size() - 1, tensor);
      return place.path;
    }
    if (std::ranges::find(request_.told.tensors, elsewhere_++) != request_.told.tensors.end()) {
      done_.sources.push_back({Source::Kind::told, done_.told_tensors.size()});
      done_.told.tensors.push_back(elsewhere_ - 1);
      done_.told_tensors.emplace_back(tensor.getIntrusivePtr());
      return "told" + std::to_string(done_.told_tensors.size() - 1);
    }
    if (tensor.dim() == 0 && tensor.is_cpu() && !tensor.is_complex() && !tensor.requires_grad()) {
      const UnrecordedCalls aside;
      scalars_.emplace(done_.sources.size(), tensor.clone());
    }
    done_.sources.push_back({Source::Kind::outside, done_.outside.size()});
    done_.outside.emplace_back(tensor.getIntrusivePtr());
    return "outside" + std::to_string(done_.outside.size() - 1);
  }

  /// Operators may write to a tensor without saying so in their schema; buffers are where that happens.
  void remember(size_t input, const at::Tensor& buffer) {
    const Recorder::Pause pause;
    before_.push_back({input, buffer, buffer.detach().clone()});
  }

  void refuse_secret_writes() {
    const Recorder::Pause pause;
    const at::NoGradGuard no_grad;
    for (const auto& [input, buffer, copy] : before_)
      if (recorder().inputs()[input].region->version == 0 && !same(buffer, copy))
        return give_up("[capture] an operator changed " + recorder().graph().input_name(input) +
                       " although its schema says it would not");
  }

  /// NaN is what NaN was.
  static bool same(const at::Tensor& a, const at::Tensor& b) {
    return at::equal(a, b) || (a.is_floating_point() && at::allclose(a, b, 0, 0, /*equal_nan=*/true));
  }

  size_t add_result(ir::Value* value, const at::Tensor& real) {
    const Recorder::Pause pause;
    recorder().graph().add_result(value);
    done_.result_values.push_back(real.defined() && real._is_zerotensor() ? at::zeros_like(real) : real);
    return done_.result_values.size() - 1;
  }

  void describe_run() {
    if (const auto effect = effects_->found(); going_on() && !effect.empty())
      give_up("[capture] the function " + effect);
    if (!going_on()) return;
    for (size_t i = 0; i < observed_.outputs.size() && going_on(); ++i) done_.outputs.push_back(describe(i));
    const auto has_history = [](const Output& output) {
      return output.kind == Output::Kind::computed && output.requires_grad;
    };
    if (going_on() && !request_.gradients && std::ranges::any_of(done_.outputs, has_history))
      give_up("[capture] the function sets another grad mode");
    if (going_on()) done_.trace = recorder().finish_trace(observed_.outputs);
    if (going_on() && request_.gradients && done_.trace->has_hooks)
      give_up("[capture] the function puts a hook on a tensor that it computes, or has it keep its gradient");
    // A copy that nobody uses was made to be read. (With `fullgraph` the caller says that it is not needed.)
    if (going_on() && !request_.throws && !request_.ignores_printing && copies_to_read(*done_.trace))
      give_up("[capture] the function copies a tensor and reads its elements, or prints it",
              /*by_read=*/true);
    if (going_on()) share_memory();
    if (going_on()) find_mutations();
    done_.forward_results = done_.result_values.size();
    if (going_on() && request_.gradients) backward();
    if (going_on() && recorder().leaves_a_generator_set_back())
      give_up("[capture] the function leaves a random number generator set back");
    if (going_on()) finish();
  }

  /// Nobody but the caller will have it. `held` owners are here.
  bool is_only_given_back(const at::Tensor& output, size_t held = 0) const {
    const auto given_back = std::ranges::count_if(
        observed_.outputs, [&](const at::Tensor& other) { return other.is_same(output); });
    return output.use_count() == static_cast<size_t>(given_back) + held;
  }

  /// Whether its memory has owners in addition to the outputs and one input.
  bool has_other_owners(const at::Tensor& output) const {
    std::unordered_set<const c10::TensorImpl*> owners;
    for (const auto& other : observed_.outputs)
      if (other.defined() && storage_of(other) == storage_of(output))
        owners.insert(other.unsafeGetTensorImpl());
    return output.storage().use_count() > owners.size() + 1;
  }

  Output describe(size_t number) {
    const auto& output = observed_.outputs[number];
    if (!output.defined()) return {};
    for (size_t i = 0; i < number; ++i)
      if (observed_.outputs[i].is_same(output) && done_.outputs[i].kind != Output::Kind::input)
        return {.kind = Output::Kind::same, .index = i, .requires_grad = output.requires_grad()};
    if (const auto input = recorder().input_of(output)) return {.kind = Output::Kind::input, .index = *input};
    // One that nobody else has was made here.
    const bool known = recorder().place_of(output).has_value();
    const auto place = recorder().adopt(output, /*of_inputs=*/is_only_given_back(output));
    if (!known && place && place->region->input && has_other_owners(output))
      return refused("an output was made without the dispatcher (data()) over memory of several tensors");
    if (!place) {
      if (history_of(output) || recorder().is_over_memory_made_here(output))
        return refused("an output is a tensor that no recorded operator made");
      if (is_only_given_back(output))
        return refused("an output was made without the dispatcher (data(), from_blob)");
      // Code may give back a parameter as it is, with no call in between.
      return {.kind = Output::Kind::input, .index = recorder().input(output, name_outside(output))};
    }
    if (output.is_neg()) return refused("an output has the negative bit");
    if (output.is_inference() && !c10::InferenceMode::is_enabled())
      return refused("an output was made in inference mode");
    if (place->region->empty) return refused("an output's memory was filled by no recorded operator");
    if (output.is_conj() && place->region->version > 0)
      return refused("an output is conjugated, and its memory was written to");
    if (place->region->input) return view_of_input(output, *place->region->input);
    if (output.requires_grad() && !history_of(output))
      return refused("an output is a leaf that the function made");
    return {.kind = Output::Kind::computed,
            .index = add_result(recorder().find(output), output),
            .offset = output.storage_offset(),
            .requires_grad = output.requires_grad(),
            .conj = output.is_conj()};
  }

  Output refused(const char* why) {
    give_up(std::string("[capture] ") + why);
    return {};
  }

  Output view_of_input(const at::Tensor& output, size_t input) {
    const auto base = recorder().inputs()[input].tensor();
    if (output.scalar_type() != base.scalar_type() || output.is_conj() != base.is_conj())
      return refused("an output is a view of an input with another dtype, or conjugated");
    // as_strided, which makes the view again, divides a gradient among places that share memory; select would
    // not.
    if (output.requires_grad() && !base.is_non_overlapping_and_dense() &&
        at::has_internal_overlap(base) == at::MemOverlap::Yes)
      return refused("an output is a view of an input that is expanded and requires a gradient");
    if (output.requires_grad() && !base.requires_grad())
      return refused("an output requires a gradient and shares memory with an input that does not");
    if (base.requires_grad() && recorder().inputs()[input].region->version > 0)
      return refused("an output is a view of an input that requires a gradient and is changed");
    // Without gradients, whether a view requires one is what its base's base says at the time: the view that
    // a call makes says the same.
    const bool has_gradient = at::GradMode::is_enabled() || history_of(output);
    return {.kind = Output::Kind::view,
            .index = input,
            .sizes = output.sizes().vec(),
            .strides = output.strides().vec(),
            .offset = output.storage_offset() - base.storage_offset(),
            .requires_grad = output.requires_grad() && has_gradient,
            .tracked = is_view_of(output, base),
            .before_a_write = is_view_of(output, base) && is_before_a_write(output)};
  }

  static bool is_before_a_write(const at::Tensor& view) {
    const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
    return meta && meta->has_bw_view() && meta->get_attr_version() != static_cast<uint32_t>(view._version());
  }

  /// To autograd's knowledge.
  static bool is_view_of(const at::Tensor& view, const at::Tensor& base) {
    return view.is_view() && view._base().is_same(base.is_view() ? base._base() : base);
  }

  /// Outputs over the same memory: the whole is a result, the others are views of it, so that a write into
  /// one is seen in the others, and autograd knows.
  void share_memory() {
    const auto& outputs = observed_.outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (done_.outputs[i].kind != Output::Kind::computed) continue;
      const auto place = recorder().place_of(outputs[i]);
      for (size_t k = 0; k < i; ++k) {
        if (done_.outputs[k].kind != Output::Kind::computed && done_.outputs[k].kind != Output::Kind::piece)
          continue;
        if (storage_of(outputs[k]) != storage_of(outputs[i])) continue;
        if (may_lie_apart(outputs[i], outputs[k])) continue;
        const bool k_is_whole = !recorder().place_of(outputs[k])->view;
        if (!k_is_whole && place->view) {
          if (!share_hidden(*place->region, k) || !share_hidden(*place->region, i)) return;
          break;
        }
        const size_t whole = k_is_whole ? k : i, part = k_is_whole ? i : k;
        if (outputs[whole].scalar_type() != outputs[part].scalar_type() || outputs[part].is_conj())
          return give_up("[capture] an output is a view of another one with another dtype, or conjugated");
        if (outputs[part].requires_grad() && !is_view_of(outputs[part], outputs[whole]))
          return give_up("[capture] an output has a gradient of its own and shares memory with another one");
        if (outputs[part].requires_grad() && !outputs[whole].requires_grad())
          return give_up("[capture] an output requires a gradient and shares memory with one that does not");
        done_.outputs[part] = {.kind = Output::Kind::part,
                               .index = whole,
                               .sizes = outputs[part].sizes().vec(),
                               .strides = outputs[part].strides().vec(),
                               .offset = outputs[part].storage_offset() - outputs[whole].storage_offset(),
                               .requires_grad = outputs[part].requires_grad(),
                               .tracked = is_view_of(outputs[part], outputs[whole])};
        if (part == i) break;
      }
    }
  }

  /// An output that lies with another in a tensor that is not an output: that becomes a result.
  bool share_hidden(const Memory::Region& whole, size_t part) {
    const auto& output = observed_.outputs[part];
    if (output.requires_grad() || to_torch(whole.type.dtype) != output.scalar_type() || output.is_conj()) {
      give_up(output.requires_grad()
                  ? "[capture] outputs are overlapping views of a tensor that is not an output"
                  : "[capture] outputs are views of a tensor with another dtype that is not an output");
      return false;
    }
    const Recorder::Pause pause;
    const auto found = hidden_.find(&whole);
    const size_t result =
        found != hidden_.end()
            ? found->second
            : add_result(whole.value, output.as_strided(whole.type.sizes, whole.type.strides, whole.offset));
    hidden_.emplace(&whole, result);
    done_.outputs[part] = {.kind = Output::Kind::piece,
                           .index = result,
                           .sizes = output.sizes().vec(),
                           .strides = output.strides().vec(),
                           .offset = output.storage_offset() - whole.offset,
                           .whole_offset = whole.offset,
                           .tracked = output.is_view()};
    return true;
  }

  void find_mutations() {
    const Recorder::Pause pause;
    for (size_t i = 0; i < recorder().inputs().size(); ++i) {
      const auto& input = recorder().inputs()[i];
      const auto tensor = input.tensor();
      if (!tensor.defined()) continue;
      const auto name = "input " + recorder().graph().input_name(i);
      if (tensor.requires_grad() != input.required_grad || history_of(tensor) != input.history)
        return give_up("[capture] the function changes " + name + " in place and its gradient is wanted");
      if (const auto place = recorder().place_of(tensor); !place || place->region != input.region)
        return give_up("[capture] the function changes the shape or the storage of " + name);
      if (input.region->version == 0) continue;
      done_.mutations.push_back({i, add_result(input.region->value, tensor.detach())});
    }
  }

  /// Any values will do for the graph; for a check they should differ from place to place.
  static at::Tensor tangent_like(const at::Tensor& output, size_t index) {
    const Recorder::Pause pause;
    const at::NoGradGuard no_grad;
    const auto generator = at::detail::createCPUGenerator(/*seed_val=*/0x67726166 + index);
    // Random numbers take long; a period that is a prime falls on other places in each row.
    constexpr int64_t period = 4093;
    const auto some = at::empty({std::min(period, output.numel())}, at::kFloat).normal_(0, 1, generator);
    const auto values =
        some.repeat({output.numel() / period + 1}).slice(0, 0, output.numel()).view(output.sizes());
    if (!output.is_non_overlapping_and_dense())
      return values.to(output.options().requires_grad(false));  // an expanded output cannot be written
    return at::empty_strided(output.sizes(), output.strides(), output.options().requires_grad(false))
        .copy_(values);
  }

  void backward() {
    std::vector<at::Tensor> roots, tangents, leaves, found;
    std::vector<std::vector<bool>> reached;
    std::vector<size_t> leaf_inputs;
    // The tangents become inputs after all that the forward pass has touched.
    const size_t known = recorder().inputs().size();
    for (size_t i = 0; i < observed_.outputs.size(); ++i) {
      if (done_.outputs[i].kind != Output::Kind::computed || !done_.outputs[i].requires_grad) continue;
      tangents.push_back(tangent_like(observed_.outputs[i], i));
      roots.push_back(observed_.outputs[i]);
      done_.tangent_inputs.push_back(recorder().inputs().size());
      recorder().input(tangents.back(), "tangent" + std::to_string(i));
      done_.sources.push_back({Source::Kind::tangent, i});
    }
    if (roots.empty()) return;
    for (size_t i = 0; i < known; ++i)
      if (const auto tensor = recorder().inputs()[i].tensor(); tensor.defined() && tensor.requires_grad()) {
        leaves.push_back(tensor);
        leaf_inputs.push_back(i);
      }
    tangents_ = tangents;
    recorder().allow_no_effects();
    try {
      const BackwardEndsAt ends(leaves);
      reached = leaves_reached(roots, leaves);
      found = torch::autograd::grad(roots, leaves, tangents, /*retain_graph=*/request_.keep_history,
                                    /*create_graph=*/false, /*allow_unused=*/true);
    } catch (const GraphBreak&) {
      throw;
    } catch (const std::exception& error) {
      const std::string text = error.what();  // torch appends a backtrace of its own after the first line
      return give_up("[capture] the backward pass fails: " + text.substr(0, text.find('\n')));
    }
    if (!going_on()) return;
    for (size_t i = 0; i < leaves.size(); ++i) {
      Gradient gradient{leaf_inputs[i], std::nullopt};
      for (const auto& by_root : reached) gradient.by.push_back(by_root[i]);
      const auto sparse = found[i].defined() ? recorder().sparse_parts(found[i]) : std::nullopt;
      if (sparse) {
        const UnrecordedCalls aside;
        gradient.result = add_result(sparse->values, found[i]._values());
        gradient.indices = add_result(sparse->indices, found[i]._indices());
        gradient.sizes = found[i].sizes().vec();
      } else if (found[i].defined()) {
        auto* value = found[i].layout() == at::kStrided ? recorder().find(found[i]) : nullptr;
        if (!value) return give_up("[capture] a gradient is a tensor that no recorded operator made");
        gradient.result = add_result(value, found[i]);
      }
      done_.gradients.push_back(gradient);
    }
  }

  void finish() {
    refuse_secret_writes();
    const auto scalars = scalars_made_here();
    for (size_t i = 0; i < done_.sources.size(); ++i) {
      if (done_.sources[i].kind != Source::Kind::outside || scalars.contains(i)) continue;
      const auto& outside = done_.outside[done_.sources[i].index];
      if (outside.expired() || is_only_given_back(at::Tensor(outside.lock()), /*held=*/1))
        return give_up(
            "[capture] the function makes a tensor without the dispatcher (from_blob, data pointers)");
    }
    const Recorder::Pause pause;
    const bool by_storage = counts_from_storage(recorder().graph());
    for (const auto& input : recorder().inputs()) {
      if (const auto scalar = scalars.find(done_.input_values.size()); scalar != scalars.end()) {
        done_.input_values.push_back(scalar->second);
        continue;
      }
      const auto tensor = input.tensor();
      done_.input_values.push_back(!input.before.defined() ? tensor.detach()
                                   : by_storage ? copy_as_it_lies(input.before, tensor.storage_offset())
                                                : input.before);
    }
    done_.generators = recorder().generators();
    done_.assumptions = recorder().assumptions();
    done_.graph = std::move(recorder().graph());
    make_constants(done_, scalars);
    if (!scalars.empty() && done_.trace->refused.empty()) {
      auto trace = std::make_shared<Trace>(*done_.trace);
      trace->refused = "the function makes tensors of numbers past the dispatcher";
      done_.trace = std::move(trace);
    }
    ir::verify(done_.graph);
  }

  /// By input: the numbers that the function made into tensors, which are gone by now.
  std::map<size_t, at::Tensor> scalars_made_here() {
    auto made = scalars_;
    std::erase_if(made, [&](const auto& scalar) {
      const auto& input = recorder().inputs()[scalar.first];
      return !input.outside.expired() || input.region->version > 0;
    });
    return made;
  }

  const CaptureRequest& request_;
  const StartOfRun& start_;
  size_t elsewhere_ = 0;            // tensors that are neither arguments nor a module's
  std::vector<at::Tensor> marked_;  // arguments, parameters and buffers
  std::optional<EffectsWatch> effects_;
  Capture done_;
  ObservedRun observed_;
  std::unordered_map<const c10::TensorImpl*, size_t> slot_of_;
  std::vector<at::Tensor> tangents_;
  std::map<size_t, at::Tensor> scalars_;  // by input: what outside tensors without dimensions hold
  std::unordered_map<const Memory::Region*, size_t> hidden_;  // results that outputs are views of
  struct Remembered {
    size_t input;
    at::Tensor buffer, copy;
  };
  std::vector<Remembered> before_;
};

}  // namespace

ObservedRun::ObservedRun() = default;
ObservedRun::~ObservedRun() = default;
ObservedRun::ObservedRun(ObservedRun&&) noexcept = default;
ObservedRun& ObservedRun::operator=(ObservedRun&&) noexcept = default;

bool counts_from_storage(const ir::Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return node->op().starts_with("aten::as_strided"); });
}

void ObservedRun::undo() const { recorder->undo(); }
std::string ObservedRun::escaped(const std::vector<at::Tensor>& results) const {
  return recorder->escaped(results);
}

ObservedRun observe(const CaptureRequest& request) {
  const StartOfRun start;
  const WithGradients at_times(*request.modules);
  Session session(request, start);
  try {
    session.begin();
    return session.finish((*request.function)(request.arguments), at_times);
  } catch (const GraphBreak&) {
    session.undo();
    throw;
  } catch (...) {
    if (request.lists_breaks) session.undo();
    throw;
  }
}

namespace {

/// The graph of a run that had one; nothing is left of the run but that.
Capture take_graph(ObservedRun& observed) {
  auto& made = *observed.capture;
  for (const auto& mutation : made.mutations)
    made.result_values[mutation.result] = made.result_values[mutation.result].clone();
  observed.undo();
  auto outputs = std::exchange(observed.outputs, {});
  outputs.clear();
  // Not detach(), whose result keeps what it is a view of.
  for (auto& value : made.result_values)
    if (value.defined()) value = value.tensor_data();
  if (const auto kept = observed.escaped(made.result_values); !kept.empty())
    throw GraphBreak("[capture] the function keeps a tensor beyond the call, the result of " + kept +
                     ": compiled code would not renew it");
  return std::move(made);
}

}  // namespace

Capture capture(const CaptureRequest& request) {
  auto watched = request;
  watched.throws = true;
  auto observed = observe(watched);
  return take_graph(observed);
}

GraphOrBreaks capture_or_list_breaks(CaptureRequest request) {
  request.lists_breaks = true;
  auto observed = observe(request);
  if (!observed.capture) {
    observed.undo();
    return {std::nullopt, std::move(observed.breaks)};
  }
  try {
    return {take_graph(observed), {}};
  } catch (const GraphBreak& kept) {
    return {std::nullopt, {kept.reason()}};
  }
}

}  // namespace graft
