// Adaption prompts (LLaMA-Adapter): keys and values of learned tokens beside those of the last layers'
// attention.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method adaption_prompt_method();

}  // namespace graft::adapters
