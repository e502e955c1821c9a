// TinyLoRA (2026): a few numbers that move the weight along its own largest singular vectors.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method tinylora_method();

}  // namespace graft::adapters
