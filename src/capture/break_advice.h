// How code that no graph can hold is written so that one can.
#pragma once
#include <string>
#include <string_view>

namespace graft {

/// For an operator that reads values, or has a result whose shape depends on them, as a sentence.
std::string advice_for(std::string_view op);

}  // namespace graft
