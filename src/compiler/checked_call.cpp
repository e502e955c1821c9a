#include "compiler/checked_call.h"

#include <ATen/Context.h>
#include <torch/autograd.h>

#include "compiler/cancelled.h"
#include "compiler/check.h"
#include "compiler/counters.h"
#include "compiler/diagnose.h"
#include "compiler/follows.h"
#include "compiler/precise.h"
#include "runtime/present.h"
#include "support/log.h"
#include "support/stopwatch.h"

namespace graft::detail {
namespace {

/// What the function did, in the order of the program's results.
struct Reference {
  Made made;
  std::vector<at::Tensor> outputs, mutated, gradients;
};

/// Compares tensor by tensor. Where the two differ by more than rounding usually does, they may both be
/// right. Adam divides a gradient by its own size: where that is all rounding, so is the new parameter, and
/// both sides' follow from the averages they have. A sum may be small beside what it is the sum of. Else the
/// graph is run in double precision: a value that nearly cancels, or lies at a kink, is noise in both, and
/// neither is wrong.
class Comparison {
 public:
  Comparison(const Program& program, std::vector<at::Tensor> graph_inputs, const RandomState& before)
      : program_(program),
        inputs_(std::move(graph_inputs)),
        before_(before),
        got_(program.captured_graph().results().size()),
        want_(got_.size()),
        computed_in_(coarsest_of(program.captured_graph())) {}

  std::string operator()(const Program::Pass& pass, const std::vector<at::Tensor>& gradients,
                         const Reference& want) {
    for (size_t i = 0; i < program_.outputs().size(); ++i) {
      const auto& output = program_.outputs()[i];
      if (output.kind != Output::Kind::computed) continue;
      compare(pass.results[output.index], want.outputs[i], output.index, "output " + std::to_string(i));
    }
    for (size_t i = 0; i < program_.mutations().size(); ++i) {
      const auto& mutation = program_.mutations()[i];
      compare(pass.results[mutation.result], want.mutated[i], mutation.result,
              "the new value of " + program_.captured_graph().input_name(mutation.input));
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto& gradient = program_.gradients()[i];
      compare(gradients[i], want.gradients[i], gradient.result.value_or(0),
              "the gradient of " + program_.captured_graph().input_name(gradient.input));
    }
    for (const auto& doubt : doubts_) {
      const auto verdict = follows(doubt);
      if (verdict == Verdict::wrong ||
          (verdict == Verdict::unknown && !cancelled(doubt) && !judged_noise(doubt)))
        return doubt.name + " " + doubt.difference;
    }
    return "";
  }

 private:
  struct Doubt {
    at::Tensor got, want;
    size_t result;
    std::string name, difference;
  };

  void compare(const at::Tensor& got, const at::Tensor& want, size_t result, const std::string& name) {
    auto found = difference(got, want, computed_in_);
    if (found.empty()) {
      got_[result] = got;
      want_[result] = want;
    } else {
      doubts_.push_back({got, want, result, name, std::move(found)});
    }
  }

  enum class Verdict { right, wrong, unknown };

  /// Right: on both sides the value is what the graph makes of the others. Wrong: eager's is not what the
  /// graph makes of eager's own, which differ in nothing (a few, at a kink, may part by how memory was laid
  /// out).
  Verdict follows(const Doubt& doubt) const {
    if (!doubt.got.defined() || !doubt.want.defined() || doubt.got.sizes() != doubt.want.sizes() ||
        !doubt.want.is_floating_point())
      return Verdict::unknown;
    const runtime::Present weights(inputs_);
    const auto& graph = program_.captured_graph();
    const auto eager = computed_from(graph, doubt.result, inputs_, want_);
    if (!eager.defined() || eager.sizes() != doubt.want.sizes()) return Verdict::unknown;
    constexpr double few = 0.01;
    if (share_apart(eager, doubt.want, computed_in_) > few) return Verdict::wrong;
    const auto compiled = computed_from(graph, doubt.result, inputs_, got_);
    return compiled.defined() && difference(doubt.got, compiled, computed_in_).empty() &&
                   difference(doubt.want, eager, computed_in_).empty()
               ? Verdict::right
               : Verdict::unknown;
  }

  /// For what runs the graph as a whole once more: the weights are there, and generators stand afterwards as
  /// they do now.
  template <class Run>
  auto aside(Run run) const {
    const runtime::Present weights(inputs_);
    const RandomState after(program_.generators(), inputs_);
    auto result = run();
    after.restore();
    return result;
  }

  /// Whether what is left of a sum differs by no more than its terms may by rounding. Stricter than the
  /// comparison where nothing cancels: of terms that all have the same sign it allows a 200th.
  bool cancelled(const Doubt& doubt) {
    if (computed_in_ != at::kFloat || !doubt.got.defined() || !doubt.want.defined() ||
        doubt.got.sizes() != doubt.want.sizes())
      return false;
    if (!terms_) {
      std::vector<size_t> results;
      results.reserve(doubts_.size());
      for (const auto& d : doubts_) results.push_back(d.result);
      terms_ = aside([&] {
        before_.restore();
        try {
          return sums_of_sizes(program_.captured_graph(), results, inputs_, program_.generators());
        } catch (const std::exception&) {
          return std::vector<at::Tensor>(results.size());  // another judge will say
        }
      });
    }
    const auto& terms = (*terms_)[static_cast<size_t>(&doubt - doubts_.data())];
    if (!terms.defined()) return false;
    const at::NoGradGuard no_grad;
    constexpr double rounding = 5e-6;  // seen: 6e-7
    return at::le((doubt.got - doubt.want).abs(), terms * rounding).all().item<bool>();
  }

  bool judged_noise(const Doubt& doubt) {
    if (!doubt.want.defined() || !doubt.got.defined() || !doubt.want.is_floating_point()) return false;
    return aside([&] {
      if (!runs_) {
        before_.restore();
        runs_.emplace(program_.captured_graph(), inputs_, program_.generators());
      }
      return doubt.result < runs_->precise().size() && is_noise_of(doubt.got, doubt.want, doubt.result);
    });
  }

  /// Runs as often as it takes to see the rounding that explains the difference. Ten runs that all miss a
  /// kink on whose other side `got` lies happen once in a thousand times; in half precision, where there is
  /// less rounding to put in for what is allowed, it takes more.
  bool is_noise_of(const at::Tensor& got, const at::Tensor& want, size_t result) {
    const size_t enough = at::isReducedFloatingType(computed_in_) ? 30 : 10;
    while (true) {
      std::vector<at::Tensor> others;
      others.reserve(perturbed_.size());
      for (const auto& run : perturbed_) others.push_back(run[result]);
      if (is_noise(got, want, runs_->plain()[result], runs_->precise()[result], others, computed_in_))
        return true;
      if (perturbed_.size() == enough) return false;
      perturbed_.push_back(runs_->perturbed());
    }
  }

  const Program& program_;
  std::vector<at::Tensor> inputs_;
  const RandomState& before_;
  std::vector<at::Tensor> got_, want_;  // by result: those that agree
  at::ScalarType computed_in_;
  std::vector<Doubt> doubts_;
  std::optional<std::vector<at::Tensor>> terms_;  // by doubt: the sum of its terms' sizes
  std::optional<PreciseRuns> runs_;
  std::vector<std::vector<at::Tensor>> perturbed_;
};

/// Tangents for a check: fixed, and of every magnitude alike.
std::vector<at::Tensor> make_tangents(const Program& program, const Program::Pass& pass) {
  std::vector<at::Tensor> tangents;
  for (const auto& output : program.outputs()) {
    if (output.kind != Output::Kind::computed || !output.requires_grad) continue;
    const auto& like = pass.results[output.index];
    const auto values = at::linspace(-1.0, 1.3, like.numel(), at::kFloat).view(like.sizes());
    tangents.push_back(values.to(like.options()));
  }
  return tangents;
}

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

/// A program has gradients for parameters that may be frozen just now; to compare, eager needs them too.
class WithGradients {
 public:
  explicit WithGradients(const std::vector<at::Tensor>& leaves) {
    for (const auto& leaf : leaves)
      if (!leaf.requires_grad()) frozen_.push_back(leaf);
    set(true);
  }
  ~WithGradients() { set(false); }
  WithGradients(const WithGradients&) = delete;
  WithGradients& operator=(const WithGradients&) = delete;

 private:
  void set(bool on) {
    for (auto& leaf : frozen_) leaf.set_requires_grad(on);
  }
  std::vector<at::Tensor> frozen_;
};

Reference run_eager(const Program& program, const Program::Pass& pass,
                    const std::vector<at::Tensor>& tangents, const Flat& call, const Original& original) {
  std::vector<at::Tensor> leaves;
  for (const auto& gradient : program.gradients()) leaves.push_back(pass.inputs[gradient.input]);
  const WithGradients all(leaves);
  const OneDnnStays one_dnn;
  Reference want{original(call.tensors), {}, {}, {}};
  want.outputs = want.made.tensors;
  for (const auto& mutation : program.mutations())
    want.mutated.push_back(pass.inputs[mutation.input].detach());
  if (!program.trains()) return want;
  std::vector<at::Tensor> roots;
  for (size_t i = 0; i < program.outputs().size(); ++i)
    if (program.outputs()[i].kind == Output::Kind::computed && program.outputs()[i].requires_grad)
      roots.push_back(want.outputs[i]);
  // The graph is kept: with on_mismatch=eager the caller gets these outputs.
  want.gradients =
      torch::autograd::grad(roots, leaves, tangents, /*retain_graph=*/true, /*create_graph=*/false,
                            /*allow_unused=*/true);
  return want;
}

/// An error, or from now on the eager function, as the options say.
void distrust(Entry& entry, const CompileOptions& options, const std::string& what) {
  count([](Counters& c) { ++c.mismatches; });
  if (options.on_mismatch == OnMismatch::error)
    throw Mismatch(
        "[compile] compiled code and the eager function differ: " + what +
        "\nUse backend=eager for this function, or on_mismatch=eager to go on without compiling it");
  log_warning("[compile] " + what + "; the function runs eagerly");
  entry.distrusted = true;
}

}  // namespace

Capture capture_call(const Flat& call, const Original& original, const ModuleTree& modules,
                     std::shared_ptr<const void>& frame) {
  const Traceable traceable = [&](const std::vector<at::Tensor>& tensors) {
    auto made = original(tensors);
    frame = made.frame;
    return std::move(made.tensors);
  };
  if (call.refused) throw GraphBreak(std::string("[capture] ") + call.refused);
  const Stopwatch watch("capture");
  const OneDnnStays one_dnn;
  return capture({&traceable, call.tensors, &modules, at::GradMode::is_enabled()});
}

void guard_inputs(const Capture& captured, Entry& entry) {
  entry.inputs.resize(captured.sources.size());
  for (size_t i = 0; i < captured.sources.size(); ++i) {
    const auto& source = captured.sources[i];
    if (source.kind == Source::Kind::slot) {
      const auto& slot = entry.modules->slots()[source.index];
      // Without gradients nobody asks who wants one.
      entry.inputs[i] = TensorGuard(slot.tensor(), slot.at_times || !at::GradMode::is_enabled());
    }
    if (source.kind == Source::Kind::outside)
      entry.inputs[i] = TensorGuard(at::Tensor(captured.outside[source.index].lock()));
  }
}

Made first_call(Entry& entry, const Capture& captured, const Flat& call, const Original& original,
                const CompileOptions& options) {
  const auto& program = *entry.program;
  auto bound = entry.bind(call.tensors);
  if (!bound) throw Error("[compile] an input changed while the function was compiled");
  const RandomState before(program.generators(), call.tensors);
  auto pass = [&] {
    const Stopwatch watch("first run");
    return program.forward(std::move(*bound));
  }();
  entry.checks_left = options.verify ? checks_before_trust - 1 : 0;
  if (options.verify) {
    const Stopwatch watch("check");
    Reference want;
    want.outputs.resize(program.outputs().size());
    for (size_t i = 0; i < program.outputs().size(); ++i)
      if (program.outputs()[i].kind == Output::Kind::computed)
        want.outputs[i] = captured.result_values[program.outputs()[i].index];
    for (const auto& mutation : program.mutations())
      want.mutated.push_back(captured.result_values[mutation.result]);
    std::vector<at::Tensor> tangents, gradients;
    for (const size_t i : captured.tangent_inputs) tangents.push_back(captured.input_values[i]);
    if (program.trains()) gradients = program.backward(pass, tangents);
    for (const auto& gradient : program.gradients())
      want.gradients.push_back(gradient.result ? captured.result_values[*gradient.result] : at::Tensor());
    if (const auto what = Comparison(program, captured.input_values, before)(pass, gradients, want);
        !what.empty()) {
      distrust(entry, options, what + first_difference(captured, options));
      return original(call.tensors);
    }
  }
  return {program.finish(std::move(pass)), entry.frame};
}

Made checked_call(Entry& entry, std::vector<at::Tensor> bound, const Flat& call, const Original& original,
                  const CompileOptions& options) {
  const auto program = entry.program;
  const RandomState before(program->generators(), call.tensors);
  auto pass = program->forward(std::move(bound));
  std::vector<at::Tensor> tangents, gradients;
  if (program->trains()) {
    tangents = make_tangents(*program, pass);
    gradients = program->backward(pass, tangents);
  }
  // What the graph ran on, before the eager function writes into it.
  auto graph_inputs = pass.inputs;
  for (const auto& mutation : program->mutations())
    graph_inputs[mutation.input] = graph_inputs[mutation.input].detach().clone();
  graph_inputs.insert(graph_inputs.end(), tangents.begin(), tangents.end());
  before.restore();
  const auto want = run_eager(*program, pass, tangents, call, original);
  if (const auto what = Comparison(*program, graph_inputs, before)(pass, gradients, want); !what.empty()) {
    distrust(entry, options, what + changed_since_capture(entry, call, original));
    return want.made;
  }
  if (entry.checks_left.load(std::memory_order_relaxed) > 0)
    entry.checks_left.fetch_sub(1, std::memory_order_release);
  return {program->finish(std::move(pass)), entry.frame};
}

}  // namespace graft::detail
