// PEFT's variants of LoRA on linear layers, of which an adapter is at most one.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

/// The fields of LoRA's configuration that ask for one.
std::vector<Field> lora_variant_fields();

/// Whether the configuration asks for one, or for DoRA.
bool has_variant(const AdapterConfig& config);

/// ConfigError: two variants at once, or one with values it cannot have.
void check_lora_variants(const AdapterConfig& config);
/// ConfigError where a layer is of a kind that the configuration's variant is not for.
void check_variant_fits(const PartBuild& build);

/// Whether B stays as it starts ("init_lora_weights": "mica").
bool is_mica(const AdapterConfig& config);
/// Whether it draws random numbers in training, dropout or not.
bool draws_in_training(const AdapterConfig& config);
/// aLoRA's tokens, from the last occurrence of which on it works; none for any other adapter.
std::vector<int64_t> invocation_tokens(const AdapterConfig& config);

/// On a linear layer: plain LoRA, DoRA or a variant.
std::shared_ptr<Part> lora_linear_part(const PartBuild& build);

}  // namespace graft::adapters
