// What each method of adapters can do, found by doing it, on a compiled model and on an eager one.
//   method_features_driver ROWS.json SCRATCH
// ROWS.json is what `graft bench --suite adapters --tiny --list --json` writes: configurations by method.
// Prints {method: {feature: "yes", "recompiles", or "no: " and why}}. "yes" is: with the right result, from
// the program that was compiled for the first call.
#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "graft/graft.h"

namespace {

using nlohmann::ordered_json;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

void require(bool holds, const std::string& what) {
  if (!holds) throw graft::Error(what);
}
bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-4, 1e-4);
}

/// The files of two adapters of one method, for a small model that is always the same.
struct Files {
  ordered_json model, inputs;
  graft::AdapterConfig config;
  fs::path first, second;

  std::shared_ptr<graft::PeftModel> base() const {
    at::manual_seed(0);
    auto made = graft::AutoModelForAny::from_config(graft::Config::from_json(model.dump()));
    auto peft = std::make_shared<graft::PeftModel>(made);
    peft->eval();
    return peft;
  }

  void make() const {
    const at::NoGradGuard no_grad;
    for (const auto& [dir, seed] : {std::pair{first, 1}, {second, 2}}) {
      const auto peft = base();
      at::manual_seed(seed);
      peft->add_adapter("new", config);
      for (auto& [name, tensor] : peft->trainable_tensors("new")) tensor.add_(at::randn_like(tensor), 0.05);
      peft->save_adapter(dir, "new");
    }
  }
};

/// A compiled model with both adapters, the first active, and what its results must be.
class Subject {
 public:
  explicit Subject(const Files& files)
      : files_(files), peft(files.base()), fast_(graft::compile(peft, {.fullgraph = true})) {
    at::manual_seed(3);
    const auto drawn = [&](const char* name) {
      const auto& given = files.inputs.at(name);
      return at::randint(given.at("below").get<int64_t>(), given.at("shape").get<std::vector<int64_t>>());
    };
    inputs_.input_ids = drawn("input_ids");
    const at::NoGradGuard no_grad;
    base = peft->forward(inputs_).logits;
    if (files.inputs.contains("task_ids")) inputs_.task_ids = drawn("task_ids");
    peft->reserve(3, files.config);  // both, and one that comes later
    peft->load_adapter(files.first, "first", {.is_trainable = true});
    first = peft->forward(inputs_).logits;
    peft->load_adapter(files.second, "second", {.is_trainable = true});
    peft->set_adapter("second");
    second = peft->forward(inputs_).logits;
    peft->set_adapter("first");
    require(!close(first, base) && !close(first, second), "the adapter does nothing");
    call();
    graphs_ = graft::counters().graphs;
  }

  at::Tensor call(const Names& rows = {}) {
    const at::NoGradGuard no_grad;
    const auto got = fast_(inputs_, {.adapter_names = rows}).logits;
    require(close(got, peft->forward(inputs_, {.adapter_names = rows}).logits), "compiled is not as eager");
    return got;
  }

  /// Some rows, in a call of their own.
  at::Tensor alone(const std::string& name, const std::vector<int64_t>& rows) {
    const at::NoGradGuard no_grad;
    const auto index = at::tensor(rows);
    auto inputs = inputs_;
    for (auto* input : {&inputs.input_ids, &inputs.task_ids})
      if (input->defined()) *input = input->index_select(0, index);
    return peft->forward(inputs, {.adapter_names = Names(rows.size(), name)}).logits;
  }

  void backward() {
    auto inputs = inputs_;
    inputs.labels = inputs_.input_ids;
    fast_(inputs).loss.backward();
    for (const auto& [name, tensor] : peft->trainable_tensors("first"))
      require(tensor.grad().defined(), name + " has no gradient");
  }

  bool compiled_again() const { return graft::counters().graphs > graphs_; }
  const Files& files() const { return files_; }

 private:
  const Files& files_;
  graft::ModelInputs inputs_;

 public:
  std::shared_ptr<graft::PeftModel> peft;
  at::Tensor base, first, second;

 private:
  graft::CompiledPeftModel fast_;
  int64_t graphs_ = 0;
};

void disable(Subject& on) {
  {
    const auto disabled = on.peft->disable_adapter();
    require(at::equal(on.call(), on.call({"__base__", "__base__", "__base__", "__base__"})),
            "it is not the base");
    require(close(on.call(), on.base), "it is not the base");
  }
  require(close(on.call(), on.first), "it does not come back");
}

void switch_adapters(Subject& on) {
  on.peft->set_adapter("second");
  require(close(on.call(), on.second), "the other one does not work");
}

void merge(Subject& on) {
  on.peft->merge_adapter();
  require(close(on.call(), on.first), "the result is another one");
}

void unmerge(Subject& on) {
  const auto before = on.call();
  on.peft->merge_adapter();
  on.peft->unmerge_adapter();
  require(at::equal(on.call(), before), "the weights are not those of before");
}

/// Each adapter's rows are what they are in a batch of these rows alone. (Lily's are not what they are in a
/// batch of all: it looks at the mean over the adapter's rows.)
void mixed_rows(Subject& on) {
  const auto got = on.call({"first", "second", "__base__", "first"});
  const std::pair<const char*, std::vector<int64_t>> all[] = {
      {"first", {0, 3}}, {"second", {1}}, {"__base__", {2}}};
  for (const auto& [name, rows] : all)
    require(close(got.index({at::tensor(rows)}), on.alone(name, rows)), "a row is another adapter's");
}

void hotswap(Subject& on) {
  on.peft->hotswap_adapter(on.files().second, "first");
  require(close(on.call(), on.second), "the new weights do not work");
}

void several(Subject& on) {
  on.peft->set_adapter(Names{"first", "second"});
  const auto both = on.call();
  require(!close(both, on.first) && !close(both, on.second), "only one of them works");
}

void weighted(Subject& on) {
  on.peft->add_weighted_adapter({"first", "second"}, {0.5, 0.5}, "both", {.combination_type = "linear"});
  on.peft->set_adapter("both");
  on.call();
}

void save_and_load(Subject& on) {
  const auto dir = on.files().first.parent_path() / "saved";
  on.peft->save_adapter(dir, "first");
  on.peft->delete_adapter("second");
  on.peft->load_adapter(dir, "loaded", {.is_trainable = true});
  on.peft->set_adapter("loaded");
  require(close(on.call(), on.first), "what was saved is another adapter");
}

struct Feature {
  const char* name;
  void (*run)(Subject&);
};

constexpr Feature kFeatures[] = {
    {"forward", [](Subject& on) { on.call(); }},
    {"backward", nullptr},  // another program by its labels: compiled again is not the question
    {"switch", switch_adapters},
    {"disable", disable},
    {"mixed rows", mixed_rows},
    {"several at once", several},
    {"hotswap", hotswap},
    {"merge", merge},
    {"unmerge", unmerge},
    {"weighted", weighted},
    {"save and load", save_and_load},
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string tried(const Files& files, const Feature& feature) {
  try {
    graft::reset();
    Subject subject(files);
    if (!feature.run) return subject.backward(), "yes";
    feature.run(subject);
    return subject.compiled_again() ? "recompiles" : "yes";
  } catch (const std::exception& error) {
    return "no: " + first_line(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const auto rows = ordered_json::parse(std::ifstream(argv[1]));
  ordered_json found = ordered_json::object();
  for (const auto& row : rows) {
    const auto name = row.at("name").get<std::string>();
    constexpr std::string_view kEnding = "-forward";
    if (!name.ends_with(kEnding)) continue;
    const auto method = name.substr(0, name.size() - kEnding.size());
    const auto folder = fs::path(argv[2]) / method;
    const Files files{row.at("model"), row.at("inputs"),
                      graft::AdapterConfig::from_json(row.at("adapter").dump()), folder / "first",
                      folder / "second"};
    files.make();
    for (const auto& feature : kFeatures) found[method][feature.name] = tried(files, feature);
  }
  std::cout << found.dump(1) << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
