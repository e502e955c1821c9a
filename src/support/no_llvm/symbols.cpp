// In the place of support/llvm where graft is built without LLVM.
#include "support/symbols.h"

namespace graft {

std::vector<Symbol> symbols_at(const std::string& /*file*/, uint64_t /*address*/) { return {}; }

}  // namespace graft
