// Runs a script of adapter operations on one compiled model; the oracle runs the same script in PEFT.
//   adapter_driver MODEL in.safetensors SCRIPT out.safetensors [train]
// The script has one JSON array a line: ["load", name, dir], ["set", name...], ["delete", name],
// ["disable"], ["enable"], ["scale", name, factor], ["hotswap", name, dir], ["weighted", name, type, [names],
// [weights]], ["merge", name...], ["unmerge"], ["reserve", count, config], ["call", key, name-of-row...],
// ["step", learning rate] (of SGD), ["allocate", name, step] (AdaLoRA's budget), ["save", name, dir]. Results
// of calls go into the output by their keys; the counters to standard output.
#include <torch/optim/sgd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "graft/graft.h"

namespace {

using nlohmann::json;

class Script {
 public:
  Script(const std::string& model, const std::string& inputs, bool train)
      : peft_(std::make_shared<graft::PeftModel>(graft::AutoModelForAny::from_pretrained(model))),
        compiled_(graft::compile(peft_, {.fullgraph = true})),
        train_(train) {
    const auto file = graft::SafetensorsFile::open(inputs);
    inputs_.input_ids = file->tensor("input_ids");
    if (file->contains("labels")) inputs_.labels = file->tensor("labels");
    peft_->eval();
  }

  void run(const json& line) {
    const auto what = line[0].get<std::string>();
    const auto text = [&](size_t i) { return line[i].get<std::string>(); };
    const auto rest = [&](size_t from) {
      std::vector<std::string> names;
      for (size_t i = from; i < line.size(); ++i) names.push_back(text(i));
      return names;
    };
    if (what == "load") {
      peft_->load_adapter(text(2), text(1), {.is_trainable = train_});
    } else if (what == "reserve") {
      peft_->reserve(line[1], graft::AdapterConfig::from_pretrained(text(2)));
    } else if (what == "set") {
      peft_->set_adapter(rest(1));
    } else if (what == "delete") {
      peft_->delete_adapter(text(1));
    } else if (what == "disable") {
      peft_->disable_adapters();
    } else if (what == "enable") {
      peft_->enable_adapters();
    } else if (what == "scale") {
      peft_->scale_adapter(text(1), line[2]);
    } else if (what == "hotswap") {
      peft_->hotswap_adapter(text(2), text(1));
    } else if (what == "weighted") {
      peft_->add_weighted_adapter(line[3], line[4], text(1), {.combination_type = text(2)});
    } else if (what == "merge") {
      peft_->merge_adapter({.adapter_names = rest(1)});
    } else if (what == "unmerge") {
      peft_->unmerge_adapter();
    } else if (what == "call") {
      const at::NoGradGuard no_grad;
      results_.emplace_back(text(1), compiled_(inputs_, {.adapter_names = rest(2)}).logits.clone());
    } else if (what == "step") {
      step(line[1]);
    } else if (what == "allocate") {
      peft_->update_and_allocate(text(1), line[2]);
    } else if (what == "save") {
      peft_->save_adapter(text(2), text(1));
    } else {
      throw graft::UsageError("the script has an unknown operation: " + what);
    }
  }

  const graft::NamedTensors& results() const { return results_; }

 private:
  void step(double rate) {
    std::vector<at::Tensor> trained;
    for (const auto& name : peft_->active_adapters())
      for (const auto& [key, tensor] : peft_->trainable_tensors(name))
        if (tensor.requires_grad()) trained.push_back(tensor);
    torch::optim::SGD optimizer(trained, rate);
    optimizer.zero_grad();
    compiled_(inputs_).loss.backward();
    optimizer.step();
  }

  std::shared_ptr<graft::PeftModel> peft_;
  graft::CompiledPeftModel compiled_;
  graft::ModelInputs inputs_;
  graft::NamedTensors results_;
  bool train_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) return 2;
  Script script(argv[1], argv[2], argc > 5);
  std::ifstream lines(argv[3]);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) script.run(json::parse(line));
  graft::save_safetensors(argv[4], script.results());
  const auto counters = graft::counters();
  std::cout << json{{"graphs", counters.graphs}, {"recompiles", counters.recompiles}}.dump() << "\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
