// One call of a model, with or without adapters, compiled or not.
#pragma once
#include <functional>

#include "graft/generate.h"

namespace graft::generation {

using ModelCall = std::function<ModelOutput(const ModelInputs&)>;

/// [batch, seq, vocab]. UsageError where the model has no head for tokens.
at::Tensor all_logits(const ModelOutput& output);

/// Of the last column, [batch, vocab].
at::Tensor last_logits(const ModelOutput& output);

/// UsageError where a model without adapters is asked for some.
void refuse_adapters(const GenerateCall& call);

}  // namespace graft::generation
