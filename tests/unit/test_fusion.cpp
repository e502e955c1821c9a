// What becomes one kernel, and what must not. Every graph is also run, over ATen and compiled, with the same
// results.
#include <gtest/gtest.h>

#include "compiled_check.h"
#include "compiler/lower.h"
#include "passes/pipeline.h"
#include "step_counts.h"
#include "targets/targets.h"

namespace graft::codegen {
namespace {

using testing_tools::Counts;

/// Launches and calls of the compiled graph, which is run too.
Counts counts_of(const std::string& text) {
  testing_tools::expect_same_both_ways(text);
  return testing_tools::counts_of(text);
}

Counts kernels(int n) { return {n, 0}; }

// --- one kernel

TEST(Fusion, PointwiseChain) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[4, 33], %1 "y": f32[33]) {
  %2: f32[4, 33] = aten::mul.Tensor(self=%0, other=%1)
  %3: f32[4, 33] = aten::exp(self=%2)
  %4: f32[4, 33] = aten::add.Tensor(self=%3, other=%0, alpha=2)
  %5: f32[4, 33] = aten::tanh(self=%4)
  return (%5)
}
)"),
            kernels(1));
}

TEST(Fusion, SiluTimes) {
  EXPECT_EQ(counts_of(R"(graph(%0 "gate": f32[4, 33], %1 "up": f32[4, 33]) {
  %2: f32[4, 33] = aten::silu(self=%0)
  %3: f32[4, 33] = aten::mul.Tensor(self=%2, other=%1)
  return (%3)
}
)"),
            kernels(1));
}

TEST(Fusion, BiasAndGelu) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": bf16[4, 33], %1 "bias": bf16[33]) {
  %2: bf16[4, 33] = aten::add.Tensor(self=%0, other=%1)
  %3: bf16[4, 33] = aten::gelu(self=%2, approximate="tanh")
  return (%3)
}
)"),
            kernels(1));
}

TEST(Fusion, Softmax) {
  for (const char* op : {"_softmax", "_log_softmax"})
    for (const char* dim : {"-1", "0"})
      EXPECT_EQ(counts_of(std::string(R"(graph(%0 "x": f32[5, 33]) {
  %1: f32[5, 33] = aten::)") +
                          op + "(self=%0, dim=" + dim + R"(, half_to_float=false)
  return (%1)
}
)"),
                kernels(1))
          << op << " over " << dim;
}

TEST(Fusion, SoftmaxBackward) {
  const auto backward_of = [](const char* op) {
    return std::string(R"(graph(%0 "grad": f32[5, 33], %1 "y": f32[5, 33]) {
  %2: f32[5, 33] = aten::)") +
           op + R"((grad_output=%0, output=%1, dim=-1, input_dtype=f32)
  return (%2)
}
)";
  };
  EXPECT_EQ(counts_of(backward_of("_softmax_backward_data")), kernels(1));
  // The exponential has no reader in common with the sum when it is placed: kernels are joined afterwards.
  EXPECT_EQ(counts_of(backward_of("_log_softmax_backward_data")), kernels(1));
}

TEST(Fusion, MaskedScaledSoftmax) {
  EXPECT_EQ(counts_of(R"(graph(%0 "scores": f32[2, 3, 5, 7], %1 "mask": bool[2, 1, 1, 7]) {
  %2: f32[2, 3, 5, 7] = aten::mul.Scalar(self=%0, other=0.125)
  %3: f32[2, 3, 5, 7] = aten::masked_fill.Scalar(self=%2, mask=%1, value=-1e30)
  %4: f32[2, 3, 5, 7] = aten::_softmax(self=%3, dim=-1, half_to_float=false)
  return (%4)
}
)"),
            kernels(1));
}

const char* const layer_norm_text = R"(graph(%0 "x": f32[5, 33], %1 "w": f32[33], %2 "b": f32[33]) {
  %3: f32[5, 33], %4: f32[5, 1], %5: f32[5, 1] = aten::native_layer_norm(input=%0, normalized_shape=[33], weight=%1, bias=%2, eps=1e-05)
  return (%3, %4, %5)
}
)";

TEST(Fusion, LayerNorm) { EXPECT_EQ(counts_of(layer_norm_text), kernels(1)); }

TEST(Fusion, LayerNormBackward) {
  // The sums over the rows for weight and bias go with the rows of the input's gradient.
  EXPECT_EQ(
      counts_of(
          R"(graph(%0 "grad": f32[5, 33], %1 "x": f32[5, 33], %2 "mean": f32[5, 1], %3 "rstd": f32[5, 1], %4 "w": f32[33], %5 "b": f32[33]) {
  %6: f32[5, 33], %7: f32[33], %8: f32[33] = aten::native_layer_norm_backward(grad_out=%0, input=%1, normalized_shape=[33], mean=%2, rstd=%3, weight=%4, bias=%5, output_mask=[true, true, true])
  return (%6, %7, %8)
}
)"),
      kernels(1));
}

const char* const rms_norm_body = R"(
  %10: f32[5, 33] = aten::pow.Tensor_Scalar(self=%9, exponent=2)
  %11: f32[5, 1] = aten::mean.dim(self=%10, dim=[-1], keepdim=true)
  %12: f32[5, 1] = aten::add.Scalar(self=%11, other=1e-06)
  %13: f32[5, 1] = aten::rsqrt(self=%12)
  %14: f32[5, 33] = aten::mul.Tensor(self=%9, other=%13)
  %15: f32[5, 33] = aten::mul.Tensor(self=%14, other=%1)
)";

TEST(Fusion, RmsNorm) {
  EXPECT_EQ(counts_of(std::string(R"(graph(%9 "x": f32[5, 33], %1 "w": f32[33]) {)") + rms_norm_body +
                      "  return (%15)\n}\n"),
            kernels(1));
}

TEST(Fusion, ResidualAndRmsNorm) {
  EXPECT_EQ(counts_of(std::string(R"(graph(%0 "x": f32[5, 33], %1 "w": f32[33], %2 "delta": f32[5, 33]) {
  %9: f32[5, 33] = aten::add.Tensor(self=%0, other=%2))") +
                      rms_norm_body + "  return (%9, %15)\n}\n"),
            kernels(1));
}

TEST(Fusion, RmsNormInHalfPrecision) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": bf16[5, 33], %1 "w": bf16[33]) {
  %2: f32[5, 33] = aten::_to_copy(self=%0, dtype=f32)
  %3: f32[5, 33] = aten::pow.Tensor_Scalar(self=%2, exponent=2)
  %4: f32[5, 1] = aten::mean.dim(self=%3, dim=[-1], keepdim=true)
  %5: f32[5, 1] = aten::add.Scalar(self=%4, other=1e-06)
  %6: f32[5, 1] = aten::rsqrt(self=%5)
  %7: f32[5, 33] = aten::mul.Tensor(self=%2, other=%6)
  %8: bf16[5, 33] = aten::_to_copy(self=%7, dtype=bf16)
  %9: bf16[5, 33] = aten::mul.Tensor(self=%1, other=%8)
  return (%9)
}
)"),
            kernels(1));
}

TEST(Fusion, Rope) {
  EXPECT_EQ(counts_of(R"(graph(%0 "q": f32[2, 3, 5, 8], %1 "cos": f32[5, 8], %2 "sin": f32[5, 8]) {
  %3: f32[2, 3, 5, 4]{120, 40, 8, 1} = aten::slice.Tensor(self=%0, dim=3, start=0, end=4)
  %4: f32[2, 3, 5, 4]{120, 40, 8, 1} = aten::slice.Tensor(self=%0, dim=3, start=4, end=8)
  %5: f32[2, 3, 5, 4] = aten::neg(self=%4)
  %6: f32[2, 3, 5, 8] = aten::cat(tensors=tensors[%5, %3], dim=-1)
  %7: f32[2, 3, 5, 8] = aten::mul.Tensor(self=%0, other=%1)
  %8: f32[2, 3, 5, 8] = aten::mul.Tensor(self=%6, other=%2)
  %9: f32[2, 3, 5, 8] = aten::add.Tensor(self=%7, other=%8)
  return (%9)
}
)"),
            kernels(1));
}

std::string cross_entropy(const std::string& rows, const std::string& classes, const std::string& dtype,
                          const std::string& reduction) {
  return "graph(%0 \"logits\": " + dtype + "[" + rows + ", " + classes + "], %1 \"targets\": i64[" + rows +
         "]) {\n  %2: " + dtype + "[" + rows + ", " + classes +
         "] = aten::_log_softmax(self=%0, dim=1, half_to_float=false)\n  %3: " + dtype + "[], %4: " + dtype +
         "[] = aten::nll_loss_forward(self=%2, target=%1, weight=None, reduction=" + reduction +
         ", ignore_index=1)\n  return (%3, %4)\n}\n";
}

TEST(Fusion, CrossEntropy) {
  // Over the rows of logits, of which nothing is stored, and on over all rows to the mean of what their
  // targets picked. (1 is ignored, so that some are.)
  for (const char* reduction : {"1", "2"}) {
    EXPECT_EQ(counts_of(cross_entropy("5", "33", "f32", reduction)), kernels(1));
    EXPECT_EQ(counts_of(cross_entropy("301", "1000", "f32", reduction)), kernels(1));
    EXPECT_EQ(counts_of(cross_entropy("301", "100", "bf16", reduction)), kernels(1));
  }
}

TEST(Fusion, ReductionsOfRowsGoOnOverAllRows) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[200, 333]) {
  %1: f32[200] = aten::sum.dim_IntList(self=%0, dim=[1])
  %2: f32[200] = aten::amax(self=%0, dim=[1])
  %3: f32[] = aten::sum(self=%1)
  %4: f32[] = aten::max(self=%2)
  %5: i64[] = aten::argmin(self=%1)
  %6: f32[200] = aten::mul.Tensor(self=%1, other=%2)
  %9: f32[200, 1] = aten::unsqueeze(self=%1, dim=1)
  %7: f32[200, 333] = aten::sub.Tensor(self=%0, other=%9)
  %8: f32[] = aten::div.Tensor(self=%3, other=%4)
  return (%5, %6, %7, %8)
}
)"),
            kernels(1));
}

TEST(Fusion, no_row_uses_what_all_rows_give) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[200, 33]) {
  %1: f32[200] = aten::amax(self=%0, dim=[1])
  %2: f32[] = aten::sum(self=%1)
  %3: f32[200] = aten::div.Tensor(self=%1, other=%2)
  %4: f32[200, 33] = aten::div.Tensor(self=%0, other=%2)
  return (%3, %4)
}
)"),
            kernels(3));
}

TEST(Fusion, no_second_walk_over_the_rows) {
  // The variance of the rows' largest needs their mean first.
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[200, 33]) {
  %1: f32[200] = aten::amax(self=%0, dim=[1])
  %2: f32[] = aten::var.correction(self=%1, dim=[0], correction=1, keepdim=false)
  return (%2)
}
)"),
            kernels(2));
}

TEST(Fusion, no_few_long_rows_into_one_number) {
  EXPECT_EQ(counts_of(cross_entropy("3", "40000", "f32", "1")), kernels(2));
}

/// A gradient's norm, and the gradient by it.
std::string normed(const std::string& type) {
  return "graph(%0 \"x\": " + type + R"() {
  %1: )" +
         type + R"( = aten::mul.Tensor(self=%0, other=%0)
  %2: f32[] = aten::sum(self=%1)
  %3: )" +
         type + R"( = aten::div.Tensor(self=%0, other=%2)
  return (%3)
}
)";
}

TEST(Fusion, a_row_that_is_near_is_walked_over_again) {
  EXPECT_EQ(counts_of(normed("f32[300, 400]")), kernels(1));
}

TEST(Fusion, no_row_that_is_far_is_walked_over_again) {
  EXPECT_EQ(counts_of(normed("f32[400, 400]")), kernels(2));
}

TEST(Fusion, CrossEntropyBackward) {
  EXPECT_EQ(
      counts_of(R"(graph(%0 "grad": f32[], %1 "log_p": f32[5, 33], %2 "targets": i64[5], %3 "total": f32[]) {
  %4: f32[5, 33] = aten::nll_loss_backward(grad_output=%0, self=%1, target=%2, weight=None, reduction=1, ignore_index=-100, total_weight=%3)
  %5: f32[5, 33] = aten::_log_softmax_backward_data(grad_output=%4, output=%1, dim=1, input_dtype=f32)
  return (%5)
}
)"),
      kernels(1));
}

TEST(Fusion, ViewsVanish) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[2, 5, 12]) {
  %1: f32[2, 5, 3, 4] = aten::view(self=%0, size=[2, 5, 3, 4])
  %2: f32[2, 3, 5, 4]{60, 4, 12, 1} = aten::transpose.int(self=%1, dim0=1, dim1=2)
  %3: f32[2, 3, 5, 4]{60, 4, 12, 1} = aten::relu(self=%2)
  %4: f32[2, 5, 3, 4]{60, 12, 4, 1} = aten::transpose.int(self=%3, dim0=1, dim1=2)
  %5: f32[2, 5, 12] = aten::view(self=%4, size=[2, 5, 12])
  %6: f32[2, 5, 12] = aten::add.Tensor(self=%5, other=%0)
  return (%6)
}
)"),
            kernels(1));
}

TEST(Fusion, ReductionsOfOneTensorShareTheirLoop) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[5, 33]) {
  %1: f32[5] = aten::sum.dim_IntList(self=%0, dim=[1])
  %2: f32[5] = aten::amax(self=%0, dim=[1])
  %3: f32[5] = aten::mul.Tensor(self=%1, other=%2)
  return (%1, %3)
}
)"),
            kernels(1));
}

// --- what must stay apart

TEST(Fusion, no_table_into_its_gather) {
  // Where the table is read depends on data, so it must lie in memory.
  EXPECT_EQ(counts_of(R"(graph(%0 "table": f32[5, 33], %1 "rows": i64[5]) {
  %2: f32[5, 33] = aten::exp(self=%0)
  %3: f32[5, 33] = aten::index_select(self=%2, dim=0, index=%1)
  return (%3)
}
)"),
            kernels(2));
}

TEST(Fusion, indices_into_their_gather) {
  EXPECT_EQ(counts_of(R"(graph(%0 "table": f32[5, 33], %1 "rows": i64[7]) {
  %2: i64[7] = aten::add.Scalar(self=%1, other=1)
  %3: f32[7, 33] = aten::index_select(self=%0, dim=0, index=%2)
  return (%3)
}
)"),
            kernels(1));
}

TEST(Fusion, no_reduction_needed_transposed) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 6]) {
  %1: f32[6, 1] = aten::amax(self=%0, dim=[1], keepdim=true)
  %2: f32[1, 6]{1, 1} = aten::t(self=%1)
  %3: f32[6, 6] = aten::sub.Tensor(self=%0, other=%2)
  return (%3)
}
)"),
            kernels(2));
}

TEST(Fusion, no_value_of_a_reduction_computed_again_elsewhere) {
  // Found by the fuzzer: x - max is cheap enough to compute twice, but its maximum is known at one place
  // only.
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 6]) {
  %1: f32[6, 1] = aten::amax(self=%0, dim=[1], keepdim=true)
  %2: f32[6, 6] = aten::sub.Tensor(self=%0, other=%1)
  %3: f32[6, 6]{1, 6} = aten::t(self=%2)
  %4: f32[6, 6] = aten::add.Tensor(self=%2, other=%3)
  return (%4)
}
)"),
            kernels(2));
}

TEST(Fusion, SumsOfRowsAndOfColumns) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[5, 33]) {
  %1: f32[5] = aten::sum.dim_IntList(self=%0, dim=[1])
  %2: f32[33] = aten::sum.dim_IntList(self=%0, dim=[0])
  return (%1, %2)
}
)"),
            kernels(1));
}

// As many rows as columns: which is which is told by the dimensions, not by how many there are.
TEST(Fusion, SumsOfASquare) {
  for (const char* type : {"f32", "bf16", "f64", "i64"}) {
    const std::string t = type;
    EXPECT_EQ(counts_of("graph(%0 \"x\": " + t + "[16, 16]) {\n" + "  %1: " + t +
                        "[16] = aten::sum.dim_IntList(self=%0, dim=[1])\n" + "  %2: " + t +
                        "[16] = aten::sum.dim_IntList(self=%0, dim=[0])\n" + "  %3: " + t +
                        "[16] = aten::amax(self=%0, dim=[0])\n  return (%1, %2, %3)\n}\n"),
              kernels(1))
        << type;
  }
}

// What is read by column belongs to no row, even where there are as many.
TEST(Fusion, no_row_uses_a_column) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[16, 16]) {
  %1: f32[16, 1] = aten::sum.dim_IntList(self=%0, dim=[1], keepdim=true)
  %2: f32[1, 16] = aten::sum.dim_IntList(self=%0, dim=[0], keepdim=true)
  %3: f32[16, 16] = aten::mul.Tensor(self=%0, other=%1)
  %4: f32[16, 16] = aten::add.Tensor(self=%3, other=%2)
  %5: f32[16] = aten::sum.dim_IntList(self=%4, dim=[1])
  %6: f32[1, 16]{1, 1} = aten::t(self=%1)
  %7: f32[16, 16] = aten::sub.Tensor(self=%4, other=%6)
  return (%5, %7, %2)
}
)"),
            kernels(2));
}

TEST(Fusion, ColumnsOfSeveralDimensions) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[3, 7, 33], %1 "y": f32[3, 7, 33]) {
  %2: f32[3, 7, 33] = aten::mul.Tensor(self=%0, other=%1)
  %3: f32[3, 7, 1] = aten::sum.dim_IntList(self=%2, dim=[2], keepdim=true)
  %4: f32[3, 7, 33] = aten::sub.Tensor(self=%2, other=%3)
  %5: f32[33] = aten::sum.dim_IntList(self=%4, dim=[0, 1])
  return (%4, %5)
}
)"),
            kernels(1));
}

TEST(Fusion, no_cycle_through_a_call) {
  // The last sum needs the product, which needs the first kernel: it cannot be in that one.
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 6], %1 "w": f32[6, 6]) {
  %2: f32[6, 6] = aten::tanh(self=%0)
  %3: f32[6, 6] = aten::mm(self=%2, mat2=%1)
  %4: f32[6, 6] = aten::add.Tensor(self=%2, other=%3)
  return (%4)
}
)"),
            (Counts{2, 1}));
}

// A kernel of rows reads two that sum by columns, of which one waits for the other: it can take one of them.
TEST(Fusion, no_cycle_through_columns) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 6], %1 "w": f32[6, 6]) {
  %2: f32[6, 6] = aten::tanh(self=%0)
  %3: f32[6] = aten::sum.dim_IntList(self=%2, dim=[0])
  %4: f32[6, 6] = aten::mm(self=%2, mat2=%1)
  %5: f32[6, 6] = aten::tanh(self=%4)
  %6: f32[6] = aten::sum.dim_IntList(self=%5, dim=[0])
  %7: f32[6, 1] = aten::sum.dim_IntList(self=%2, dim=[1], keepdim=true)
  %8: f32[6, 6] = aten::mul.Tensor(self=%5, other=%7)
  %9: f32[6] = aten::sum.dim_IntList(self=%8, dim=[1])
  return (%3, %6, %9)
}
)"),
            (Counts{2, 1}));
}

// %9 joins %5's kernel, which then waits for %7's: %11, which waits for %5 by a call from before %7, cannot
// join that.
TEST(Fusion, no_cycle_through_a_kernel_that_has_grown) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 8], %1 "w": f32[8, 8], %2 "y": f32[6, 8], %3 "u": f32[6, 8],
      %4 "v": f32[6, 8]) {
  %5: f32[6, 8] = aten::add.Tensor(self=%0, other=%2)
  %6: f32[6, 8] = aten::mm(self=%5, mat2=%1)
  %7: f32[6, 8] = aten::mul.Tensor(self=%3, other=%4)
  %8: f32[6, 8] = aten::mm(self=%7, mat2=%1)
  %9: f32[6, 8] = aten::add.Tensor(self=%0, other=%8)
  %10: f32[6, 8] = aten::mm(self=%6, mat2=%1)
  %11: f32[6, 8] = aten::mul.Tensor(self=%10, other=%7)
  return (%9, %11)
}
)"),
            (Counts{3, 3}));
}

TEST(Fusion, no_cycle_through_another_kernel) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[6, 6]) {
  %1: f32[6, 6] = aten::exp(self=%0)
  %2: f32[6] = aten::sum.dim_IntList(self=%1, dim=[0])
  %3: f32[6] = aten::log(self=%2)
  %4: f32[6, 6] = aten::mul.Tensor(self=%1, other=%3)
  %5: f32[6] = aten::sum.dim_IntList(self=%4, dim=[1])
  return (%5)
}
)"),
            kernels(2));
}

TEST(Fusion, no_guard_around_a_reduction) {
  // Found by the op cases: the sum over the rows was taken under the guard of the row it is put into, so of
  // one row only.
  counts_of(R"(graph(%0 "x": f32[4, 33]) {
  %1: f32[33] = aten::sum.dim_IntList(self=%0, dim=[0])
  %2: f32[4, 33] = aten::select_backward(grad_output=%1, input_sizes=[4, 33], dim=0, index=2)
  return (%2)
}
)");
}

TEST(Fusion, no_memory_shared_with_a_view_that_is_a_call) {
  // Found by the fuzzer: as_strided sees the memory of its argument, which must not be given to others
  // meanwhile.
  counts_of(R"(graph(%0 "x": f32[8]) {
  %1: f32[8] = aten::exp(self=%0)
  %2: f32[4]{2} = aten::as_strided(self=%1, size=[4], stride=[2], storage_offset=0)
  %3: f32[8] = aten::logcumsumexp(self=%0, dim=0)
  %4: f32[8] = aten::sin(self=%3)
  %5: f32[8] = aten::logcumsumexp(self=%4, dim=0)
  %6: f32[8] = aten::cos(self=%5)
  %7: f32[8] = aten::logcumsumexp(self=%6, dim=0)
  return (%2, %7)
}
)");
}

TEST(Fusion, EmptyTensors) {
  counts_of(R"(graph(%0 "x": f32[0, 5], %1 "y": f32[5]) {
  %2: f32[0, 5] = aten::mul.Tensor(self=%0, other=%1)
  %3: f32[0] = aten::sum.dim_IntList(self=%2, dim=[1])
  %4: f32[5] = aten::sum.dim_IntList(self=%2, dim=[0])
  return (%2, %3, %4)
}
)");
}

TEST(Fusion, ReductionOverADimensionOfOne) {
  EXPECT_EQ(counts_of(R"(graph(%0 "x": f32[5, 1]) {
  %1: f32[5] = aten::sum.dim_IntList(self=%0, dim=[1])
  %2: f32[5, 1] = aten::_softmax(self=%0, dim=1, half_to_float=false)
  return (%1, %2)
}
)")
                .calls,
            0);
}

TEST(Fusion, TextOfASchedule) {
  auto graph = ir::parse(layer_norm_text);
  passes::run_passes(passes_for(target_for({})), graph);
  const auto text = to_string(schedule(graph, target_for({}).limits()));
  EXPECT_NE(text.find("kernel 0 over 5 33 reduced"), std::string::npos) << text;
  EXPECT_NE(text.find("reads %0: f32[5, 33]"), std::string::npos) << text;
}

}  // namespace
}  // namespace graft::codegen
