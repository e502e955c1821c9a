// CPT: a prompt made of examples, each token of which may move only so far from its embedding.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method cpt_method();

}  // namespace graft::adapters
