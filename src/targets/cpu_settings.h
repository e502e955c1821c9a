// What eager code may change for the whole process and programs on the CPU need as it was.
#pragma once
#include <memory>

#include "targets/target.h"

namespace graft::cpu {

std::unique_ptr<KeptSettings> keep_settings();

}  // namespace graft::cpu
