#include "support/symbols.h"

#include <llvm/DebugInfo/Symbolize/Symbolize.h>

#include <mutex>

namespace graft {

std::vector<Symbol> symbols_at(const std::string& file, uint64_t address) {
  using llvm::symbolize::LLVMSymbolizer;
  static std::mutex guard;
  static auto* const symbolizer = [] {
    LLVMSymbolizer::Options options;
    options.PrintFunctions = llvm::DINameKind::LinkageName;
    options.Demangle = false;
    return new LLVMSymbolizer(options);  // never freed: used until the very end
  }();
  const std::lock_guard<std::mutex> lock(guard);
  auto found =
      symbolizer->symbolizeInlinedCode(file, {address, llvm::object::SectionedAddress::UndefSection});
  if (!found) {
    llvm::consumeError(found.takeError());
    return {};
  }
  const auto known = [](const std::string& text) {
    return text == llvm::DILineInfo::BadString ? std::string() : text;
  };
  std::vector<Symbol> symbols;
  for (uint32_t i = 0; i < found->getNumberOfFrames(); ++i) {
    const auto& frame = found->getFrame(i);
    symbols.push_back({known(frame.FunctionName), known(frame.FileName), frame.Line});
  }
  return symbols;
}

}  // namespace graft
