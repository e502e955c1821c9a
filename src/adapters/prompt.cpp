#include "adapters/prompt.h"

#include <ATen/ATen.h>

namespace graft::adapters {
namespace {
constexpr const char* kKey = "prompt_embeddings";
}

Prompt::Prompt(const PromptBuild& build, at::IntArrayRef shape, const at::Tensor& fresh)
    : count_(build.config.integer("num_virtual_tokens")) {
  auto tensor = build.source.take(kKey, shape);
  if (!tensor.defined()) tensor = fresh;
  embeddings_ = register_parameter(kKey, tensor.to(build.model.device()), /*requires_grad=*/false);
}

Prompt::Prompt(const PromptBuild& build, std::shared_ptr<PromptEncoder> encoder)
    : count_(build.config.integer("num_virtual_tokens")),
      encoder_(register_module("prompt_encoder", std::move(encoder))) {
  encoder_->to(build.model.device());
}

VirtualTokens Prompt::virtual_tokens(const at::Tensor& /*task_ids*/) const {
  return {.embeddings = of_call(embeddings())};
}

at::Tensor Prompt::of_call(const at::Tensor& all) const {
  return all.size(-2) == count_ ? all : all.narrow(-2, 0, count_);
}

std::vector<Shared::Entry> Prompt::entries() const {
  if (!encoder_) return {{kKey, embeddings_, true}};
  std::vector<Entry> all;
  for (const auto& item : encoder_->named_parameters())
    all.push_back({"prompt_encoder." + item.key(), item.value(), true, /*saved=*/false});
  return all;
}

NamedTensors Prompt::saved() const {
  const at::NoGradGuard no_grad;
  // Without dropout: a file that depends on a draw would be nobody's intention.
  return {{kKey, encoder_ ? encoder_->encode(/*training=*/false) : embeddings_.detach()}};
}

}  // namespace graft::adapters
