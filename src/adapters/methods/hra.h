// HRA: the layer behind a product of Householder reflections of its input, y = W H_1 ... H_r x.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method hra_method();

}  // namespace graft::adapters
