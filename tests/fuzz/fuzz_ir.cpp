// Any text: either FormatError, or a well-formed graph whose text reads back as the same graph.
#include <cstdint>

#include "fuzz.h"
#include "graft/error.h"
#include "ir/parser.h"
#include "ir/verifier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto graph = graft::ir::parse(text);
    graft::ir::verify(graph);
    const auto once = graft::ir::to_string(graph);
    FUZZ_CHECK(graft::ir::to_string(graft::ir::parse(once)) == once);
  } catch (const graft::FormatError&) {
  }
  return 0;
}
