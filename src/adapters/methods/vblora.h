// VB-LoRA: LoRA whose A and B are put together from the vectors of a bank that all layers share. A layer
// trains, for each piece of its matrices, which k vectors of the bank it mixes and how much of each.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method vblora_method();

}  // namespace graft::adapters
