// What the oracle tests need of prompt methods beyond `graft forward`: encoders, which no file holds, and
// caches.
//   prompt_driver grads  MODEL in.safetensors CONFIG out.safetensors SEED eager|graft
//   prompt_driver decode MODEL in.safetensors ADAPTER out.safetensors growing|static PREFILL
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "graft/graft.h"

namespace {

graft::ModelInputs read(const std::string& path) {
  const auto file = graft::SafetensorsFile::open(path);
  const auto optional = [&](const char* name) {
    return file->contains(name) ? file->tensor(name) : at::Tensor();
  };
  return {.input_ids = optional("input_ids"),
          .attention_mask = optional("attention_mask"),
          .token_type_ids = optional("token_type_ids"),
          .labels = optional("labels")};
}

void grads(char** argv) {
  torch::manual_seed(std::stoull(argv[4]));
  const auto peft = graft::get_peft_model(graft::AutoModelForAny::from_pretrained(argv[0]),
                                          graft::AdapterConfig::from_pretrained(argv[2]));
  peft->eval();
  const bool compiled = std::string(argv[5]) == "graft";
  const auto call = graft::compile(
      peft, {.backend = compiled ? graft::Backend::graft : graft::Backend::eager, .fullgraph = compiled});
  const auto out = call(read(argv[1]));
  graft::NamedTensors results{{"logits", out.logits.detach()}, {"loss", out.loss.detach()}};
  std::vector<at::Tensor> wanted;
  const auto trained = peft->trainable_tensors("default");
  for (const auto& [name, tensor] : trained) wanted.push_back(tensor);
  const auto found = torch::autograd::grad({out.loss}, wanted);
  for (size_t i = 0; i < trained.size(); ++i) results.emplace_back("grad." + trained[i].first, found[i]);
  graft::save_safetensors(argv[3], results);
}

void decode(char** argv) {
  at::NoGradGuard no_grad;
  graft::PeftModel peft(graft::AutoModelForAny::from_pretrained(argv[0]));
  peft.load_adapter(argv[2], "default");
  peft.eval();
  const auto all = read(argv[1]);
  const int64_t length = all.input_ids.size(1), prefill = std::stoll(argv[5]);
  std::shared_ptr<graft::KVCache> cache;
  if (std::string(argv[4]) == "static")
    cache = std::make_shared<graft::StaticCache>(
        length + peft.peft_config("default").integer("num_virtual_tokens") + 3);
  else
    cache = std::make_shared<graft::GrowingCache>();
  std::vector<at::Tensor> parts;
  for (int64_t from = 0, to = prefill; from < length; from = to++)
    parts.push_back(
        peft.forward({.input_ids = all.input_ids.slice(1, from, to),
                      .attention_mask =
                          all.attention_mask.defined() ? all.attention_mask.slice(1, 0, to) : at::Tensor(),
                      .past_key_values = cache})
            .logits);
  graft::save_safetensors(argv[3], {{"logits", at::cat(parts, 1)}});
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 8) return 2;
  const std::string what = argv[1];
  if (what == "grads")
    grads(argv + 2);
  else if (what == "decode")
    decode(argv + 2);
  else
    return 2;
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
