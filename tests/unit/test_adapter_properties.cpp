// Laws that hold for every model, every method and every weight: random scenes, which shrink when one fails.
//
// Where a law says "bit for bit", the two sides run the same operations on the same numbers. Elsewhere they
// add in another order, and only rounding may tell them apart.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graft/error.h"
#include "unit/adapter_scene.h"
#include "unit/temp_dir.h"

namespace graft {
namespace {

using testing_tools::base_of;
using testing_tools::check_law;
using testing_tools::inputs_of;
using testing_tools::not_near;
using testing_tools::not_same;
using testing_tools::peft_of;
using testing_tools::result;
using testing_tools::row_of;
using testing_tools::Scene;
using testing_tools::scenes;

/// Enough that every method meets every model now and then; the suite is run often.
constexpr int kScenes = 60;

NamedTensors weights_of(const PreTrainedModel& model) {
  NamedTensors all;
  for (const auto& [path, tensor] : model.unique_parameters()) all.emplace_back(path, tensor.detach());
  return all;
}

NamedTensors copied(const NamedTensors& tensors) {
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.clone());
  return copies;
}

at::Tensor base_result(const Scene& scene) {
  const at::NoGradGuard no_grad;
  return base_of(scene)->forward(inputs_of(scene)).logits;
}

/// The first of these that is not empty.
std::string first(std::initializer_list<std::pair<const char*, std::string>> findings) {
  for (const auto& [what, why] : findings)
    if (!why.empty()) return std::string(what) + ": " + why;
  return "";
}

TEST(AdapterLaws, AnAdapterChangesSomething) {
  // Without this, every law below could hold because adapters do nothing.
  check_law(kScenes, scenes(1), [](const Scene& scene) -> std::string {
    // Products of three small numbers (AdaLoRA, VB-LoRA), on a small model's queries, are lost in rounding.
    const auto peft = peft_of(scene, /*noise=*/0.5);
    const auto with = result(*peft, inputs_of(scene)), without = base_result(scene);
    return with.sizes() == without.sizes() && at::allclose(with, without) ? "it does nothing" : "";
  });
}

TEST(AdapterLaws, DisabledIsTheBase) {
  check_law(kScenes, scenes(2), [](const Scene& scene) {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    const auto before = result(*peft, inputs), base = base_result(scene);
    at::Tensor disabled;
    {
      const auto off = peft->disable_adapter();
      disabled = result(*peft, inputs);
    }
    const std::vector<std::string> none(3, "__base__");
    return first({{"disabled", not_same(disabled, base)},
                  {"by rows", not_same(result(*peft, inputs, {none}), base)},
                  {"enabled again", not_same(result(*peft, inputs), before)}});
  });
}

TEST(AdapterLaws, MergedIsUnmergedUpToRounding) {
  check_law(kScenes, scenes(1, /*on_layers=*/true), [](const Scene& scene) {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    const auto weights = copied(weights_of(*peft->base_model()));
    const auto before = result(*peft, inputs);
    peft->merge_adapter();
    const auto merged = result(*peft, inputs);
    peft->unmerge_adapter();
    return first({{"merged", not_near(merged, before)},
                  {"unmerged", not_same(result(*peft, inputs), before)},
                  {"weights", not_same(weights_of(*peft->base_model()), weights)}});
  });
}

TEST(AdapterLaws, UnmergedIsAsBeforeInHalfPrecision) {
  check_law(kScenes / 2, scenes(2, /*on_layers=*/true), [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    for (const auto& [path, parameter] : peft->base_model()->unique_parameters()) {
      auto tensor = parameter;
      tensor.set_data(tensor.to(scene.seed % 2 ? at::kHalf : at::kBFloat16));
    }
    const auto inputs = inputs_of(scene);
    const auto weights = copied(weights_of(*peft->base_model()));
    const auto before = result(*peft, inputs);
    for (const bool safe : {true, false}) {
      peft->merge_adapter({.safe_merge = safe});
      // Once more, and the other one too: what is put back is what was there at first. Two that bring the
      // same layer are refused, and the first stays merged.
      try {
        peft->merge_adapter({.adapter_names = {"a0", "a1"}, .safe_merge = safe});
      } catch (const UsageError&) {
        if (peft->merged_adapters() != std::vector<std::string>{"a0"})
          return "a refused merge changed something";
      }
      peft->unmerge_adapter();
      auto why = first({{"unmerged", not_same(result(*peft, inputs), before)},
                        {"weights", not_same(weights_of(*peft->base_model()), weights)}});
      if (!why.empty()) return why;
    }
    return "";
  });
}

TEST(AdapterLaws, MergeAndUnloadIsTheModelWithItsAdapters) {
  check_law(kScenes / 2, scenes(1, /*on_layers=*/true), [](const Scene& scene) {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    const auto before = result(*peft, inputs);
    const TempDir folder;
    const auto merged = peft->merge_and_unload();
    merged->save_pretrained(folder.path());
    const auto again = AutoModelForAny::from_pretrained(folder.path());
    again->eval();
    const at::NoGradGuard no_grad;
    return first({{"merged", not_near(merged->forward(inputs).logits, before)},
                  {"saved", not_same(again->forward(inputs).logits, merged->forward(inputs).logits)}});
  });
}

TEST(AdapterLaws, ARowOfAMixedBatchIsThatRowAlone) {
  check_law(kScenes, scenes(2, /*on_layers=*/true), [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene, 4);
    const std::vector<std::string> names{"a1", "__base__", "a0", "a1"};
    const auto mixed = result(*peft, inputs, {names});
    for (int64_t row = 0; row < 4; ++row) {
      const auto& name = names[static_cast<size_t>(row)];
      const auto got = mixed.narrow(0, row, 1);
      const auto whole = result(*peft, inputs, {std::vector<std::string>(4, name)}).narrow(0, row, 1);
      const auto alone = result(*peft, row_of(inputs, row), {{name}});
      auto why =
          first({{"in a batch of its own adapter", not_near(got, whole)}, {"alone", not_near(got, alone)}});
      if (!why.empty()) return "row " + std::to_string(row) + " (" + name + ") " + why;
    }
    return "";
  });
}

TEST(AdapterLaws, LoadedAndDeletedIsAsBefore) {
  check_law(kScenes, scenes(2), [](const Scene& scene) {
    const TempDir folder;
    peft_of(scene)->save_adapter(folder.path(), "a1");
    auto one = scene;
    one.adapters.pop_back();
    const auto peft = peft_of(one);
    const auto inputs = inputs_of(scene);
    const auto before = result(*peft, inputs);
    const auto own = copied(peft->state_dict("a0"));
    const auto names = peft->named_parameters().keys();
    peft->load_adapter(folder.path(), "other");
    const auto beside = result(*peft, inputs);
    peft->delete_adapter("other");
    const bool as_before = peft->adapter_names() == std::vector<std::string>{"a0"} &&
                           peft->active_adapters() == std::vector<std::string>{"a0"} &&
                           peft->named_parameters().keys() == names;
    return first({{"loaded and not used", not_same(beside, before)},
                  {"deleted", not_same(result(*peft, inputs), before)},
                  {"its neighbour", not_same(peft->state_dict("a0"), own)},
                  {"names", as_before ? "" : "something is left of it"}});
  });
}

TEST(AdapterLaws, SavedAndLoadedIsItself) {
  check_law(kScenes, scenes(1), [](const Scene& scene) {
    const TempDir folder;
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    peft->save_adapter(folder.path(), "a0");
    PeftModel other(base_of(scene));
    other.load_adapter(folder.path(), "again");
    other.eval();
    // A library for products may round otherwise where a tensor that lies in a file begins elsewhere in
    // memory.
    return first({{"result", not_near(result(other, inputs), result(*peft, inputs))},
                  {"tensors", not_same(other.state_dict("again"), peft->state_dict("a0"))}});
  });
}

TEST(AdapterLaws, TheOrderOfActiveAdaptersDoesNotMatter) {
  check_law(kScenes, scenes(2), [](const Scene& scene) {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    const auto with = [&](const std::vector<std::string>& names) {
      try {
        peft->set_adapter(names);
      } catch (const UsageError&) {  // two that replace the same weights
        return at::zeros({1});
      }
      return result(*peft, inputs);
    };
    return not_near(with({"a1", "a0"}), with({"a0", "a1"}));
  });
}

TEST(AdapterLaws, WeightedByOneIsItself) {
  auto lora = scenes(1, /*on_layers=*/true);
  const auto only_lora = rc::gen::map(lora, [](Scene scene) {
    scene.adapters[0].method = 0;
    scene.adapters[0].options &= ~(2 | 4 | 8);  // what PEFT combines: plain factors
    return scene;
  });
  check_law(kScenes / 2, only_lora, [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    peft->scale_adapter("a0", -1.5);  // once left out of combinations
    const auto itself = result(*peft, inputs);
    for (const char* type : {"linear", "cat", "svd"}) {
      peft->add_weighted_adapter({"a0"}, {1.0}, type, {.combination_type = type});
      peft->set_adapter(type);
      if (auto why = not_near(result(*peft, inputs), itself, 1e-4); !why.empty())
        return std::string(type) + ": " + why;
    }
    return "";
  });
}

TEST(AdapterLaws, CompiledIsEager) {
  // Few: each is compiled, and checks itself against eager besides.
  check_law(6, scenes(2, /*on_layers=*/true), [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    const auto fast = compile(peft, {.fullgraph = true});
    const at::NoGradGuard no_grad;
    const auto graphs = counters().graphs;
    for (const auto& names : {std::vector<std::string>{}, {"a1", "a1", "a1"}, {"a0", "__base__", "a1"}}) {
      const AdapterCall call{names};
      if (auto why = not_near(fast(inputs, call).logits, result(*peft, inputs, call)); !why.empty())
        return (names.empty() ? "active" : "row 0 by " + names[0]) + ": " + why;
    }
    const auto off = peft->disable_adapter();
    return first({{"disabled", not_near(fast(inputs).logits, base_result(scene))},
                  {"graphs", counters().graphs == graphs + 1 ? "" : "compiled more than once"}});
  });
}

}  // namespace
}  // namespace graft
