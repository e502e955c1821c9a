#include "verify/watched_call.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>

#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "verify/compare_results.h"
#include "compiler/counters.h"
#include "verify/first_wrong_node.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "support/log.h"
#include "support/stopwatch.h"

namespace graft::detail {
namespace {

/// Where the CPU has no instructions for bfloat16, a product in it makes torch give up oneDNN for the rest of
/// the process. The eager function has its results by then; programs, which compute in float32, go on with
/// it.
class OneDnnStays {
 public:
  OneDnnStays() : on_(at::globalContext().userEnabledMkldnn()) {}
  ~OneDnnStays() {
    if (on_) at::globalContext().setUserEnabledMkldnn(true);
  }
  OneDnnStays(const OneDnnStays&) = delete;
  OneDnnStays& operator=(const OneDnnStays&) = delete;

 private:
  bool on_;
};

/// An error, or from now on the eager function, as the options say.
void distrust(Entry& entry, const CompileOptions& options, const std::string& what) {
  count([](Counters& c) { ++c.mismatches; });
  entry.checks_left = std::numeric_limits<int>::max();  // it is never trusted
  if (options.on_mismatch == OnMismatch::error)
    throw Mismatch(
        "[compile] compiled code and the eager function differ: " + what +
        "\nUse backend=eager for this function, or on_mismatch=eager to go on without compiling it");
  log_warning("[compile] " + what + "; the function runs eagerly");
  entry.distrusted = true;
}

/// How an output of compiled code differs from eager's in what is not its numbers; empty if in nothing.
std::string form_difference(const at::Tensor& got, const at::Tensor& want, bool compare_history) {
  const auto is = [](const char* what, auto g, auto w) {
    std::ostringstream text;
    text << what << " " << g << ", should be " << w;
    return text.str();
  };
  if (got.defined() != want.defined())
    return got.defined() ? "is a tensor, should be undefined" : "is undefined";
  if (!got.defined()) return "";
  if (got.sizes() != want.sizes()) return is("has sizes", got.sizes(), want.sizes());
  if (got.scalar_type() != want.scalar_type()) return is("has dtype", got.scalar_type(), want.scalar_type());
  for (int64_t d = 0; want.numel() > 0 && d < want.dim(); ++d)
    if (want.size(d) > 1 && got.stride(d) != want.stride(d))
      return is("has strides", got.strides(), want.strides());
  if (got.is_conj() != want.is_conj()) return is("has the conjugate bit", got.is_conj(), want.is_conj());
  if (got.is_neg() != want.is_neg()) return is("has the negative bit", got.is_neg(), want.is_neg());
  if (compare_history && got.requires_grad() != want.requires_grad())
    return is("has requires_grad", got.requires_grad(), want.requires_grad());
  if (compare_history && (history_of(got) == nullptr) != (history_of(want) == nullptr))
    return history_of(got) ? "has a grad_fn, should not" : "has no grad_fn";
  return "";
}

/// One run of the program beside an eager call.
class SideRun {
 public:
  SideRun(Entry& entry, const EagerCall& eager, const Flat& call)
      : program_(*entry.program), captured_(*eager.observed.capture), eager_(eager) {
    auto bound = entry.bind(call.tensors);
    if (!bound) throw Error("[compile] an input changed while the function was called");
    given_ = std::move(*bound);
    inputs_ = given_;
    // What it writes to is a copy of what the function was given.
    for (const auto& mutation : program_.mutations()) {
      const auto& held = captured_.input_values[mutation.input];
      inputs_[mutation.input] = copy_as_it_lies(held, held.storage_offset())
                                    .set_requires_grad(given_[mutation.input].requires_grad());
    }
  }

  void run(bool with_gradients) {
    eager_.before.restore();
    auto pass = program_.forward(inputs_);
    results_ = pass.results;
    same_random_state_ = eager_.after.is_now();
    if (with_gradients && program_.trains()) gradients_ = program_.backward(pass, tangents_without({}));
    same_random_state_ &= eager_.after.is_now();  // a backward pass that draws numbers is in no graph
    if (with_gradients) run_partial_backwards(pass);
    eager_.after.restore();
    pass.leaves.reserve(program_.gradients().size());
    for (const auto& gradient : program_.gradients()) pass.leaves.push_back(given_[gradient.input]);
    outputs_ = program_.finish(std::move(pass));
  }

  /// What differs; empty if nothing does.
  std::string compare() {
    const Stopwatch watch("check");
    if (!same_random_state_) return "random numbers: the generator stands elsewhere";
    const auto& want = eager_.made.tensors;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto name = "output " + std::to_string(i) + " ";
      const bool has_history = program_.outputs()[i].kind != Output::Kind::input;
      if (const auto what = form_difference(outputs_[i], want[i], has_history); !what.empty())
        return name + what;
      if (!want[i].defined()) continue;
      if (!is_of_input(i) && outputs_[i].numel() > 0 &&
          outputs_[i].storage_offset() != want[i].storage_offset())
        return name + "begins elsewhere in its memory";
      if (!shares_alike(i)) return name + "shares memory with other tensors than eager's does";
      if (program_.outputs()[i].kind != Output::Kind::computed)
        if (const auto what = difference(outputs_[i], want[i], at::kDouble);
            !what.empty() && !derived_from_doubt(i))
          return name + what;
    }
    leave_out_idle_gradients();
    auto what = result_difference(program_, captured_.input_values, eager_.before, results_, gradients_,
                                  captured_.result_values);
    return what.empty() ? compare_partial_backwards() : what;
  }

  /// What the caller gets: the program's, to the bit as in later calls, so that a run that is stopped and
  /// resumed (and watches its first calls again) is the same run.
  Made result() const {
    const at::NoGradGuard no_grad;
    for (const auto& mutation : program_.mutations())
      given_[mutation.input].variable_data().copy_(inputs_[mutation.input]);
    auto made = eager_.made;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const auto kind = program_.outputs()[i].kind;
      if (kind == Output::Kind::same)
        made.tensors[i] = made.tensors[program_.outputs()[i].index];
      else if (kind != Output::Kind::input && kind != Output::Kind::view)
        made.tensors[i] = outputs_[i];
    }
    return made;
  }

 private:
  bool is_of_input(size_t output) const {
    while (program_.outputs()[output].kind == Output::Kind::same) output = program_.outputs()[output].index;
    const auto kind = program_.outputs()[output].kind;
    return kind == Output::Kind::input || kind == Output::Kind::view;
  }

  /// Whether an output lies in memory of inputs and other outputs just where eager's does.
  bool shares_alike(size_t i) const {
    if (is_of_input(i)) return true;  // made from it
    const auto share = [](const at::Tensor& a, const at::Tensor& b) {
      return storage_of(a) && storage_of(a) == storage_of(b) && !bytes_of(a).empty() && !bytes_of(b).empty();
    };
    if (std::any_of(inputs_.begin(), inputs_.end(),
                    [&](const auto& input) { return share(outputs_[i], input); }))
      return false;
    for (size_t k = 0; k < i; ++k) {
      if (is_of_input(k)) continue;
      const auto &a = eager_.made.tensors[i], &b = eager_.made.tensors[k];
      const bool got = share(outputs_[i], outputs_[k]), want = share(a, b);
      if (got != want && !(want && may_lie_apart(a, b))) return false;
    }
    return true;
  }

  /// Gradients by parameters that are trained at times, and not now, are nobody's. Of an adapter that serves
  /// no row they may be anything, if its weights are.
  void leave_out_idle_gradients() {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const auto& gradient = program_.gradients()[i];
      if (given_[gradient.input].requires_grad() || !gradient.result) continue;
      const auto& want = captured_.result_values[*gradient.result];
      if (!want.isfinite().all().item<bool>()) gradients_[i] = want;
    }
  }

  /// The capture's; those that are absent are undefined.
  std::vector<at::Tensor> tangents_without(const std::vector<bool>& absent) const {
    std::vector<at::Tensor> tangents;
    tangents.reserve(captured_.tangent_inputs.size());
    for (const size_t i : captured_.tangent_inputs)
      tangents.push_back(!absent.empty() && absent[tangents.size()] ? at::Tensor()
                                                                    : captured_.input_values[i]);
    return tangents;
  }

  void run_partial_backwards(Program::Pass& pass) {
    for (const auto& absent : eager_.partial_backwards)
      partials_.push_back({.absent = absent, .got = program_.backward(pass, tangents_without(absent))});
  }

  /// Of the eager call, with the same outputs left out. It has kept its history; only what is trained now has
  /// a place there.
  std::vector<at::Tensor> eager_gradients_without(const std::vector<bool>& absent) const {
    std::vector<at::Tensor> roots, tangents, leaves;
    for (size_t k = 0; k < absent.size(); ++k) {
      if (absent[k]) continue;
      const size_t tangent = captured_.tangent_inputs[k];
      const auto& root = eager_.made.tensors[captured_.sources[tangent].index];
      if (!root.requires_grad()) continue;  // of parameters that are frozen just now
      roots.push_back(root);
      tangents.push_back(captured_.input_values[tangent]);
    }
    for (const auto& gradient : program_.gradients())
      if (given_[gradient.input].requires_grad()) leaves.push_back(given_[gradient.input]);
    if (leaves.empty() || roots.empty()) return std::vector<at::Tensor>(program_.gradients().size());
    const BackwardEndsAt ends(leaves);
    const auto found = torch::autograd::grad(roots, leaves, tangents, /*retain_graph=*/true,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    std::vector<at::Tensor> gradients;
    size_t next = 0;
    for (const auto& gradient : program_.gradients())
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
        return "the eager backward pass fails where not all outputs are used: " +
               text.substr(0, text.find('\n'));
      }
      auto inputs = captured_.input_values;
      for (size_t k = 0; k < partial.absent.size(); ++k)
        if (auto& tangent = inputs[captured_.tangent_inputs[k]]; partial.absent[k])
          tangent = at::zeros_like(tangent);
      auto want = captured_.result_values;
      for (size_t i = 0; i < eager.size(); ++i) {
        const auto& gradient = program_.gradients()[i];
        if (gradient.result) want[*gradient.result] = eager[i];
        if (!given_[gradient.input].requires_grad()) partial.got[i] = at::Tensor();
      }
      auto what = result_difference(program_, std::move(inputs), eager_.before, {}, partial.got, want);
      if (!what.empty()) return what + " where not all outputs are used";
    }
    program_.note_checked(partials_.size());
    return "";
  }

  /// Views of what the comparison judges by itself.
  bool derived_from_doubt(size_t i) const {
    const auto& output = program_.outputs()[i];
    if (output.kind == Output::Kind::part || output.kind == Output::Kind::piece ||
        output.kind == Output::Kind::same)
      return true;
    return std::any_of(program_.mutations().begin(), program_.mutations().end(),
                       [&](const Mutation& mutation) { return mutation.input == output.index; });
  }

  const Program& program_;
  const Capture& captured_;
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

bool draws(const ir::Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return ir::must_run(*node); });
}

}  // namespace

void EagerCall::undo() const {
  observed.undo();
  before.restore();
}

EagerCall call_eagerly(const Flat& call, const Original& original, const ModuleTree& modules,
                       const CompileOptions& options, const Program* program) {
  auto partial_backwards = program ? program->partial_backwards() : std::vector<std::vector<bool>>();
  // Who may get the outputs: the caller, in place of a program's; a comparison of a part of their gradients.
  const bool keep_history =
      !options.fullgraph || options.on_mismatch == OnMismatch::eager || !partial_backwards.empty();
  Made made;
  const Traceable traceable = [&](const std::vector<at::Tensor>& tensors) {
    made = original(tensors);
    return std::move(made.tensors);
  };
  const Stopwatch watch("capture");
  const OneDnnStays one_dnn;
  const StateReads reads;
  RandomState before({}, call.tensors);
  auto observed = [&] {
    try {
      return observe({&traceable, call.tensors, &modules, at::GradMode::is_enabled(), options.fullgraph,
                      program ? program->generators() : std::vector<at::Generator>(), keep_history});
    } catch (const GraphBreak&) {
      before.restore();
      throw;
    }
  }();
  if (observed.capture && reads.left_changed()) {
    observed.broken = "[capture] the function changes which adapters are at work, or a layer of a model";
    observed.capture.reset();
    if (options.fullgraph) {
      observed.undo();
      before.restore();
      throw GraphBreak(observed.broken);
    }
  }
  made.tensors = std::exchange(observed.outputs, {});
  before.add(observed.generators, observed.generator_states);
  RandomState after(observed.generators, call.tensors);
  // Numbers that nobody draws here are left to those who draw them meanwhile, on other threads.
  if (observed.capture && !draws(observed.capture->graph)) before = after = RandomState();
  return {std::move(observed),
          std::move(made),
          std::move(before),
          std::move(after),
          modules.beyond(reads.reads()),
          std::move(partial_backwards)};
}

Made checked_call(Entry& entry, EagerCall& eager, const Flat& call, const CompileOptions& options) {
  try {
    auto what =
        eager.made.fixed == entry.fixed
            ? std::string()
            : "what the function gives besides tensors (numbers, lengths) is not what it was at its capture";
    if (what.empty()) what = changed_since_capture(entry, *eager.observed.capture);
    if (what.empty()) {
      SideRun side(entry, eager, call);
      {
        const Stopwatch watch("first run");
        side.run(options.verify);
      }
      if (options.verify) what = side.compare();
      if (what.empty()) {
        for (size_t i = 0; i < entry.pinned.size(); ++i)
          if (entry.pinned[i].tensor._unsafe_get_target() != call.tensors[i].unsafeGetTensorImpl())
            entry.pinned[i].free.store(true, std::memory_order_release);
        return side.result();
      }
      what += first_difference(*eager.observed.capture, options);
    }
    distrust(entry, options, what);
    return eager.made;
  } catch (...) {
    eager.undo();
    throw;
  }
}

std::string changed_since_capture(const Entry& entry, const Capture& now) {
  const auto& then = *entry.program;
  const auto& before = then.captured_graph();
  const auto again = ir::clone(now.graph);
  auto a = before.nodes().begin();
  for (const auto& node : again.nodes()) {
    if (a == before.nodes().end()) return "the function does more than at its capture: " + at_node(*node);
    if (ir::to_string(**a) != ir::to_string(*node))
      return "the function does something else than at its capture: it did " + at_node(**a) + ", and now " +
             at_node(*node);
    ++a;
  }
  if (a != before.nodes().end()) return "the function does less than at its capture: it did " + at_node(**a);
  bool same = now.sources == then.sources() && now.outside.size() == then.outside().size();
  for (size_t i = 0; same && i < now.outside.size(); ++i)
    same = now.outside[i]._unsafe_get_target() == then.outside()[i]._unsafe_get_target();
  if (!same) return "the function works on other tensors than at its capture, besides its arguments";
  if (now.outputs != then.outputs() || now.mutations != then.mutations() ||
      now.gradients != then.gradients() || ir::to_string(again) != ir::to_string(before))
    return "the function gives or changes other tensors than at its capture";
  return "";
}

std::string kept_beyond(EagerCall& eager, Made& given, bool trains) {
  // Outputs with a history keep what autograd saved, and nobody could tell that from what the function's own
  // code keeps.
  if (trains) eager.made.tensors.clear();
  eager.observed.capture->result_values.clear();
  eager.observed.capture->input_values.clear();
  // Each is held once, here.
  auto results = std::exchange(given.tensors, {});
  const auto count = static_cast<int64_t>(results.size());
  std::move(eager.made.tensors.begin(), eager.made.tensors.end(), std::back_inserter(results));
  eager.made.tensors.clear();
  const auto kept = eager.observed.escaped(results);
  // What it keeps may be what it gave.
  const auto own = results.begin() + count;
  if (!kept.empty() && own != results.end())
    given.tensors.assign(own, results.end());
  else
    given.tensors.assign(results.begin(), own);
  return kept.empty() ? kept
                      : "[capture] the function keeps a tensor beyond the call, the result of " + kept +
                            ": compiled code would not renew it";
}

}  // namespace graft::detail
