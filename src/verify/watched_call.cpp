#include "verify/watched_call.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "support/stopwatch.h"
#include "targets/targets.h"
#include "verify/compare_results.h"
#include "verify/first_wrong_node.h"
#include "verify/tolerance.h"

namespace graft::verify {

using detail::EagerFunction, detail::FlatArguments, detail::FlatResult;

namespace {

/// How an output of compiled code differs from eager's in what is not its numbers, as a clause; empty if in
/// nothing.
std::string form_difference(const at::Tensor& got, const at::Tensor& want, bool compare_history) {
  const auto differs = [](const char* what, auto g, auto w) {
    std::ostringstream text;
    text << what << " " << g << " in compiled code and " << w << " in the eager function";
    return text.str();
  };
  if (got.defined() != want.defined()) return difference(got, want);
  if (!got.defined()) return "";
  if (got.sizes() != want.sizes()) return differs("its sizes are", got.sizes(), want.sizes());
  if (got.scalar_type() != want.scalar_type())
    return differs("its dtype is", got.scalar_type(), want.scalar_type());
  for (int64_t d = 0; want.numel() > 0 && d < want.dim(); ++d)
    if (want.size(d) > 1 && got.stride(d) != want.stride(d))
      return differs("its strides are", got.strides(), want.strides());
  if (got.is_conj() != want.is_conj()) return differs("its conjugate bit is", got.is_conj(), want.is_conj());
  if (got.is_neg() != want.is_neg()) return differs("its negative bit is", got.is_neg(), want.is_neg());
  if (compare_history && got.requires_grad() != want.requires_grad())
    return differs("its requires_grad is", got.requires_grad(), want.requires_grad());
  if (compare_history && (history_of(got) == nullptr) != (history_of(want) == nullptr))
    return history_of(got) ? "it has a grad_fn in compiled code and none in the eager function"
                           : "it has no grad_fn in compiled code and one in the eager function";
  return "";
}

/// One run of the program beside an eager call.
class ProgramCheck {
 public:
  ProgramCheck(const CheckedProgram& program, std::vector<at::Tensor> bound, const EagerCall& eager)
      : program_(program),
        then_(program.captured()),
        now_(*eager.observed.capture),
        eager_(eager),
        given_(std::move(bound)),
        inputs_(given_) {
    // What it writes to is a copy of what the function was given.
    for (const auto& mutation : then_.mutations) {
      const auto& held = now_.input_values[mutation.input];
      inputs_[mutation.input] = copy_as_it_lies(held, held.storage_offset())
                                    .set_requires_grad(given_[mutation.input].requires_grad());
    }
  }

  void run(bool with_gradients) {
    eager_.before.restore();
    const auto run = program_.run_forward(inputs_);
    results_ = run->results();
    same_random_state_ = eager_.after.is_now();
    if (with_gradients && program_.trains()) gradients_ = run->backward(tangents_without({}));
    same_random_state_ &= eager_.after.is_now();  // a backward pass that draws numbers is in no graph
    if (with_gradients) run_partial_backwards(*run);
    eager_.after.restore();
    std::vector<at::Tensor> leaves;
    leaves.reserve(then_.gradients.size());
    for (const auto& gradient : then_.gradients) leaves.push_back(given_[gradient.input]);
    outputs_ = run->finish(std::move(leaves));
  }

  /// What differs; empty if nothing does.
  std::string compare() {
    const Stopwatch watch("check");
    if (!same_random_state_)
      return "compiled code draws other random numbers: the generator's state after the call "
             "is different";
    const auto& want = eager_.result.tensors;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto name = "output " + std::to_string(i) + ": ";
      const bool has_history = then_.outputs[i].kind != Output::Kind::input;
      if (const auto what = form_difference(outputs_[i], want[i], has_history); !what.empty())
        return name + what;
      if (!want[i].defined()) continue;
      if (!is_of_input(i) && outputs_[i].numel() > 0 &&
          outputs_[i].storage_offset() != want[i].storage_offset())
        return name + "it begins at a different place in its memory";
      if (!shares_memory_alike(i))
        return name + "it shares memory with different tensors than the eager function's output does";
      if (then_.outputs[i].kind != Output::Kind::computed)
        if (const auto what = difference(outputs_[i], want[i], at::kDouble);
            !what.empty() && !is_view_of_compared(i))
          return name + what;
    }
    ignore_untrained_gradients();
    auto what =
        result_difference(then_, now_.input_values, eager_.before, results_, gradients_, now_.result_values);
    return what.empty() ? compare_partial_backwards() : what;
  }

  /// What the caller gets: the program's, to the bit as in later calls, so that a run that is stopped and
  /// resumed (and watches its first calls again) is the same run.
  FlatResult result() const {
    const at::NoGradGuard no_grad;
    for (const auto& mutation : then_.mutations)
      given_[mutation.input].variable_data().copy_(inputs_[mutation.input]);
    auto made = eager_.result;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto kind = then_.outputs[i].kind;
      if (kind == Output::Kind::same)
        made.tensors[i] = made.tensors[then_.outputs[i].index];
      else if (kind != Output::Kind::input && kind != Output::Kind::view)
        made.tensors[i] = outputs_[i];
    }
    return made;
  }

 private:
  bool is_of_input(size_t output) const {
    while (then_.outputs[output].kind == Output::Kind::same) output = then_.outputs[output].index;
    const auto kind = then_.outputs[output].kind;
    return kind == Output::Kind::input || kind == Output::Kind::view;
  }

  /// Whether an output lies in memory of inputs and other outputs just where eager's does.
  bool shares_memory_alike(size_t i) const {
    if (is_of_input(i)) return true;  // made from it
    const auto share = [](const at::Tensor& a, const at::Tensor& b) {
      return storage_of(a) && storage_of(a) == storage_of(b) && !bytes_of(a).empty() && !bytes_of(b).empty();
    };
    if (std::any_of(inputs_.begin(), inputs_.end(),
                    [&](const auto& input) { return share(outputs_[i], input); }))
      return false;
    for (size_t k = 0; k < i; ++k) {
      if (is_of_input(k)) continue;
      const auto &a = eager_.result.tensors[i], &b = eager_.result.tensors[k];
      const bool got = share(outputs_[i], outputs_[k]), want = share(a, b);
      if (got != want && !(want && may_lie_apart(a, b))) return false;
    }
    return true;
  }

  /// Gradients by parameters that are trained at times, and not now, are nobody's. Of an adapter that serves
  /// no row they may be anything, if its weights are.
  void ignore_untrained_gradients() {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const auto& gradient = then_.gradients[i];
      if (given_[gradient.input].requires_grad() || !gradient.result) continue;
      const auto& want = now_.result_values[*gradient.result];
      if (!want.isfinite().all().item<bool>()) gradients_[i] = want;
    }
  }

  /// The capture's; those that are absent are undefined.
  std::vector<at::Tensor> tangents_without(const std::vector<bool>& absent) const {
    std::vector<at::Tensor> tangents;
    tangents.reserve(now_.tangent_inputs.size());
    for (const size_t i : now_.tangent_inputs)
      tangents.push_back(!absent.empty() && absent[tangents.size()] ? at::Tensor() : now_.input_values[i]);
    return tangents;
  }

  void run_partial_backwards(CheckedRun& run) {
    if (eager_.partial_backwards_of != &program_) return;
    for (const auto& absent : eager_.partial_backwards)
      partials_.push_back({.absent = absent, .got = run.backward(tangents_without(absent))});
  }

  /// Of the eager call, with the same outputs left out. It has kept its history; only what is trained now has
  /// a place there.
  std::vector<at::Tensor> eager_gradients_without(const std::vector<bool>& absent) const {
    std::vector<at::Tensor> roots, tangents, leaves;
    for (size_t k = 0; k < absent.size(); ++k) {
      if (absent[k]) continue;
      const size_t tangent = now_.tangent_inputs[k];
      const auto& root = eager_.result.tensors[now_.sources[tangent].index];
      if (!root.requires_grad()) continue;  // of parameters that are frozen just now
      roots.push_back(root);
      tangents.push_back(now_.input_values[tangent]);
    }
    for (const auto& gradient : then_.gradients)
      if (given_[gradient.input].requires_grad()) leaves.push_back(given_[gradient.input]);
    if (leaves.empty() || roots.empty()) return std::vector<at::Tensor>(then_.gradients.size());
    const BackwardEndsAt ends(leaves);
    const auto found = torch::autograd::grad(roots, leaves, tangents, /*retain_graph=*/true,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> gradients;
    gradients.reserve(then_.gradients.size());
    size_t next = 0;
    for (const auto& gradient : then_.gradients)
      gradients.push_back(given_[gradient.input].requires_grad() ? found[next++] : at::Tensor());
    return gradients;
  }

  std::string compare_partial_backwards() {
    for (auto& partial : partials_) {
      std::vector<at::Tensor> eager;
      try {
        eager = eager_gradients_without(partial.absent);
      } catch (const std::exception& error) {
        const std::string text = error.what();  // torch appends a backtrace of its own after the first line
        return "the eager backward pass fails when not all outputs are used: " +
               text.substr(0, text.find('\n'));
      }
      auto inputs = now_.input_values;
      for (size_t k = 0; k < partial.absent.size(); ++k)
        if (auto& tangent = inputs[now_.tangent_inputs[k]]; partial.absent[k])
          tangent = at::zeros_like(tangent);
      auto want = now_.result_values;
      for (size_t i = 0; i < eager.size(); ++i) {
        const auto& gradient = then_.gradients[i];
        if (gradient.result)
          want[*gradient.result] = gradient.indices && eager[i].defined() ? eager[i]._values() : eager[i];
        if (!given_[gradient.input].requires_grad()) partial.got[i] = at::Tensor();
      }
      auto what = result_difference(then_, std::move(inputs), eager_.before, {}, partial.got, want);
      if (!what.empty()) return what + ", when not all outputs are used";
    }
    program_.note_checked(partials_.size());
    return "";
  }

  /// Views of what the comparison judges by itself.
  bool is_view_of_compared(size_t i) const {
    const auto& output = then_.outputs[i];
    if (output.kind == Output::Kind::part || output.kind == Output::Kind::piece ||
        output.kind == Output::Kind::same)
      return true;
    return std::any_of(then_.mutations.begin(), then_.mutations.end(),
                       [&](const Mutation& mutation) { return mutation.input == output.index; });
  }

  const CheckedProgram& program_;
  const CapturedFunction& then_;  // what the program was made from
  const Capture& now_;            // what the function did in this call
  const EagerCall& eager_;
  std::vector<at::Tensor> given_, inputs_, results_, gradients_, outputs_;
  /// Backward passes of calls some of whose outputs nobody uses.
  struct Partial {
    std::vector<bool> absent;  // by tangent
    std::vector<at::Tensor> got;
  };
  std::vector<Partial> partials_;
  bool same_random_state_ = true;
};

bool draws_random_numbers(const ir::Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return ir::must_run(*node); });
}

}  // namespace

void EagerCall::undo() const {
  observed.undo();
  before.restore();
}

EagerCall call_eagerly(const FlatArguments& call, const EagerFunction& function, const ModuleTree& modules,
                       const CompileOptions& options, const CheckedProgram* program, const ToldInputs& told,
                       bool assumes) {
  auto partial_backwards = program ? program->partial_backwards() : std::vector<std::vector<bool>>();
  // Who may get the outputs: the caller, in place of a program's; a comparison of a part of their gradients.
  const bool keep_history =
      !options.fullgraph || options.on_mismatch == OnMismatch::eager || !partial_backwards.empty();
  FlatResult result;
  const Traceable traceable = [&](const std::vector<at::Tensor>& tensors) {
    result = function(tensors);
    return std::move(result.tensors);
  };
  const Stopwatch watch("capture");
  const auto settings = keep_settings();
  const StateReads reads;
  GeneratorStates before({}, call.tensors);
  auto observed = [&] {
    try {
      return observe({&traceable, call.tensors, &modules, at::GradMode::is_enabled(), options.fullgraph,
                      program ? program->captured().generators : std::vector<at::Generator>(), keep_history,
                      told, assumes});
    } catch (const GraphBreak&) {
      before.restore();
      throw;
    }
  }();
  if (observed.capture && reads.left_changed()) {
    observed.broken = changes_state;
    observed.capture.reset();
    if (options.fullgraph) {
      observed.undo();
      before.restore();
      throw GraphBreak(observed.broken);
    }
  }
  result.tensors = std::exchange(observed.outputs, {});
  before.add(observed.generators, observed.generator_states);
  GeneratorStates after(observed.generators, call.tensors);
  // Numbers that nobody draws here are left to those who draw them meanwhile, on other
  // threads.
  if (observed.capture && !draws_random_numbers(observed.capture->graph)) before = after = GeneratorStates();
  return {std::move(observed),
          std::move(result),
          std::move(before),
          std::move(after),
          modules.beyond(reads.reads()),
          std::move(partial_backwards),
          program};
}

Verdict check_program(const CheckedProgram& program, std::vector<at::Tensor> bound, const EagerCall& eager,
                      bool compares) {
  ProgramCheck check(program, std::move(bound), eager);
  {
    const Stopwatch watch("first run");
    check.run(compares);
  }
  if (compares)
    if (auto difference = check.compare(); !difference.empty()) return {std::move(difference), {}};
  return {{}, check.result()};
}

std::string changed_since_capture(const CapturedFunction& then, const CapturedFunction& now) {
  const auto& before = then.graph;
  const auto again = ir::clone(now.graph);
  auto a = before.nodes().begin();
  for (const auto& node : again.nodes()) {
    if (a == before.nodes().end())
      return "the function does more than when it was captured: " + node_text(*node);
    if (ir::to_string(**a) != ir::to_string(*node))
      return "the function does something else than when it was captured: it did " + node_text(**a) +
             ", now " + node_text(*node);
    ++a;
  }
  if (a != before.nodes().end())
    return "the function does less than when it was captured: it did " + node_text(**a);
  bool same = now.sources == then.sources && now.outside.size() == then.outside.size();
  for (size_t i = 0; same && i < now.outside.size(); ++i)
    same = now.outside[i]._unsafe_get_target() == then.outside[i]._unsafe_get_target();
  if (!same) return "the function works on other tensors than when it was captured, besides its arguments";
  if (now.outputs != then.outputs || now.mutations != then.mutations || now.gradients != then.gradients ||
      ir::to_string(again) != ir::to_string(before))
    return "the function gives or changes other tensors than when it was captured";
  return "";
}

bool is_same_path(const CapturedFunction& then, const CapturedFunction& now) {
  const auto same_tensor = [](const auto& a, const auto& b) {
    return a._unsafe_get_target() == b._unsafe_get_target();
  };
  // The texts of two graphs take long to compare.
  if (then.trace && now.trace && then.trace->refused.empty() && now.trace->refused.empty() &&
      then.sources == now.sources && std::ranges::equal(then.outside, now.outside, same_tensor) &&
      is_same_trace(*then.trace, *now.trace))
    return true;
  return changed_since_capture(then, now).empty();
}

std::string tensor_kept_by_function(EagerCall& eager, FlatResult& given, bool trains) {
  // Outputs with a history keep what autograd saved, and nobody could tell that from what the function's own
  // code keeps.
  if (trains) eager.result.tensors.clear();
  eager.observed.capture->result_values.clear();
  eager.observed.capture->input_values.clear();
  // Each is held once, here.
  auto results = std::exchange(given.tensors, {});
  const auto count = static_cast<int64_t>(results.size());
  std::move(eager.result.tensors.begin(), eager.result.tensors.end(), std::back_inserter(results));
  eager.result.tensors.clear();
  const auto kept = eager.observed.escaped(results);
  // What it keeps may be what it gave.
  const auto own = results.begin() + count;
  if (!kept.empty() && own != results.end())
    given.tensors.assign(own, results.end());
  else
    given.tensors.assign(results.begin(), own);
  return kept.empty()
             ? kept
             : "[capture] the function keeps a tensor after the call, the result of " + kept +
                   ", and compiled code would not update it. Return the tensor instead, or compile a "
                   "function that does not keep it";
}

}  // namespace graft::verify
