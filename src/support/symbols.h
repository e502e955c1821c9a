// What a program's symbols and debug information say about an address. Without LLVM (support/no_llvm) they
// say nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace graft {

/// A function that stands at an address, the innermost of those that were put into one another first.
struct Symbol {
  std::string linkage_name;  ///< as the linker has it; empty where unknown
  std::string file;          ///< empty where there is no debug information
  int64_t line = 0;
};

/// `address`: as it stands in the file of the program or library.
std::vector<Symbol> symbols_at(const std::string& file, uint64_t address);

}  // namespace graft
