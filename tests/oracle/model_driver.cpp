// What the oracle tests need of the library beyond `graft forward`: decoding step by step through a cache,
// saving, training mode.
//   model_driver decode MODEL in.safetensors out.safetensors growing|static PREFILL
//   model_driver resave MODEL OUT MAX_SHARD_BYTES
//   model_driver train  MODEL in.safetensors out.safetensors plain|checkpointed
//   model_driver load   MODEL          prints the bytes of memory that loading took beyond the mapped file
#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>
#include <iostream>

#include "graft/graft.h"

namespace {

using graft::ModelInputs;
using graft::NamedTensors;

at::Tensor optional(const graft::SafetensorsFile& file, const std::string& name) {
  return file.contains(name) ? file.tensor(name) : at::Tensor();
}

ModelInputs read(const std::string& path) {
  const auto file = graft::SafetensorsFile::open(path);
  return {.input_ids = optional(*file, "input_ids"),
          .attention_mask = optional(*file, "attention_mask"),
          .position_ids = optional(*file, "position_ids"),
          .token_type_ids = optional(*file, "token_type_ids"),
          .pixel_values = optional(*file, "pixel_values"),
          .labels = optional(*file, "labels"),
          .decoder_input_ids = optional(*file, "decoder_input_ids"),
          .decoder_attention_mask = optional(*file, "decoder_attention_mask")};
}

/// Columns [from, to) of what runs along the sequence; the mask also covers what the cache holds.
ModelInputs step(const ModelInputs& all, int64_t from, int64_t to, std::shared_ptr<graft::KVCache> cache) {
  const auto cut = [&](const at::Tensor& t) { return t.defined() ? t.slice(1, from, to) : t; };
  return {.input_ids = cut(all.input_ids),
          .attention_mask = all.attention_mask.defined() ? all.attention_mask.slice(1, 0, to) : at::Tensor(),
          .position_ids = cut(all.position_ids),
          .token_type_ids = cut(all.token_type_ids),
          .past_key_values = std::move(cache)};
}

void decode(char** argv) {
  at::NoGradGuard no_grad;
  const auto model = graft::AutoModelForAny::from_pretrained(argv[0]);
  const auto inputs = read(argv[1]);
  const int64_t length = inputs.input_ids.size(1), prefill = std::stoll(argv[4]);
  std::shared_ptr<graft::KVCache> cache;
  if (std::string(argv[3]) == "static")
    cache = std::make_shared<graft::StaticCache>(length + 3);
  else
    cache = std::make_shared<graft::GrowingCache>();
  std::vector<at::Tensor> parts;
  for (int64_t from = 0, to = prefill; from < length; from = to++) {
    const auto out = model->forward(step(inputs, from, to, cache));
    parts.push_back(out.logits.defined() ? out.logits : out.last_hidden_state);
  }
  graft::save_safetensors(argv[2], {{"logits", at::cat(parts, 1)}});
}

void resave(char** argv) {
  graft::AutoModelForAny::from_pretrained(argv[0])->save_pretrained(argv[1], std::stoll(argv[2]));
}

/// Memory of this process that no file is behind.
int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  throw std::runtime_error("no RssAnon in /proc/self/status");
}

void load(char** argv) {
  const int64_t before = anonymous_bytes();
  const auto model = graft::AutoModelForAny::from_pretrained(argv[0]);
  std::cout << anonymous_bytes() - before << "\n";
}

void train(char** argv) {
  const auto model = graft::AutoModelForAny::from_pretrained(argv[0]);
  model->train();
  if (std::string(argv[3]) == "checkpointed") model->gradient_checkpointing_enable();
  const auto out = model->forward(read(argv[1]));
  out.loss.backward();
  NamedTensors results{{"loss", out.loss.detach()}, {"logits", out.logits.detach()}};
  for (const auto& [name, parameter] : model->unique_parameters())
    results.emplace_back("grad." + name,
                         parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter));
  for (const auto& item : model->named_buffers()) results.emplace_back("buffer." + item.key(), item.value());
  graft::save_safetensors(argv[2], results);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "decode" && argc == 7) return decode(argv + 2), 0;
    if (what == "resave" && argc == 5) return resave(argv + 2), 0;
    if (what == "load" && argc == 3) return load(argv + 2), 0;
    if (what == "train" && argc == 6) return train(argv + 2), 0;
    std::cerr << "model_driver: see the top of its source\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "model_driver: " << error.what() << "\n";
    return 1;
  }
}
