// Falcon: multi-query attention beside the feed-forward block (7B), groups of heads with two norms (40B), or
// blocks one after the other with linear biases (RW).
#pragma once
#include "models/architecture.h"

namespace graft {
std::vector<Architecture> falcon_architectures();
}
