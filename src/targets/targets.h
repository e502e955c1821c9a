// The list of targets.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ir/type.h"
#include "targets/target.h"

namespace graft {

const std::vector<const Target*>& targets();

/// The one for a kind of device; Error where there is none. It may be missing in this build
/// (Target::missing).
const Target& target_for(const ir::Device& device);

/// The levels of `--emit` of all of them, in the order in which a graph goes through them.
std::vector<std::string> code_levels();

/// Target::keep_settings of all of them.
std::vector<std::unique_ptr<KeptSettings>> keep_settings();

}  // namespace graft
