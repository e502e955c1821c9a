#include "compiler/checked_call.h"

#include <limits>

#include "compiler/build.h"
#include "compiler/counters.h"
#include "runtime/assumption.h"
#include "support/log.h"
#include "verify/first_wrong_node.h"

namespace graft {
namespace {

/// An error, or from now on the eager function, as the options say.
void distrust(GuardedProgram& guarded, const CompileOptions& options, const std::string& difference) {
  count([](Counters& c) { ++c.mismatches; });
  guarded.checks_left = std::numeric_limits<int>::max();  // it is never trusted
  if (options.on_mismatch == OnMismatch::error)
    throw Mismatch(
        "[compile] compiled code and the eager function differ: " + difference +
        "\nUse backend=eager for this function, or on_mismatch=eager to run it eagerly after a mismatch");
  log_warning("[compile] compiled code and the eager function differ: " + difference +
              ". The function runs eagerly from now on; use backend=eager for it to compile nothing");
  guarded.reason = "compiled code and the eager function differ: " + difference;
  guarded.distrusted = true;
}

}  // namespace

detail::FlatResult checked_call(GuardedProgram& guarded, const verify::EagerCall& eager,
                                const detail::FlatArguments& call, const CompileOptions& options) {
  try {
    const auto& captured = *eager.observed.capture;
    const bool gives_other_values = eager.result.fixed != guarded.fixed;
    if (gives_other_values) guarded.replays.note_change();
    auto difference = !gives_other_values || options.replay != Replay::off
                          ? verify::changed_since_capture(guarded.program->captured(), captured)
                          : "the function gives other values that are not tensors (numbers, lengths) than "
                            "when it was captured";
    if (difference.empty()) {
      auto bound = guarded.bind(call.tensors);
      if (!bound)
        throw Error(
            "[compile] an input changed while the function was called. Change parameters and buffers outside "
            "of the compiled function");
      // The same path has the same inputs in the same places.
      for (size_t i = 0; i < bound->size(); ++i) {
        const auto& [kind, index] = captured.sources[i];
        if (kind == Source::Kind::number)
          (*bound)[i] = number_in(*captured.trace, captured.told.numbers[index]);
        if (kind == Source::Kind::told) (*bound)[i] = at::Tensor(captured.told_tensors[index].lock());
      }
      auto verdict = verify::check_program(*guarded.program, std::move(*bound), eager, options.verify);
      if (verdict.difference.empty()) {
        guarded.free_pins(call.tensors);
        return std::move(verdict.result);
      }
      difference = verdict.difference + verify::first_wrong_node(captured, [&](ir::Graph graph) {
                     return build(std::move(graph), captured.generators, options, {});
                   });
    }
    distrust(guarded, options, difference);
    return eager.result;
  } catch (const runtime::AssumptionFailed&) {
    // A comparison of values that rounding has made others: nothing is known of the program by that. Without
    // a history the eager result is not what the caller may get.
    if (options.fullgraph && guarded.program->trains()) {
      eager.undo();
      throw;
    }
    return eager.result;
  } catch (...) {
    eager.undo();
    throw;
  }
}

}  // namespace graft
