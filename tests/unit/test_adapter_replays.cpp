// A replay of a model with adapters does what its program does, whichever adapters are trained, at rest or at
// work: torch's own code must not go another way for one whose tensors want no gradient.
#include <gtest/gtest.h>

#include "graft/peft.h"
#include "unit/adapter_scene.h"

namespace graft {
namespace {

using testing_tools::base_of;
using testing_tools::check_law;
using testing_tools::inputs_of;
using testing_tools::peft_of;
using testing_tools::Scene;
using testing_tools::scenes;

/// Empty if each call after the first of its kind is its program's.
std::string differences(const std::shared_ptr<PeftModel>& peft, const ModelInputs& inputs) {
  const at::NoGradGuard no_grad;
  peft->eval();
  const auto fast = compile(peft, {.fullgraph = true, .replay = Replay::every});
  fast(inputs);
  const auto before = counters();
  for (int round = 0; round < 2; ++round)
    for (const auto& name : peft->adapter_names()) {
      peft->set_adapter(name);
      fast(inputs);
    }
  const auto now = counters();
  if (now.replays == before.replays) return "no call was replayed";
  const auto count = now.replay_differences - before.replay_differences;
  return count == 0 ? "" : std::to_string(count) + " replays did something else than their program";
}

TEST(AdapterReplays, FindNoDifferences) {
  check_law(15, scenes(2, /*on_layers=*/true),
            [](const Scene& scene) { return differences(peft_of(scene), inputs_of(scene)); });
}

// W1's product was one of four dimensions, which torch takes apart by whether a factor wants a gradient.
TEST(AdapterReplays, OfLoKrFindNoDifferences) {
  const Scene scene{.model = 0,
                    .heads = 2,
                    .head_size = 8,
                    .inner = 24,
                    .layers = 1,
                    .padded = false,
                    .seed = 3,
                    .adapters = {}};
  for (const bool both : {false, true}) {
    const auto peft = std::make_shared<PeftModel>(base_of(scene));
    for (const char* name : {"first", "second"})
      peft->add_adapter(
          name, LoKrConfig{.r = 2, .decompose_both = both, .target_modules = {"q_proj", "down_proj"}});
    EXPECT_EQ(differences(peft, inputs_of(scene)), "") << both;
  }
}

}  // namespace
}  // namespace graft
