// RandLoRA: y = W x + scaling B A x, of full rank. B and A are built from random bases, frozen and shared by
// all layers; a layer trains how much of each base it takes (lambda and gamma), on its smaller side.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method randlora_method();

}  // namespace graft::adapters
