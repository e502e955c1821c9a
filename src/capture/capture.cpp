#include "capture/capture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <torch/autograd.h>

#include <unordered_map>

#include "capture/ivalue.h"
#include "capture/recorder.h"
#include "graft/error.h"
#include "ir/verifier.h"

namespace graft {
namespace {

namespace functional = at::functionalization::impl;

/// The plain tensor behind a stand-in, with all pending updates in it.
at::Tensor plain(const at::Tensor& tensor) {
  const Recorder::Below below;  // what a view shows is computed again, from the plain tensor it is a view of
  functional::sync(tensor);
  return functional::from_functional_tensor(tensor);
}

class Session {
 public:
  explicit Session(const CaptureRequest& request)
      : request_(request), recorder_([this](const at::Tensor& t) { return name_outside(t); }) {
    const auto& slots = request.modules->slots();
    for (size_t i = 0; i < slots.size(); ++i)
      if (slots[i].tensor().defined()) slot_of_.emplace(slots[i].tensor().unsafeGetTensorImpl(), i);
  }

  Capture run() {
    auto outputs = (*request_.function)(arguments());
    forward(outputs);
    find_mutations();
    done_.forward_results = done_.result_values.size();
    if (request_.gradients) backward(outputs);
    finish(outputs);
    return std::move(done_);
  }

 private:
  std::vector<at::Tensor> arguments() {
    std::vector<at::Tensor> stand_ins;
    for (size_t i = 0; i < request_.arguments.size(); ++i) {
      const auto& argument = request_.arguments[i];
      if (!argument.defined()) {
        stand_ins.emplace_back();
        continue;
      }
      const size_t before = recorder_.inputs().size();
      // An argument that is also a parameter or a buffer is bound as the argument it is.
      stand_ins.push_back(
          recorder_.stand_in(argument, {"arg" + std::to_string(i), argument.requires_grad()}));
      if (recorder_.inputs().size() > before) done_.sources.push_back({Source::Kind::argument, i});
    }
    return stand_ins;
  }

  Recorder::Outside name_outside(const at::Tensor& tensor) {
    if (const auto slot = slot_of_.find(tensor.unsafeGetTensorImpl()); slot != slot_of_.end()) {
      done_.sources.push_back({Source::Kind::slot, slot->second});
      const auto& place = request_.modules->slots()[slot->second];
      if (place.buffer) remember(done_.sources.size() - 1, tensor);
      const bool at_times = place.at_times && request_.gradients && tensor.is_floating_point();
      return {place.path, tensor.requires_grad() || at_times};
    }
    done_.sources.push_back({Source::Kind::outside, done_.outside.size()});
    done_.outside.emplace_back(tensor.getIntrusivePtr());
    return {"outside" + std::to_string(done_.outside.size() - 1), tensor.requires_grad()};
  }

  /// Operators may write to a tensor without saying so in their schema; buffers are where that happens.
  void remember(size_t input, const at::Tensor& buffer) {
    const Recorder::Pause pause;
    before_.push_back({input, buffer, buffer.detach().clone()});
  }

  void refuse_secret_writes() {
    const Recorder::Pause pause;
    const at::NoGradGuard no_grad;
    std::string changed;
    for (const auto& [input, buffer, copy] : before_) {
      if (at::equal(buffer, copy)) continue;
      buffer.detach().copy_(copy);
      changed = recorder_.graph().input_name(input);
    }
    if (!changed.empty())
      throw GraphBreak("[capture] an operator changed " + changed + " although its schema says it would not");
  }

  size_t add_result(ir::Value* value, const at::Tensor& plain_value) {
    recorder_.graph().add_result(value);
    done_.result_values.push_back(plain_value);
    return done_.result_values.size() - 1;
  }

  size_t input_of(const at::Tensor& outside) {
    for (size_t i = 0; i < recorder_.inputs().size(); ++i)
      if (recorder_.inputs()[i].outside._unsafe_get_target() == outside.unsafeGetTensorImpl()) return i;
    recorder_.stand_in(outside, name_outside(outside));
    return recorder_.inputs().size() - 1;
  }

  ir::Value* name_of_result(const at::Tensor& plain_value) {
    auto* value = recorder_.find(plain_value);
    if (!value)
      throw GraphBreak("[capture] an output is a tensor that no recorded operator made (from_blob?)");
    return value;
  }

  Output describe(const at::Tensor& output) {
    Output place;
    if (!output.defined()) return place;
    // Code may give back a parameter as it is, with no call in between.
    if (!functional::isFunctionalTensor(output))
      return {.kind = Output::Kind::input, .index = input_of(output)};
    const auto& inputs = recorder_.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].stand_in.unsafeGetTensorImpl() == output.unsafeGetTensorImpl())
        return {.kind = Output::Kind::input, .index = i};
      if (storage_of(inputs[i].stand_in) != storage_of(output)) continue;
      if (output.scalar_type() != inputs[i].stand_in.scalar_type())
        throw GraphBreak("[capture] an output is a view of an input with another dtype");
      // as_strided, which makes the view anew, divides a gradient among places that share memory; select
      // would not.
      if (output.requires_grad() && !inputs[i].value.is_non_overlapping_and_dense() &&
          at::has_internal_overlap(inputs[i].value) == at::MemOverlap::Yes)
        throw GraphBreak(
            "[capture] an output is a view of an input that is expanded and requires a gradient");
      return {.kind = Output::Kind::view,
              .index = i,
              .sizes = output.sizes().vec(),
              .strides = output.strides().vec(),
              .offset = output.storage_offset() - inputs[i].stand_in.storage_offset()};
    }
    const auto value = plain(output);
    place.kind = Output::Kind::computed;
    place.index = add_result(name_of_result(value), value);
    place.requires_grad = output.requires_grad();
    return place;
  }

  void forward(const std::vector<at::Tensor>& outputs) {
    for (const auto& output : outputs) done_.outputs.push_back(describe(output));
  }

  void find_mutations() {
    for (size_t i = 0; i < recorder_.inputs().size(); ++i) {
      const auto& input = recorder_.inputs()[i];
      const auto value = plain(input.stand_in);
      if (value.unsafeGetTensorImpl() == input.value.unsafeGetTensorImpl()) continue;
      const auto name = "input " + recorder_.graph().input_name(i);
      if (value.sizes() != input.value.sizes() || value.scalar_type() != input.value.scalar_type() ||
          functional::unsafeGetFunctionalWrapper(input.stand_in)->has_metadata_mutation())
        throw GraphBreak("[capture] the function changes the shape or the storage of " + name);
      if (at::GradMode::is_enabled() && (input.stand_in.requires_grad()) &&
          !functional::are_all_mutations_under_no_grad_or_inference_mode(input.stand_in))
        throw GraphBreak("[capture] the function changes " + name + " in place and its gradient is wanted");
      refuse_overlap(i, name);
      done_.mutations.push_back({i, add_result(name_of_result(value), value)});
    }
  }

  /// Two inputs that share memory are two values in the graph: if one is written the other would not see it.
  void refuse_overlap(size_t mutated, const std::string& name) {
    const auto& inputs = recorder_.inputs();
    for (size_t i = 0; i < inputs.size(); ++i)
      if (i != mutated && storage_of(inputs[i].value) == storage_of(inputs[mutated].value))
        throw GraphBreak("[capture] the function changes " + name + ", whose memory it also reaches as " +
                         recorder_.graph().input_name(i));
  }

  /// Any values will do for the graph; for the first check they should differ from place to place.
  static at::Tensor tangent_like(const at::Tensor& output, size_t index) {
    const Recorder::Pause pause;
    const auto generator = at::detail::createCPUGenerator(/*seed_val=*/0x67726166 + index);
    const auto values = at::empty(output.sizes(), at::kFloat).normal_(0, 1, generator);
    if (!output.is_non_overlapping_and_dense())
      return values.to(output.options());  // an expanded output cannot be written
    return at::empty_strided(output.sizes(), output.strides(), output.options()).copy_(values);
  }

  void backward(const std::vector<at::Tensor>& outputs) {
    std::vector<at::Tensor> roots, tangents, leaves;
    std::vector<size_t> leaf_inputs;
    // The tangents become inputs after all that the forward pass has touched.
    const size_t known = recorder_.inputs().size();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (done_.outputs[i].kind != Output::Kind::computed || !done_.outputs[i].requires_grad) continue;
      tangent_values_.push_back(tangent_like(done_.result_values[done_.outputs[i].index], i));
      roots.push_back(outputs[i]);
      done_.tangent_inputs.push_back(recorder_.inputs().size());
      tangents.push_back(recorder_.stand_in(tangent_values_.back(), {"tangent" + std::to_string(i), false}));
      done_.sources.push_back({Source::Kind::tangent, i});
    }
    if (roots.empty()) return;
    for (size_t i = 0; i < known; ++i) {
      if (!recorder_.inputs()[i].stand_in.requires_grad()) continue;
      leaves.push_back(recorder_.inputs()[i].stand_in);
      leaf_inputs.push_back(i);
    }
    const auto found = torch::autograd::grad(roots, leaves, tangents, /*retain_graph=*/std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < leaves.size(); ++i) {
      Gradient gradient{leaf_inputs[i], std::nullopt};
      if (found[i].defined()) {
        const auto value = plain(found[i]);
        gradient.result = add_result(name_of_result(value), value);
      }
      done_.gradients.push_back(gradient);
    }
  }

  void finish(std::vector<at::Tensor>& outputs) {
    outputs.clear();
    refuse_secret_writes();
    for (const auto& outside : done_.outside)
      if (outside.expired())
        throw GraphBreak(
            "[capture] the function makes a tensor without the dispatcher (from_blob, data pointers)");
    if (const auto kept = recorder_.escaped(done_.result_values); !kept.empty())
      throw GraphBreak("[capture] the function keeps a tensor beyond the call, the result of " + kept +
                       ": compiled code would not renew it");
    for (const auto& input : recorder_.inputs()) done_.input_values.push_back(input.value);
    done_.generators = std::move(recorder_.generators());
    done_.graph = std::move(recorder_.graph());
    ir::verify(done_.graph);
  }

  const CaptureRequest& request_;
  Capture done_;
  Recorder recorder_;
  std::unordered_map<const c10::TensorImpl*, size_t> slot_of_;
  std::vector<at::Tensor> tangent_values_;
  struct Remembered {
    size_t input;
    at::Tensor buffer, copy;
  };
  std::vector<Remembered> before_;
};

}  // namespace

Capture capture(const CaptureRequest& request) { return Session(request).run(); }

}  // namespace graft
