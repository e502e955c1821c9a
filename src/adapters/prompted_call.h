// A call with virtual tokens before its input, as PEFT changes it.
#pragma once
#include "graft/peft.h"

namespace graft::adapters {

/// The inputs that the model is given. A mask covers the virtual tokens too, labels say nothing of them,
/// and what cannot be told of them (positions before a soft prompt, token types of a language model) is left
/// out with a warning. A cache that holds tokens holds the virtual ones already. Without virtual tokens: the
/// inputs as they are.
ModelInputs with_virtual_tokens(const VirtualTokens& tokens, const ModelInputs& inputs,
                                const PreTrainedModel& model);

/// The loss of such a call, where the method has one of its own (CPT); `given` are the call's own inputs.
void put_loss(const VirtualTokens& tokens, const ModelInputs& given, ModelOutput& output);

}  // namespace graft::adapters
