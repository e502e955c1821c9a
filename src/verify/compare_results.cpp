#include "verify/compare_results.h"

#include <ATen/ATen.h>

#include <optional>

#include "runtime/residency_scope.h"
#include "verify/cancelling_sums.h"
#include "verify/derived_results.h"
#include "verify/double_precision.h"
#include "verify/rounding_noise.h"
#include "verify/tolerance.h"

namespace graft::verify {
namespace {

/// Compares tensor by tensor. Where the two differ by more than rounding usually does, they may both be
/// right. Adam divides a gradient by its own size: where that is all rounding, so is the new parameter, and
/// both sides' follow from the averages they have. A sum may be small beside what it is the sum of. Else the
/// graph is run in double precision: a value that nearly cancels, or lies at a kink, is noise in both, and
/// neither is wrong.
class Comparison {
 public:
  Comparison(const CapturedFunction& captured, std::vector<at::Tensor> graph_inputs,
             const GeneratorStates& before)
      : captured_(captured),
        inputs_(std::move(graph_inputs)),
        before_(before),
        got_(captured.graph.results().size()),
        want_(got_.size()),
        computed_in_(coarsest_dtype(captured.graph)) {}

  std::string operator()(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& gradients,
                         const std::vector<at::Tensor>& want) {
    some_outputs_ = results.empty();
    for (size_t i = 0; !results.empty() && i < captured_.outputs.size(); ++i) {
      const auto& output = captured_.outputs[i];
      if (output.kind != Output::Kind::computed) continue;
      compare(results[output.index], want[output.index], output.index, "output " + std::to_string(i));
    }
    for (size_t i = 0; !results.empty() && i < captured_.mutations.size(); ++i) {
      const auto& mutation = captured_.mutations[i];
      compare(results[mutation.result], want[mutation.result], mutation.result,
              "the new value of " + captured_.graph.input_name(mutation.input));
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto& gradient = captured_.gradients[i];
      compare(gradients[i], gradient.result ? want[*gradient.result] : at::Tensor(),
              gradient.result.value_or(0), "the gradient of " + captured_.graph.input_name(gradient.input));
    }
    for (const auto& suspect : suspects_) {
      const auto verdict = judge_by_other_results(suspect);
      if (verdict == Verdict::wrong ||
          (verdict == Verdict::unknown && !is_within_terms(suspect) && !is_within_rounding(suspect)))
        return suspect.name + ": " + suspect.difference;
    }
    return "";
  }

 private:
  struct Suspect {
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
      suspects_.push_back({got, want, result, name, std::move(found)});
    }
  }

  enum class Verdict { right, wrong, unknown };

  /// Right: on both sides the value is what the graph makes of the others. Wrong: eager's is not what the
  /// graph makes of eager's own, which differ in nothing (a few, at a kink, may part by how memory was laid
  /// out).
  Verdict judge_by_other_results(const Suspect& suspect) const {
    if (!suspect.got.defined() || !suspect.want.defined() || suspect.got.sizes() != suspect.want.sizes() ||
        !suspect.want.is_floating_point())
      return Verdict::unknown;
    const runtime::ResidencyScope weights(inputs_);
    const auto& graph = captured_.graph;
    auto eager = recompute_from_results(graph, suspect.result, inputs_, want_);
    if (!eager.defined() || eager.sizes() != suspect.want.sizes()) return Verdict::unknown;
    // The graph has zeros for outputs that are not used, and zero times infinity is not a number; eager code
    // computes nothing there.
    if (some_outputs_)
      eager =
          at::where(eager.isfinite().logical_or(suspect.want.isfinite().logical_not()), eager, suspect.want);
    if (fraction_differing(eager, suspect.want, computed_in_) > max_fraction_at_kinks) return Verdict::wrong;
    const auto compiled = recompute_from_results(graph, suspect.result, inputs_, got_);
    return compiled.defined() && difference(suspect.got, compiled, computed_in_).empty() &&
                   difference(suspect.want, eager, computed_in_).empty()
               ? Verdict::right
               : Verdict::unknown;
  }

  /// For what runs the graph as a whole once more: the weights are there, and generators stand afterwards as
  /// they do now.
  template <class Run>
  auto run_separately(Run run) const {
    const runtime::ResidencyScope weights(inputs_);
    const auto after = before_.empty() ? GeneratorStates() : GeneratorStates(captured_.generators, inputs_);
    auto result = run();
    after.restore();
    return result;
  }

  /// Whether what is left of a sum differs by no more than its terms may by rounding. Stricter than the
  /// comparison where nothing cancels: of terms that all have the same sign it allows a 200th.
  bool is_within_terms(const Suspect& suspect) {
    if (computed_in_ == at::kDouble || !suspect.got.defined() || !suspect.want.defined() ||
        suspect.got.sizes() != suspect.want.sizes())
      return false;
    if (!terms_) {
      std::vector<size_t> results;
      results.reserve(suspects_.size());
      for (const auto& d : suspects_) results.push_back(d.result);
      terms_ = run_separately([&] {
        before_.restore();
        try {
          const auto which = computed_in_ == at::kFloat ? Sums::all : Sums::of_two;
          return sums_of_magnitudes(captured_.graph, which, results, inputs_, captured_.generators);
        } catch (const std::exception&) {
          return std::vector<at::Tensor>(results.size());  // another judge will say
        }
      });
    }
    const auto& terms = (*terms_)[static_cast<size_t>(&suspect - suspects_.data())];
    if (!terms.defined()) return false;
    const at::NoGradGuard no_grad;
    // In float, seen: 6e-7. In halves a term may be rounded on one side alone.
    const double rounding = computed_in_ == at::kFloat      ? 5e-6
                            : computed_in_ == at::kBFloat16 ? 0x1p-8
                                                            : 0x1p-11;
    const auto apart = (suspect.got.to(at::kFloat) - suspect.want.to(at::kFloat)).abs();
    return at::le(apart, terms.to(at::kFloat) * rounding).all().item<bool>();
  }

  bool is_within_rounding(const Suspect& suspect) {
    if (!suspect.want.defined() || !suspect.got.defined() || suspect.want.is_complex()) return false;
    return run_separately([&] {
      if (!runs_) {
        before_.restore();
        runs_.emplace(captured_.graph, inputs_, captured_.generators);
      }
      return suspect.result < runs_->precise().size() &&
             rounding_explains(suspect.got, suspect.want, suspect.result);
    });
  }

  /// Runs as often as it takes to see the rounding that explains the difference. Ten runs that all miss a
  /// kink on whose other side `got` lies happen once in a thousand times; in half precision, where there is
  /// less rounding to put in for what is allowed, it takes more.
  bool rounding_explains(const at::Tensor& got, const at::Tensor& want, size_t result) {
    const size_t enough = at::isReducedFloatingType(computed_in_) ? 30 : 10;
    while (true) {
      std::vector<at::Tensor> others;
      others.reserve(perturbed_.size());
      for (const auto& run : perturbed_) others.push_back(run[result]);
      if (is_rounding_noise(got, want, runs_->plain()[result], runs_->precise()[result], others, computed_in_,
                            runs_->may_overflow()))
        return true;
      if (perturbed_.size() == enough) return false;
      perturbed_.push_back(runs_->perturbed());
    }
  }

  const CapturedFunction& captured_;
  std::vector<at::Tensor> inputs_;
  const GeneratorStates& before_;
  std::vector<at::Tensor> got_, want_;  // by result: those that agree
  at::ScalarType computed_in_;
  bool some_outputs_ = false;  // gradients by some of the outputs are compared
  std::vector<Suspect> suspects_;
  std::optional<std::vector<at::Tensor>> terms_;  // by suspect: the sum of its terms' sizes
  std::optional<DoublePrecisionRuns> runs_;
  std::vector<std::vector<at::Tensor>> perturbed_;
};

}  // namespace

std::string result_difference(const CapturedFunction& captured, std::vector<at::Tensor> inputs,
                              const GeneratorStates& before, const std::vector<at::Tensor>& results,
                              const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& want) {
  return Comparison(captured, std::move(inputs), before)(results, gradients, want);
}

}  // namespace graft::verify
