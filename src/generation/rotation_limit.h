// Rotary positions that depend on what else is in a call.
#pragma once
#include "graft/model.h"

namespace graft::generation {

/// Up to how many positions a token's rotation is the same whatever else a call holds. None where it always
/// is. With "dynamic" scaling and LongRoPE the frequencies of a call change once its longest position is
/// past the trained length: then a row would depend on the other rows, and a token on those guessed after it.
std::optional<int64_t> rotation_limit(const PreTrainedModel& model);

}  // namespace graft::generation
