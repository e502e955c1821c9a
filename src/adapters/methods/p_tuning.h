// P-tuning (Liu et al. 2021): embeddings of virtual tokens, trained through an MLP or an LSTM.
#pragma once
#include "adapters/method.h"

namespace graft::adapters {

Method p_tuning_method();

}  // namespace graft::adapters
