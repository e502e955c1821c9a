// Mode max-autotune: every plan that may be tried computes the same, and what was measured is not measured
// again.
#include <gtest/gtest.h>

#include "cache/choices.h"
#include "codegen/fusion.h"
#include "compiled_check.h"
#include "compiler/lower.h"
#include "graft/compile.h"
#include "passes/pipeline.h"
#include "targets/cpu/launch.h"
#include "targets/targets.h"

namespace graft {
namespace {

using testing_tools::differs;
using testing_tools::numbers_for;

/// Over all plans of all kernels; the number of plans.
int64_t expect_same_for_all_plans(const std::string& text) {
  auto graph = ir::parse(text);
  passes::run_passes(passes_for(target_for({})), graph);
  at::manual_seed(2);
  std::vector<at::Tensor> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(numbers_for(input->type()));
  const auto want = ref::compile(graph, {})->run(inputs);
  const auto schedule = codegen::schedule(graph, target_for({}).limits());
  int64_t plans = 0;
  for (size_t number = 0, most = 1; number < most; ++number) {
    CompiledKernels kernels;
    for (const auto& step : schedule.steps) {
      if (step.external) continue;
      const auto tunings = cpu::tunings(step.kernel, cpu::host());
      EXPECT_EQ(tunings.front(), cpu::Tuning{});
      most = std::max(most, tunings.size());
      const cpu::TunedKernel tuned{&step.kernel, tunings[std::min(number, tunings.size() - 1)]};
      kernels.launchers.push_back(cpu::make_launcher(cpu::compile_kernels({tuned}, false).kernels[0]));
    }
    const auto got = make_scheduled(graph, schedule, kernels, {}, {}, target_for({}).device({}))->run(inputs);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(differs(got[i], want[i]), "") << "result " << i << " with plan " << number << " of\n" << text;
    ++plans;
  }
  return plans;
}

TEST(Tuning, AllPlansComputeTheSame) {
  EXPECT_GE(expect_same_for_all_plans(R"(graph(%0 "x": f32[37, 1000], %1 "b": f32[1000]) {
  %2: f32[37, 1000] = aten::add.Tensor(self=%0, other=%1)
  %3: f32[37, 1000] = aten::gelu(self=%2)
  return (%3)
}
)"),
            3);
  EXPECT_GE(expect_same_for_all_plans(R"(graph(%0 "x": f32[23, 333]) {
  %1: f32[23, 333] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  return (%1)
}
)"),
            2);
  EXPECT_GE(expect_same_for_all_plans(R"(graph(%0 "x": bf16[513, 70], %1 "y": f32[513, 70]) {
  %2: f32[513, 70] = aten::mul.Tensor(self=%0, other=%1)
  %3: f32[70] = aten::sum.dim_IntList(self=%2, dim=[0], keepdim=false)
  %4: f32[] = aten::sum(self=%2)
  return (%3, %4)
}
)"),
            2);
  EXPECT_GE(expect_same_for_all_plans(R"(graph(%0 "x": f32[64, 96], %1 "i": i64[40]) {
  %2: f32[40, 96] = aten::index_select(self=%0, dim=0, index=%1)
  %3: f32[96, 40]{1, 96} = aten::t(self=%2)
  %4: f32[96, 40] = aten::clone(self=%3, memory_format='contiguous_format)
  %5: f32[96, 1] = aten::amax(self=%4, dim=[1], keepdim=true)
  %6: f32[96, 40] = aten::sub.Tensor(self=%4, other=%5)
  return (%6)
}
)"),
            2);
}

TEST(Tuning, AFunctionComputesTheSame) {
  const auto run = [] {
    const at::NoGradGuard no_grad;
    const auto x = at::randn({64, 4096});
    const auto fast = compile([](at::Tensor y) { return at::softmax(y * 1.25 + 3.5, -1).cumsum(0); },
                              {.mode = Mode::max_autotune, .fullgraph = true, .cache = false});
    for (int call = 0; call < 3; ++call)
      EXPECT_EQ(differs(fast(x), at::softmax(x * 1.25 + 3.5, -1).cumsum(0)), "");
  };
  run();
  reset();
  run();
  EXPECT_EQ(counters().mismatches, 0);
}

TEST(Choices, AreMeasuredOnce) {
  int64_t asked = 0;
  const auto measure = [&] { return ++asked; };
  EXPECT_EQ(cache::choose("a question of a test", false, measure), 1);
  EXPECT_EQ(cache::choose("a question of a test", false, measure), 1);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace graft
