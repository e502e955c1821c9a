// What goes wrong with adapters leaves the model as it was: bit for bit, and in its list of adapters.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "graft/error.h"
#include "unit/adapter_scene.h"
#include "unit/temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing_tools::check_law;
using testing_tools::inputs_of;
using testing_tools::not_near;
using testing_tools::not_same;
using testing_tools::peft_of;
using testing_tools::result;
using testing_tools::Scene;
using testing_tools::scenes;

void rewrite_tensors(const fs::path& dir, const std::function<void(NamedTensors&)>& change) {
  auto tensors = testing_tools::tensors_in(dir / "adapter_model.safetensors");
  change(tensors);
  save_safetensors(dir / "adapter_model.safetensors", tensors);
}

void rewrite_config(const fs::path& dir, const std::function<void(json&)>& change) {
  auto config = json::parse(std::ifstream(dir / "adapter_config.json"));
  change(config);
  std::ofstream(dir / "adapter_config.json") << config;
}

/// Ways to spoil an adapter's folder; every one must be an error of graft's own.
struct Damage {
  const char* what;
  std::function<void(const fs::path&)> done;
};

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all{
      {"a tensor is missing",
       [](const fs::path& dir) { rewrite_tensors(dir, [](NamedTensors& t) { t.pop_back(); }); }},
      {"a tensor too many",
       [](const fs::path& dir) {
         rewrite_tensors(dir,
                         [](NamedTensors& t) { t.emplace_back("base_model.model.extra", at::ones({2})); });
       }},
      {"another name",
       [](const fs::path& dir) { rewrite_tensors(dir, [](NamedTensors& t) { t.front().first += "s"; }); }},
      {"another shape",
       [](const fs::path& dir) {
         rewrite_tensors(dir, [](NamedTensors& t) {
           t.back().second = at::cat({t.back().second, t.back().second}).contiguous();
         });
       }},
      {"one dimension more",
       [](const fs::path& dir) {
         rewrite_tensors(dir, [](NamedTensors& t) { t.front().second = t.front().second.unsqueeze(0); });
       }},
      {"whole numbers for weights",
       [](const fs::path& dir) {
         rewrite_tensors(dir, [](NamedTensors& t) {
           for (auto& [name, tensor] : t) tensor = tensor.to(at::kLong);
         });
       }},
      {"half of the file",
       [](const fs::path& dir) {
         const auto file = dir / "adapter_model.safetensors";
         fs::resize_file(file, fs::file_size(file) / 2);
       }},
      {"no file", [](const fs::path& dir) { fs::remove(dir / "adapter_model.safetensors"); }},
      {"not JSON", [](const fs::path& dir) { std::ofstream(dir / "adapter_config.json") << "{"; }},
      {"an unknown field",
       [](const fs::path& dir) { rewrite_config(dir, [](json& c) { c["use_magic"] = true; }); }},
      {"an unknown method",
       [](const fs::path& dir) { rewrite_config(dir, [](json& c) { c["peft_type"] = "MAGIC"; }); }},
      {"a target that is not there",
       [](const fs::path& dir) {
         rewrite_config(dir, [](json& c) {
           if (c.contains("num_virtual_tokens"))
             c["num_virtual_tokens"] = 99;
           else
             c["target_modules"].push_back("no_such_layer");
         });
       }},
  };
  return all;
}

TEST(AdapterFailures, AFailedLoadLeavesTheModelAsItWas) {
  check_law(60, scenes(2), [](const Scene& scene) -> std::string {
    const auto& damage = damages()[static_cast<size_t>(scene.seed) % damages().size()];
    const TempDir folder;
    peft_of(scene)->save_adapter(folder / "good", "a1");
    fs::copy(folder / "good", folder / "bad");
    damage.done(folder / "bad");
    auto one = scene;
    one.adapters.pop_back();
    const auto peft = peft_of(one);
    const auto inputs = inputs_of(scene);
    const auto before = result(*peft, inputs);
    const auto tree = peft->named_parameters().keys();
    try {
      peft->load_adapter(folder / "bad", "other");
      return std::string(damage.what) + ": it was loaded";
    } catch (const Error&) {
    }
    if (peft->adapter_names() != std::vector<std::string>{"a0"} || peft->named_parameters().keys() != tree)
      return std::string(damage.what) + ": something of it is there";
    if (auto why = not_same(result(*peft, inputs), before); !why.empty()) return damage.what + (": " + why);
    try {
      peft->hotswap_adapter(folder / "bad", "a0");
      return std::string(damage.what) + ": it was swapped in";
    } catch (const Error&) {
    }
    if (auto why = not_same(result(*peft, inputs), before); !why.empty())
      return damage.what + (", swapped in: " + why);
    peft->load_adapter(folder / "good", "other");  // the name is free
    return "";
  });
}

PeftModel& spoiled(PeftModel& peft, const std::string& name) {
  const at::NoGradGuard no_grad;
  auto tensor = peft.trainable_tensors(name).front().second;
  tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  return peft;
}

TEST(AdapterFailures, NaNIsNotMergedAndWhatWasMergedStays) {
  check_law(30, scenes(2, /*on_layers=*/true), [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    peft->merge_adapter({.adapter_names = {"a0"}});
    const auto merged = result(*peft, inputs);
    try {
      spoiled(*peft, "a1").merge_adapter({.adapter_names = {"a1"}});
      return "NaN was merged";
    } catch (const UsageError&) {  // two that replace the same weights
    } catch (const Error& error) {
      if (std::string(error.what()).find("NaN") == std::string::npos) return error.what();
    }
    if (peft->merged_adapters() != std::vector<std::string>{"a0"}) return "a0 is not merged any more";
    return not_same(result(*peft, inputs), merged);
  });
}

/// Names that would break paths, keys or tables if they were part of one.
const std::vector<std::string>& strange_names() {
  static const std::vector<std::string> names{
      "weight",     "lora_A.weight",  "base_layer", "a.b.c", "two words", "a/b",        "..", "a\\b",
      "\"quoted\"", "Ünïcødé 适配器", "@shared0",   "0",     "\n\t",      "base_model", "."};
  return names;
}

Scene small_scene() {
  return {.model = 0,
          .heads = 1,
          .head_size = 4,
          .inner = 5,
          .layers = 1,
          .padded = false,
          .seed = 3,
          .adapters = {{.method = 0, .rank = 1, .options = 0}}};
}

TEST(AdapterFailures, ANameMayBeAnything) {
  auto scene = small_scene();
  scene.heads = scene.adapters[0].rank = 2;
  scene.inner = 7;
  const TempDir folder;
  const auto one = peft_of(scene);
  const auto inputs = inputs_of(scene);
  const auto wanted = result(*one, inputs);
  one->save_adapter(folder.path(), "a0");
  const auto peft = std::make_shared<PeftModel>(testing_tools::base_of(scene));
  const auto fast = compile(peft, {.fullgraph = true});
  const at::NoGradGuard no_grad;
  for (const auto& name : strange_names()) peft->load_adapter(folder.path(), name);
  EXPECT_EQ(peft->adapter_names(), strange_names());
  for (const auto& name : strange_names()) {
    peft->set_adapter(name);
    EXPECT_EQ(not_same(result(*peft, inputs), wanted), "") << name;
    EXPECT_EQ(not_near(fast(inputs, {{name, "__base__", name}}).logits[2], wanted[2]), "") << name;
    EXPECT_EQ(not_same(peft->state_dict(name), one->state_dict("a0")), "") << name;
  }
  for (const auto& name : strange_names()) peft->delete_adapter(name);
  EXPECT_TRUE(peft->adapter_names().empty());
}

TEST(AdapterFailures, ANameThatIsNoFolderIsNotSavedByIt) {
  const auto scene = small_scene();
  const TempDir folder;
  const auto peft = peft_of(scene);
  peft->save_adapter(folder / "a0", "a0");
  const auto outside = (folder / "outside").string();
  for (const auto& name : {std::string("a/b"), std::string(".."), std::string("../outside"), outside}) {
    peft->load_adapter(folder / "a0", name);
    EXPECT_THROW(peft->save_pretrained(folder / "saved"), UsageError) << name;
    EXPECT_FALSE(fs::exists(folder / "saved")) << name << ": half of the adapters are there";
    EXPECT_FALSE(fs::exists(outside));
    peft->save_adapter(folder / "by-hand", name);  // the caller says where
    peft->delete_adapter(name);
  }
}

// Linux promises any memory and ends the program that uses it: such a size has to be seen before.
TEST(AdapterFailures, SizesBeyondTheMachineAreConfigErrors) {
  const auto peft = peft_of(small_scene());
  const auto tree = peft->named_parameters().keys();
  const std::string on_layers = R"(, "target_modules": ["q_proj"]})",
                    prompt = R"(, "task_type": "CAUSAL_LM"})";
  for (const std::string& text :
       {R"({"peft_type": "LORA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "LORA", "r": 9000000000000000000)" + on_layers,
        R"({"peft_type": "ADALORA", "init_r": 100000000000, "total_step": 10)" + on_layers,
        R"({"peft_type": "LOHA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "HRA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "HIRA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "VERA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "RANDLORA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "RANDLORA", "r": 100000000000, "sparse": true)" + on_layers,
        R"({"peft_type": "VBLORA", "vector_length": 2, "num_vectors": 100000000000)" + on_layers,
        R"({"peft_type": "SHIRA", "r": 9000000000000000000)" + on_layers,
        R"({"peft_type": "DELORA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "GRALORA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "GRALORA", "hybrid_r": 100000000000)" + on_layers,
        R"({"peft_type": "PVERA", "r": 9000000000000000000)" + on_layers,
        R"({"peft_type": "GLORA", "r": 100000000000)" + on_layers,
        R"({"peft_type": "WAVEFT", "n_frequency": 9000000000000000000, "proportional_parameters": true)" +
            on_layers,
        R"({"peft_type": "SUPERTUNING", "sparsity": 0.5, "r": 100000000000)" + on_layers,
        R"({"peft_type": "PEANUT", "r": 100000000000)" + on_layers,
        R"({"peft_type": "PEANUT", "depth": 100000000000)" + on_layers,
        R"({"peft_type": "LILY", "r": 100000000000)" + on_layers,
        R"({"peft_type": "LILY", "num_B": 9000000000000000000)" + on_layers,
        R"({"peft_type": "TINYLORA", "u": 100000000000)" + on_layers,
        R"({"peft_type": "PSOFT", "r": 100000000000)" + on_layers,
        R"({"peft_type": "UNILORA", "r": 9000000000000000000)" + on_layers,
        R"({"peft_type": "UNILORA", "theta_d_length": 100000000000)" + on_layers,
        R"({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 100000000000)" + prompt,
        R"({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 100000000000)" + prompt,
        R"({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 2, "prefix_projection": true,
            "encoder_hidden_size": 100000000000)" +
            prompt,
        R"({"peft_type": "P_TUNING", "num_virtual_tokens": 2, "encoder_hidden_size": 100000000000)" +
            prompt}) {
    EXPECT_THROW(peft->add_adapter("large", AdapterConfig::from_json(text)), ConfigError) << text;
    EXPECT_EQ(peft->named_parameters().keys(), tree) << text;
  }
}

TEST(AdapterFailures, NamesThatMeanSomethingElse) {
  const auto scene = small_scene();
  const auto peft = peft_of(scene);
  const auto config = AdapterConfig::from_json(scene.adapter_json(0));
  for (const char* name : {"", "__base__", "a0"})
    EXPECT_THROW(peft->add_adapter(name, config), UsageError) << name;
  EXPECT_THROW(peft->set_adapter("b"), UsageError);
  EXPECT_THROW(peft->delete_adapter("b"), UsageError);
  EXPECT_THROW(peft->merge_adapter({.adapter_names = {"b"}}), UsageError);
  EXPECT_THROW(result(*peft, inputs_of(scene), {{"a0", "b", "a0"}}), UsageError);
  EXPECT_THROW(result(*peft, inputs_of(scene), {{"a0"}}), UsageError);
  EXPECT_EQ(peft->active_adapters(), std::vector<std::string>{"a0"});
}

TEST(AdapterFailures, AnAdapterIsNotNamedTwice) {
  const auto peft = peft_of(small_scene());
  EXPECT_THROW(peft->set_adapter(std::vector<std::string>{"a0", "a0"}), UsageError);
  EXPECT_EQ(peft->active_adapters(), std::vector<std::string>{"a0"});
}

TEST(AdapterFailures, DisabledAdaptersAreNotMerged) {
  const auto peft = peft_of(small_scene());
  const auto inputs = inputs_of(small_scene());
  peft->disable_adapters();
  const auto base = result(*peft, inputs);
  EXPECT_THROW(peft->merge_adapter(), UsageError);
  EXPECT_EQ(not_same(result(*peft, inputs), base), "");
  EXPECT_TRUE(peft->merged_adapters().empty());
}

TEST(AdapterFailures, AModelHasTheAdaptersOfOnePeftModel) {
  const auto scene = small_scene();
  const auto peft = peft_of(scene);
  const auto inputs = inputs_of(scene);
  const auto before = result(*peft, inputs);
  EXPECT_THROW(PeftModel{peft->base_model()}, UsageError);
  EXPECT_EQ(not_same(result(*peft, inputs), before), "");
  const auto base = peft->unload();
  EXPECT_NO_THROW(PeftModel{base}) << "they are off";
  EXPECT_THROW(PeftModel{nullptr}, UsageError);
}

/// The weights of before are cast as the model was.
TEST(AdapterFailures, ACastBetweenMergingAndUnmerging) {
  const auto scene = small_scene();
  const auto peft = peft_of(scene), other = peft_of(scene);
  const auto inputs = inputs_of(scene);
  peft->merge_adapter();
  for (const auto& model : {peft, other}) model->to(at::kDouble);
  peft->merge_adapter();  // merged already, with a warning
  peft->unmerge_adapter();
  const auto got = result(*peft, inputs), want = result(*other, inputs);
  EXPECT_EQ(got.scalar_type(), at::kDouble);
  EXPECT_EQ(not_near(got, want), "");
}

// It went on until memory was full.
TEST(AdapterFailures, ReservingMoreThanThereCanBeIsAnErrorAtOnce) {
  const auto peft = peft_of(small_scene());
  const LoraConfig small{.r = 2, .target_modules = "all-linear"};
  for (const auto count : {size_t{1'000'000}, std::numeric_limits<size_t>::max()})
    EXPECT_THROW(peft->reserve(count, small), UsageError) << count;
  const LoraConfig large{.r = 100'000, .target_modules = "all-linear"};
  EXPECT_THROW(peft->reserve(10'000, large), Error);
  EXPECT_NO_THROW(peft->reserve(3, small));
}

TEST(AdapterFailures, AFolderThatCannotBeIsAnErrorOfOurs) {
  const auto peft = peft_of(small_scene());
  EXPECT_THROW(peft->save_pretrained("/dev/null/adapter"), IoError);
  EXPECT_THROW(peft->base_model()->save_pretrained("/dev/null/model"), IoError);
}

}  // namespace
}  // namespace graft
