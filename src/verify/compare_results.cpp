#include "verify/compare_results.h"

#include <ATen/ATen.h>

#include <optional>

#include "verify/cancelling_sums.h"
#include "verify/derived_results.h"
#include "verify/double_precision.h"
#include "runtime/residency_scope.h"

namespace graft {
namespace {

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

  std::string operator()(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& gradients,
                         const std::vector<at::Tensor>& want) {
    for (size_t i = 0; !results.empty() && i < program_.outputs().size(); ++i) {
      const auto& output = program_.outputs()[i];
      if (output.kind != Output::Kind::computed) continue;
      compare(results[output.index], want[output.index], output.index, "output " + std::to_string(i));
    }
    for (size_t i = 0; !results.empty() && i < program_.mutations().size(); ++i) {
      const auto& mutation = program_.mutations()[i];
      compare(results[mutation.result], want[mutation.result], mutation.result,
              "the new value of " + program_.captured_graph().input_name(mutation.input));
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto& gradient = program_.gradients()[i];
      compare(gradients[i], gradient.result ? want[*gradient.result] : at::Tensor(),
              gradient.result.value_or(0),
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
    if (share_apart(eager, doubt.want, computed_in_) > few_at_a_kink) return Verdict::wrong;
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
    const auto after = before_.empty() ? RandomState() : RandomState(program_.generators(), inputs_);
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
    if (!doubt.want.defined() || !doubt.got.defined() || doubt.want.is_complex()) return false;
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
      if (is_noise(got, want, runs_->plain()[result], runs_->precise()[result], others, computed_in_,
                   runs_->may_overflow()))
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

}  // namespace

std::string result_difference(const Program& program, std::vector<at::Tensor> inputs,
                              const RandomState& before, const std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& want) {
  return Comparison(program, std::move(inputs), before)(results, gradients, want);
}

}  // namespace graft
