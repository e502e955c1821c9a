#include "adapters/methods/cartridge.h"

#include <ATen/ATen.h>

#include "adapters/prefix.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

/// The rows themselves, the first ones frozen: attention falls back on the first tokens it sees, and training
/// is steadier where those stay.
class KeptRows : public PromptEncoder {
 public:
  KeptRows(const at::Tensor& rows, int64_t frozen) {
    frozen_ = register_buffer("frozen_embedding", rows.slice(0, 0, frozen).clone());
    trained_ =
        register_parameter("trainable_embedding", rows.slice(0, frozen).clone(), /*requires_grad=*/false);
  }

  at::Tensor encode(bool /*training*/) override { return at::cat({frozen_, trained_}, 0); }

 private:
  at::Tensor frozen_, trained_;
};

at::Tensor fresh_rows(int64_t tokens, int64_t frozen, int64_t width) {
  auto rows = fresh_tensor("prompt_embeddings", {tokens, width});
  // In PEFT's order.
  for (const auto& part : {rows.slice(0, 0, frozen), rows.slice(0, frozen)})
    if (part.numel() > 0) part.normal_();
  return rows;
}

void check(const AdapterConfig& config) {
  check_prompt(config);
  const int64_t frozen = config.integer("num_frozen_tokens"), tokens = config.integer("num_virtual_tokens");
  if (frozen < 0 || frozen > tokens)
    throw ConfigError("[cartridge] \"num_frozen_tokens\" must be between 0 and the " +
                      std::to_string(tokens) + " virtual tokens, got " + std::to_string(frozen));
}

}  // namespace

Method cartridge_method() {
  return {.type = "CARTRIDGE",
          .fields = prompt_fields({{"num_frozen_tokens", 1}}),
          .check = check,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            const auto& config = build.config;
            const int64_t tokens = config.integer("num_virtual_tokens"),
                          frozen = config.integer("num_frozen_tokens"), width = prefix_width(config);
            auto rows = build.source.take("prompt_embeddings", {tokens, width});
            if (!rows.defined()) rows = fresh_rows(tokens, frozen, width);
            return std::make_shared<Prefix>(build, std::make_shared<KeptRows>(rows, frozen));
          }};
}

}  // namespace graft::adapters
