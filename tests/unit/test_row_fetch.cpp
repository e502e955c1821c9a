// Kernels that go over a row several times fetch the next one meanwhile.
#include <gtest/gtest.h>

#include "compiled_check.h"
#include "compiler/lower.h"
#include "targets/targets.h"

namespace graft {
namespace {

/// Loops that fetch something for later, in the kernels of a graph.
size_t fetches(const std::string& text) {
  const auto& target = target_for({});
  const auto code = emit(lower(ir::parse(text), target), target, "llvm");
  size_t found = 0;
  for (size_t at = code.find("call void @llvm.prefetch"); at != std::string::npos;
       at = code.find("call void @llvm.prefetch", at + 1))
    ++found;
  return found;
}

/// Also right: rows that do not fill vectors, and the last one, after which there is none.
size_t fetches_and_right(const std::string& text) {
  testing_tools::expect_same_both_ways(text);
  return fetches(text);
}

TEST(RowFetch, OfRowsThatAreReadAgain) {
  EXPECT_GT(fetches_and_right(R"(graph(%0 "x": f32[5, 1027]) {
  %1: f32[5, 1027] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  return (%1)
})"),
            0);
  EXPECT_GT(fetches_and_right(R"(graph(%0 "x": bf16[3, 2, 200], %1 "w": bf16[200], %2 "b": bf16[200]) {
  %3: bf16[3, 2, 200], %4: bf16[3, 2, 1], %5: bf16[3, 2, 1] = aten::native_layer_norm(input=%0, normalized_shape=[200], weight=%1, bias=%2, eps=1e-05)
  return (%3)
})"),
            0);
}

TEST(RowFetch, NotWithoutNeed) {
  // Read once.
  EXPECT_EQ(fetches_and_right(R"(graph(%0 "x": f32[5, 1024]) {
  %1: f32[5] = aten::sum.dim_IntList(self=%0, dim=[1])
  return (%1)
})"),
            0);
  // One row.
  EXPECT_EQ(fetches_and_right(R"(graph(%0 "x": f32[1, 1024]) {
  %1: f32[1, 1024] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  return (%1)
})"),
            0);
  // Two of these would not lie beside each other in a cache.
  EXPECT_EQ(fetches(R"(graph(%0 "x": f32[64, 100000]) {
  %1: f32[64, 100000] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  return (%1)
})"),
            0);
}

}  // namespace
}  // namespace graft
