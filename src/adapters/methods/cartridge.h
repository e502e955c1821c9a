// CARTRIDGE: keys and values before those of every layer, kept as they are; the first ones are not trained.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method cartridge_method();

}  // namespace graft::adapters
