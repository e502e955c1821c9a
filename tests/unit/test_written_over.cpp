// Results of kernels that lie where a temporary lay which nobody needs any more: seen by how much memory a
// program has for them, and by what it computes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "compiled_check.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t square = 64 * 64 * 4;  // bytes of what the programs below compute

/// Of a program over two squares, %0 and %1.
int64_t temporary_bytes(const std::string& body) {
  const auto text = R"(graph(%0 "x": f32[64, 64], %1 "w": f32[64, 64]) {)" + body + "}\n";
  const auto graph = ir::parse(text);
  const Tensors inputs = {at::randn({64, 64}), at::randn({64, 64})};
  const auto want = ref::compile(graph, {})->run(inputs, false);
  const auto run = build(ir::parse(text), {}, {.cache = false}, {});
  for (int call = 0; call < 3; ++call) {
    const auto got = run->run(inputs, false);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(testing_tools::differs(got[i], want[i]), "") << text;
  }
  const auto said = run->describe();
  const auto end = said.find(" bytes of temporaries"), begin = said.rfind(' ', end - 1) + 1;
  return std::stoll(said.substr(begin, end - begin));
}

TEST(WrittenOver, AKernelsResultLiesWhereItsArgumentLay) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64] = aten::tanh(self=%2)
  %4: f32[64, 64] = aten::mm(self=%3, mat2=%1)
  return (%4)
)"),
            square);
}

TEST(WrittenOver, ByTheLastLoopOverARow) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64] = aten::_softmax(self=%2, dim=1, half_to_float=false)
  %4: f32[64, 64] = aten::mm(self=%3, mat2=%1)
  return (%4)
)"),
            square);
}

TEST(WrittenOver, no_result_over_what_is_read_at_other_places) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64]{1, 64} = aten::t(self=%2)
  %4: f32[64, 64] = aten::add.Tensor(self=%3, other=%2, alpha=1)
  %5: f32[64, 64] = aten::mm(self=%4, mat2=%1)
  return (%5)
)"),
            2 * square);
}

TEST(WrittenOver, no_result_over_what_is_needed_later) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64] = aten::tanh(self=%2)
  %4: f32[64, 64] = aten::mm(self=%3, mat2=%2)
  return (%4)
)"),
            2 * square);
}

TEST(WrittenOver, no_result_over_an_earlier_row_that_is_read_again) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[1, 64] = aten::slice.Tensor(self=%2, dim=0, start=0, end=1, step=1)
  %4: f32[64, 64] = aten::mul.Tensor(self=%2, other=%3)
  %5: f32[64, 64] = aten::mm(self=%4, mat2=%1)
  return (%5)
)"),
            2 * square);
}

/// Of two results only one can have the argument's memory.
TEST(WrittenOver, OneResultOnly) {
  EXPECT_EQ(temporary_bytes(R"(
  %2: f32[64, 64] = aten::mm(self=%0, mat2=%1)
  %3: f32[64, 64] = aten::tanh(self=%2)
  %4: f32[64, 64] = aten::exp(self=%2)
  %5: f32[64, 64] = aten::mm(self=%3, mat2=%4)
  return (%5)
)"),
            2 * square);
}

}  // namespace
}  // namespace graft
