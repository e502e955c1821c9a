// Adapters' folders with anything in them: what cannot be loaded is an error of graft's own that leaves the
// model as it was, and what can be loaded works.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "graft/error.h"
#include "unit/adapter_scene.h"
#include "unit/temp_dir.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing_tools::check_law;
using testing_tools::inputs_of;
using testing_tools::not_same;
using testing_tools::peft_of;
using testing_tools::result;
using testing_tools::Scene;
using testing_tools::scenes;

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  /// Changes the folder in one way; says which.
  std::string change(const fs::path& folder) {
    return below(2) ? change_config(folder / "adapter_config.json")
                    : change_tensors(folder / "adapter_model.safetensors");
  }

 private:
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  json any_value() {
    static const std::vector<json> values{
        nullptr,
        false,
        true,
        0,
        1,
        -1,
        3,
        64,
        1000000007,
        std::numeric_limits<int64_t>::max(),
        std::numeric_limits<uint64_t>::max(),
        0.5,
        -2.5,
        1e308,
        "",
        "x",
        "all-linear",
        "(",
        ".*",
        "none",
        json::array(),
        json::array({"q_proj"}),
        json::array({""}),
        json::array({1, -1, 1000000}),
        json::array({nullptr}),
        json::array({json::array({json::array()})}),
        json::object(),
        json::object({{"q_proj", 2}}),
        json::object({{"(", -1}, {"", "x"}}),
        json::object({{"a", json::object({{"b", nullptr}})}}),
    };
    return values[below(values.size())];
  }

  std::string change_config(const fs::path& file) {
    auto config = json::parse(std::ifstream(file));
    std::vector<std::string> names;
    for (const auto& item : config.items()) names.push_back(item.key());
    const auto name = names[below(names.size())];
    std::string what;
    switch (below(4)) {
      case 0:
        config.erase(name);
        what = "without " + name;
        break;
      case 1: {
        const auto other = names[below(names.size())];
        std::swap(config[name], config[other]);
        what = name + " and " + other + " exchanged";
        break;
      }
      default:
        config[name] = any_value();
        what = name + ": " + config[name].dump();
    }
    std::ofstream(file) << config;
    return what;
  }

  std::string change_tensors(const fs::path& file) {
    NamedTensors tensors;
    try {
      tensors = testing_tools::tensors_in(file);
    } catch (const Error&) {
      return change_bytes(file);  // an earlier change was to its bytes
    }
    if (tensors.empty() || below(6) == 0) return change_bytes(file);
    auto& [name, tensor] = tensors[below(tensors.size())];
    auto what = name;
    switch (below(8)) {
      case 0:
        tensor = tensor.flatten();
        what += " is flat";
        break;
      case 1:
        tensor = at::empty({0}, tensor.options());
        what += " is empty";
        break;
      case 2:
        tensor = tensor.dim() > 1 ? tensor.transpose(0, 1).contiguous() : tensor.unsqueeze(0);
        what += " is turned";
        break;
      case 3:
        tensor = tensor.to(std::array{at::kLong, at::kBool, at::kHalf, at::kDouble, at::kByte}[below(5)]);
        what += std::string(" is ") + toString(tensor.scalar_type());
        break;
      case 4:
        tensor = at::full_like(tensor.to(at::kFloat), std::array{HUGE_VALF, std::nanf(""), 0.F}[below(3)]);
        what += " has other numbers";
        break;
      case 5:
        name = name.substr(0, below(name.size() + 1));
        what += " is called " + name;
        break;
      case 6: {
        const auto size = static_cast<int64_t>(1 + below(9));
        tensor = at::ones({size, static_cast<int64_t>(1 + below(9))});
        what += " has another shape";
        break;
      }
      default:
        name += std::array{".weight", ".default", "\n", "2"}[below(4)];
        what += " has a longer name";
    }
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    tensors.erase(std::unique(tensors.begin(), tensors.end(), same), tensors.end());
    save_safetensors(file, tensors);
    return what;
  }

  std::string change_bytes(const fs::path& file) {
    const auto size = fs::file_size(file);
    if (size == 0 || below(2)) {
      fs::resize_file(file, below(size + 1));
      return "a shorter file";
    }
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(below(std::min<size_t>(size, 400))));
    bytes.put(static_cast<char>(below(256)));
    return "another byte";
  }

  std::mt19937_64 random_;
};

/// What a law says of an action that may only fail by an error of graft's own.
std::string other_failure(const std::function<void()>& action, bool& failed) {
  failed = true;
  try {
    action();
    failed = false;
  } catch (const Error&) {
  } catch (const std::exception& e) {
    return std::string("not an error of graft's: ") + e.what();
  }
  return "";
}

TEST(AdapterMutations, AnErrorOfItsOwnOrItWorks) {
  int loaded = 0, refused = 0;
  check_law(150, scenes(2), [&](const Scene& scene) -> std::string {
    Mutator mutator(static_cast<uint64_t>(scene.seed));
    const TempDir folder;
    peft_of(scene)->save_adapter(folder / "good", "a1");
    auto one = scene;
    one.adapters.pop_back();
    const auto peft = peft_of(one);
    const auto inputs = inputs_of(scene);
    const auto before = result(*peft, inputs);
    const auto tree = peft->named_parameters().keys();
    for (int trial = 0; trial < 12; ++trial) {
      fs::remove_all(folder / "bad");
      fs::copy(folder / "good", folder / "bad");
      auto what = mutator.change(folder / "bad");
      if (trial % 3 == 2) what += "; " + mutator.change(folder / "bad");
      bool failed = false;
      if (auto why = other_failure([&] { peft->load_adapter(folder / "bad", "other"); }, failed);
          !why.empty())
        return what + ": " + why;
      ++(failed ? refused : loaded);
      if (!failed) {
        if (auto why = other_failure(
                [&] {
                  peft->set_adapter("other");
                  result(*peft, inputs);
                },
                failed);
            !why.empty())
          return what + ", loaded: " + why;
        peft->delete_adapter("other");
        peft->set_adapter("a0");
      }
      if (peft->adapter_names() != std::vector<std::string>{"a0"} || peft->named_parameters().keys() != tree)
        return what + ": something of it is there";
      if (auto why = not_same(result(*peft, inputs), before); !why.empty()) return what + ": " + why;
    }
    return "";
  });
  // Were all of one kind, little would have been looked at.
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace graft
