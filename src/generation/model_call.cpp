#include "generation/model_call.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::generation {

at::Tensor all_logits(const ModelOutput& output) {
  const auto& logits = output.logits;
  if (!logits.defined() || logits.dim() != 3)
    throw UsageError(
        "[generate] the model gives no logits for each token: load it by "
        "AutoModelForCausalLM::from_pretrained");
  return logits;
}

at::Tensor last_logits(const ModelOutput& output) {
  const auto logits = all_logits(output);
  return logits.select(1, logits.size(1) - 1);
}

void refuse_adapters(const GenerateCall& call) {
  if (!call.adapter_names.empty())
    throw UsageError("[generate] adapter_names are given and the model has no adapters: use a PeftModel");
}

}  // namespace graft::generation
