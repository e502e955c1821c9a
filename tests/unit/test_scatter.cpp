// Elements added at places that are data: kernels that compute what they add, the same numbers as ATen's, and
// the same to the last bit whatever the number of threads.
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include "compiled_check.h"
#include "graft/compile.h"
#include "graft/error.h"
#include "passes/pipeline.h"
#include "step_counts.h"
#include "threads.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::Counts;
using testing_tools::counts_of;
using testing_tools::Threads;
using Tensors = std::vector<Tensor>;

/// As over ATen, equal with 1, 2 and 3 threads, and so many launches and calls.
void expect_scattered(const std::string& text, const Tensors& inputs, Counts counts) {
  EXPECT_EQ(counts_of(text), counts) << text;
  const auto graph = ir::parse(text);
  const auto want = ref::compile(graph, {})->run(inputs);
  const auto fast = build(ir::clone(graph), {}, {.cache = false});
  Tensors first;
  for (const int threads : {1, 2, 3}) {
    const Threads set(threads);
    const auto got = fast->run(inputs);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(testing_tools::differs(got[i], want[i]), "")
          << "result " << i << " by " << threads << " threads of\n"
          << text;
      if (threads > 1) EXPECT_TRUE(at::equal(got[i], first[i])) << threads << " threads\n" << text;
    }
    if (threads == 1)
      for (const auto& t : got) first.push_back(t.clone());
  }
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

Tensor places(at::IntArrayRef sizes, int64_t below) { return at::randint(0, below, sizes, at::kLong); }

// --- each operator, what it adds computed beside it

TEST(Scatter, EmbeddingGradient) {
  // 77 columns: no whole number of vectors. 40 tokens over 13 rows: most several times, some never.
  for (const char* padding : {"-1", "3"})
    for (const char* dtype : {"f32", "f64", "bf16", "f16"}) {
      const auto text =
          replaced(replaced(R"(graph(%0 "a": T[5, 8, 77], %1 "b": T[5, 8, 77], %2 "tokens": i64[5, 8]) {
  %3: T[5, 8, 77] = aten::add.Tensor(self=%0, other=%1)
  %4: T[5, 8, 77] = aten::mul.Scalar(self=%3, other=0.5)
  %5: T[13, 77] = aten::embedding_dense_backward(grad_output=%4, indices=%2, num_weights=13, padding_idx=P, scale_grad_by_freq=false)
  return (%5)
}
)",
                            "T[", std::string(dtype) + "["),
                   "=P", std::string("=") + padding);
      const auto graph = ir::parse(text);
      const auto of = to_torch(graph.inputs()[0]->type().dtype);
      expect_scattered(text, {at::randn({5, 8, 77}).to(of), at::randn({5, 8, 77}).to(of), places({5, 8}, 13)},
                       {2, 0});
    }
}

TEST(Scatter, EmbeddingGradientOfDearProducers) {
  // More than is computed again elsewhere: a kernel of its own, were it not for the scatter.
  expect_scattered(
      R"(graph(%0 "a": f32[40, 96], %1 "b": f32[40, 96], %2 "mask": bool[40, 1], %3 "tokens": i64[40], %4 "x": bf16[40, 96]) {
  %5: f32[40, 96] = aten::gelu_backward(grad_output=%0, self=%1, approximate="none")
  %6: f32[40, 96] = aten::tanh(self=%5)
  %7: f32[40, 96] = aten::_to_copy(self=%4, dtype=f32)
  %8: f32[40, 96] = aten::add.Tensor(self=%6, other=%7)
  %9: f32[40, 96] = aten::masked_fill.Scalar(self=%8, mask=%2, value=0)
  %10: f32[13, 96] = aten::embedding_dense_backward(grad_output=%9, indices=%3, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  return (%10)
}
)",
      {at::randn({40, 96}), at::randn({40, 96}), places({40, 1}, 2).to(at::kBool), places({40}, 13),
       at::randn({40, 96}).to(at::kBFloat16)},
      {2, 0});
}

TEST(Scatter, IndexAdd) {
  for (const char* alpha : {"1", "-2"})
    for (const int dim : {0, 1, 2}) {
      std::vector<int64_t> sizes{9, 8, 50};
      sizes[static_cast<size_t>(dim)] = 19;
      const auto text =
          replaced(replaced(replaced(R"(graph(%0 "x": f32[9, 8, 50], %1 "index": i64[19], %2 "source": f32S) {
  %3: f32S = aten::exp(self=%2)
  %4: f32[9, 8, 50] = aten::index_add(self=%0, dim=D, index=%1, source=%3, alpha=A)
  return (%4)
}
)",
                                     "f32S",
                                     "f32[" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) +
                                         ", " + std::to_string(sizes[2]) + "]"),
                            "=D", "=" + std::to_string(dim)),
                   "=A", std::string("=") + alpha);
      expect_scattered(text,
                       {at::randn({9, 8, 50}),
                        places({19}, dim == 0   ? 9
                                     : dim == 1 ? 8
                                                : 50),
                        at::randn(sizes)},
                       {2, 0});
    }
}

TEST(Scatter, ScatterAdd) {
  for (const char* dtype : {"f32", "f64", "i64", "i32"})
    for (const char* dim : {"0", "1"}) {
      // The index is smaller than what is added, and than what it is added to.
      const auto text =
          replaced(replaced(R"(graph(%0 "x": T[21, 70], %1 "index": i64[17, 67], %2 "source": T[18, 69]) {
  %3: T[18, 69] = aten::mul.Scalar(self=%2, other=3)
  %4: T[21, 70] = aten::scatter_add(self=%0, dim=D, index=%1, src=%3)
  return (%4)
}
)",
                            "T[", std::string(dtype) + "["),
                   "=D", std::string("=") + dim);
      const auto of = to_torch(ir::parse(text).inputs()[0]->type().dtype);
      expect_scattered(
          text, {at::randn({21, 70}).mul(5).to(of), places({17, 67}, 21), at::randn({18, 69}).mul(5).to(of)},
          {2, 0});
    }
}

TEST(Scatter, IndexPut) {
  // One index, two together, two apart, a broadcast one, values that are broadcast; from the end, too.
  struct Case {
    const char* indices;
    const char* values;
    std::vector<int64_t> sizes;
  };
  for (const auto& [indices, values, sizes] : std::vector<Case>{{"%1", "f32[11, 6, 33]", {11, 6, 33}},
                                                                {"None, %1", "f32[5, 11, 33]", {5, 11, 33}},
                                                                {"%1, %2", "f32[11, 33]", {11, 33}},
                                                                {"%1, None, %2", "f32[11, 6]", {11, 6}},
                                                                {"%1, %3", "f32[4, 11, 33]", {4, 11, 33}},
                                                                {"%1, %2", "f32[33]", {33}},
                                                                {"%1, %2, %2", "f32[]", {}}})
    for (const char* op : {"index_put", "_index_put_impl", "_unsafe_index_put"}) {
      if (std::string(op) == "_unsafe_index_put" && std::string(indices) != "%1") continue;
      const auto text = replaced(
          replaced(
              replaced(
                  R"(graph(%0 "x": f32[5, 6, 33], %1 "i": i64[11], %2 "j": i64[11], %3 "k": i64[4, 1], %4 "values": V) {
  %5: V = aten::neg(self=%4)
  %6: f32[5, 6, 33] = aten::OP(self=%0, indices=tensors[I], values=%5, accumulate=true)
  return (%6)
}
)",
                  "V", values),
              "[I]", "[" + std::string(indices) + "]"),
          "OP", op);
      const int64_t low = std::string(op) == "_unsafe_index_put" ? 0 : -5;
      expect_scattered(
          text,
          {at::randn({5, 6, 33}), at::randint(low, 5, {11}, at::kLong), at::randint(low, 5, {11}, at::kLong),
           at::randint(low, 5, {4, 1}, at::kLong), at::randn(sizes)},
          {2, 0});
    }
}

TEST(Scatter, OnePlaceForAll) {
  // Nothing of what is added differs from point to point, and all of it is added.
  expect_scattered(R"(graph(%0 "x": f32[3, 40], %1 "one": f32[], %2 "at": i64[1]) {
  %3: f32[50, 40]{0, 0} = aten::expand(self=%1, size=[50, 40])
  %4: i64[50]{0} = aten::expand(self=%2, size=[50])
  %5: f32[3, 40] = aten::index_add(self=%0, dim=0, index=%4, source=%3)
  return (%5)
}
)",
                   {at::randn({3, 40}), at::tensor(0.25F), at::tensor({2}, at::kLong)}, {2, 0});
}

TEST(Scatter, OneDimension) {
  for (const char* call : {"aten::index_add(self=%0, dim=0, index=%1, source=%3)",
                           "aten::scatter_add(self=%0, dim=0, index=%1, src=%3)",
                           "aten::index_put(self=%0, indices=tensors[%1], values=%3, accumulate=true)"})
    expect_scattered(replaced(R"(graph(%0 "x": f32[301], %1 "index": i64[5003], %2 "source": f32[5003]) {
  %3: f32[5003] = aten::mul.Scalar(self=%2, other=0.5)
  %4: f32[301] = CALL
  return (%4)
}
)",
                              "CALL", call),
                     {at::randn({301}), places({5003}, 301), at::randn({5003})}, {2, 0});
}

TEST(Scatter, LargeEnoughForSeveralThreads) {
  expect_scattered(R"(graph(%0 "a": f32[3000, 250], %1 "tokens": i64[3000]) {
  %2: f32[3000, 250] = aten::tanh(self=%0)
  %3: f32[101, 250] = aten::embedding_dense_backward(grad_output=%2, indices=%1, num_weights=101, padding_idx=-1, scale_grad_by_freq=false)
  return (%3)
}
)",
                   {at::randn({3000, 250}), places({3000}, 101)}, {2, 0});
  expect_scattered(R"(graph(%0 "a": f32[2000, 130], %1 "places": i64[2000, 130]) {
  %2: f32[2000, 130] = aten::sigmoid(self=%0)
  %3: f32[2000, 301] = aten::zeros(size=[2000, 301])
  %4: f32[2000, 301] = aten::scatter_add(self=%3, dim=1, index=%1, src=%2)
  return (%4)
}
)",
                   {at::randn({2000, 130}), places({2000, 130}, 301)}, {2, 0});
}

// --- what it adds to, and what is made of it

TEST(Scatter, OntoWhatNobodyElseNeeds) {
  // No copy: in the memory of a product, of a kernel's result, of another scatter's.
  expect_scattered(
      R"(graph(%0 "a": f32[13, 20], %1 "b": f32[20, 77], %2 "index": i64[40], %3 "source": f32[40, 77]) {
  %4: f32[13, 77] = aten::mm(self=%0, mat2=%1)
  %5: f32[13, 77] = aten::index_add(self=%4, dim=0, index=%2, source=%3)
  return (%5)
}
)",
      {at::randn({13, 20}), at::randn({20, 77}), places({40}, 13), at::randn({40, 77})}, {1, 1});
  expect_scattered(R"(graph(%0 "x": f32[13, 77], %1 "index": i64[40], %2 "source": f32[40, 77]) {
  %3: f32[13, 77] = aten::exp(self=%0)
  %4: f32[13, 77] = aten::index_add(self=%3, dim=0, index=%1, source=%2)
  %5: f32[13, 77] = aten::index_add(self=%4, dim=0, index=%1, source=%2, alpha=2)
  %6: f32[13, 77] = aten::tanh(self=%5)
  return (%6)
}
)",
                   {at::randn({13, 77}), places({40}, 13), at::randn({40, 77})}, {4, 0});
}

TEST(Scatter, no_memory_shared_with_what_others_need) {
  // A result, a value with two readers, an input: copied.
  expect_scattered(
      R"(graph(%0 "a": f32[13, 20], %1 "b": f32[20, 77], %2 "index": i64[40], %3 "source": f32[40, 77]) {
  %4: f32[13, 77] = aten::mm(self=%0, mat2=%1)
  %5: f32[13, 77] = aten::index_add(self=%4, dim=0, index=%2, source=%3)
  return (%5, %4)
}
)",
      {at::randn({13, 20}), at::randn({20, 77}), places({40}, 13), at::randn({40, 77})}, {2, 1});
  expect_scattered(R"(graph(%0 "x": f32[13, 77], %1 "index": i64[40], %2 "source": f32[40, 77]) {
  %3: f32[13, 77] = aten::exp(self=%0)
  %4: f32[13, 77] = aten::index_add(self=%3, dim=0, index=%1, source=%2)
  %5: f32[13, 77] = aten::mul.Tensor(self=%4, other=%3)
  return (%5)
}
)",
                   {at::randn({13, 77}), places({40}, 13), at::randn({40, 77})}, {4, 0});
  const Tensor x = at::randn({13, 77}), before = x.clone();
  expect_scattered(R"(graph(%0 "x": f32[13, 77], %1 "index": i64[40], %2 "source": f32[40, 77]) {
  %3: f32[13, 77] = aten::index_add(self=%0, dim=0, index=%1, source=%2)
  return (%3)
}
)",
                   {x, places({40}, 13), at::randn({40, 77})}, {2, 0});
  EXPECT_TRUE(at::equal(x, before));
}

TEST(Scatter, ProducersThatOthersReadAreStored) {
  expect_scattered(R"(graph(%0 "a": f32[40, 77], %1 "tokens": i64[40]) {
  %2: f32[40, 77] = aten::tanh(self=%0)
  %3: f32[13, 77] = aten::embedding_dense_backward(grad_output=%2, indices=%1, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  %4: f32[40] = aten::sum.dim_IntList(self=%2, dim=[1])
  return (%3, %4)
}
)",
                   {at::randn({40, 77}), places({40}, 13)}, {3, 0});
}

TEST(Scatter, SourceThatIsItsTarget) {
  expect_scattered(R"(graph(%0 "x": f32[13, 77], %1 "index": i64[13]) {
  %2: f32[13, 77] = aten::exp(self=%0)
  %3: f32[13, 77] = aten::index_add(self=%2, dim=0, index=%1, source=%2)
  return (%3)
}
)",
                   {at::randn({13, 77}), places({13}, 13)}, {3, 0});
}

// --- sums into scatters

const char* const tied =
    R"(graph(%0 "a": f32[20, 13], %1 "b": f32[20, 77], %2 "tokens": i64[5, 8], %3 "grad": f32[5, 8, 77]) {
  %4: f32[13, 20]{1, 13} = aten::t(self=%0)
  %5: f32[13, 77] = aten::mm(self=%4, mat2=%1)
  %6: f32[77, 13]{1, 77} = aten::t(self=%5)
  %7: f32[13, 77] = aten::t(self=%6)
  %8: f32[13, 77] = aten::embedding_dense_backward(grad_output=%3, indices=%2, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  %9: f32[13, 77] = aten::add.Tensor(self=%7, other=%8)
  return (%9)
}
)";

TEST(Scatter, GradientOfATiedWeightIsAddedOntoItsProduct) {
  const Tensors inputs{at::randn({20, 13}), at::randn({20, 77}), places({5, 8}, 13), at::randn({5, 8, 77})};
  expect_scattered(tied, inputs, {1, 1});
  expect_scattered(replaced(tied, "self=%7, other=%8", "self=%8, other=%7"), inputs, {1, 1});
  // Both halves of what a square matrix is transposed to once are its own, elsewhere.
  expect_scattered(R"(graph(%0 "a": f32[13, 13], %1 "tokens": i64[9], %2 "grad": f32[9, 13]) {
  %3: f32[13, 13] = aten::mm(self=%0, mat2=%0)
  %4: f32[13, 13]{1, 13} = aten::t(self=%3)
  %5: f32[13, 13] = aten::embedding_dense_backward(grad_output=%2, indices=%1, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  %6: f32[13, 13] = aten::add.Tensor(self=%5, other=%4)
  return (%6)
}
)",
                   {at::randn({13, 13}), places({9}, 13), at::randn({9, 13})}, {3, 1});
}

TEST(Scatter, no_sum_into_a_scatter_with_padding_weights_or_other_readers) {
  const Tensors inputs{at::randn({20, 13}), at::randn({20, 77}), places({5, 8}, 13), at::randn({5, 8, 77})};
  expect_scattered(replaced(tied, "padding_idx=-1", "padding_idx=2"), inputs, {3, 1});
  expect_scattered(replaced(tied, "other=%8", "other=%8, alpha=2"), inputs, {3, 1});
  expect_scattered(replaced(tied, "(%9)", "(%9, %8)"), inputs, {3, 1});
}

TEST(Scatter, SumsWithWhatWasAddedToZeros) {
  for (const char* call : {"aten::index_add(self=%3, dim=0, index=%1, source=%2)",
                           "aten::index_put(self=%3, indices=tensors[%1], values=%2, accumulate=true)"})
    expect_scattered(replaced(R"(graph(%0 "x": f32[13, 77], %1 "i": i64[40], %2 "source": f32[40, 77]) {
  %3: f32[13, 77] = aten::zeros(size=[13, 77])
  %4: f32[13, 77] = CALL
  %5: f32[13, 77] = aten::exp(self=%0)
  %6: f32[13, 77] = aten::add.Tensor(self=%4, other=%5)
  return (%6)
}
)",
                              "CALL", call),
                     {at::randn({13, 77}), places({40}, 13), at::randn({40, 77})}, {2, 0});
}

// --- what is left to ATen, and errors

TEST(Scatter, no_kernel_for_what_ATen_does_otherwise) {
  expect_scattered(
      R"(graph(%0 "x": bf16[3, 40], %1 "index": i64[50], %2 "source": bf16[50, 40]) {
  %3: bf16[3, 40] = aten::index_add(self=%0, dim=0, index=%1, source=%2)
  return (%3)
}
)",
      {at::randn({3, 40}).to(at::kBFloat16), places({50}, 3), at::randn({50, 40}).to(at::kBFloat16)}, {0, 1});
  expect_scattered(R"(graph(%0 "a": f32[40, 77], %1 "tokens": i64[40]) {
  %2: f32[13, 77] = aten::embedding_dense_backward(grad_output=%0, indices=%1, num_weights=13, padding_idx=-1, scale_grad_by_freq=true)
  return (%2)
}
)",
                   {at::randn({40, 77}), places({40}, 13)}, {0, 1});
  expect_scattered(
      R"(graph(%0 "a": f32[1, 3, 77], %1 "tokens": i64[3]) {
  %2: f32[13, 77] = aten::embedding_dense_backward(grad_output=%0, indices=%1, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  return (%2)
}
)",
      {at::randn({1, 3, 77}), places({3}, 13)}, {0, 1});
  expect_scattered(R"(graph(%0 "x": f32[5, 6], %1 "mask": bool[5], %2 "value": f32[6]) {
  %3: f32[5, 6] = aten::index_put(self=%0, indices=tensors[%1], values=%2, accumulate=false)
  return (%3)
}
)",
                   {at::randn({5, 6}), at::arange(5).gt(2), at::randn({6})}, {0, 1});
}

/// Where several are put at one place the last one stays, whatever the number of threads.
TEST(Scatter, ElementsThatTakeAPlace) {
  for (const char* dtype : {"f32", "bf16", "i64"}) {
    const auto of = to_torch(
        ir::parse(replaced("graph(%0 \"x\": T[1]) {\n  return (%0)\n}\n", "T[", std::string(dtype) + "["))
            .inputs()[0]
            ->type()
            .dtype);
    const auto numbers = [&](at::IntArrayRef sizes) { return (at::randn(sizes) * 9).to(of); };
    const auto check = [&](const std::string& text, const Tensors& inputs) {
      expect_scattered(replaced(text, "T[", std::string(dtype) + "["), inputs, {2, 0});
    };
    check(R"(graph(%0 "x": T[13, 77], %1 "i": i64[40, 77], %2 "y": T[41, 80]) {
  %3: T[13, 77] = aten::scatter.src(self=%0, dim=0, index=%1, src=%2)
  return (%3)
}
)",
          {numbers({13, 77}), places({40, 77}, 13), numbers({41, 80})});
    check(R"(graph(%0 "x": T[13, 77], %1 "i": i64[12, 40]) {
  %3: T[13, 77] = aten::scatter.value(self=%0, dim=1, index=%1, value=3)
  return (%3)
}
)",
          {numbers({13, 77}), places({12, 40}, 77)});
    check(R"(graph(%0 "x": T[13, 77], %1 "i": i64[5]) {
  %3: T[13, 77] = aten::index_fill.int_Scalar(self=%0, dim=1, index=%1, value=2)
  return (%3)
}
)",
          {numbers({13, 77}), places({5}, 77) - 77});
    check(R"(graph(%0 "x": T[13, 77], %1 "i": i64[40], %2 "j": i64[40], %3 "y": T[40]) {
  %4: T[13, 77] = aten::index_put(self=%0, indices=tensors[%1, %2], values=%3, accumulate=false)
  return (%4)
}
)",
          {numbers({13, 77}), places({40}, 13), places({40}, 9), numbers({40})});
  }
}

TEST(Scatter, NothingToAdd) {
  expect_scattered(R"(graph(%0 "x": f32[5, 6], %1 "index": i64[0], %2 "source": f32[0, 6]) {
  %3: f32[5, 6] = aten::index_add(self=%0, dim=0, index=%1, source=%2)
  return (%3)
}
)",
                   {at::randn({5, 6}), at::empty({0}, at::kLong), at::empty({0, 6})}, {0, 1});
  expect_scattered(R"(graph(%0 "a": f32[0, 77], %1 "tokens": i64[0]) {
  %2: f32[13, 77] = aten::embedding_dense_backward(grad_output=%0, indices=%1, num_weights=13, padding_idx=-1, scale_grad_by_freq=false)
  return (%2)
}
)",
                   {at::empty({0, 77}), at::empty({0}, at::kLong)}, {0, 1});
}

TEST(Scatter, AnIndexOutsideIsAnError) {
  const auto run = [](const std::string& call, int64_t index) {
    const auto fast =
        build(ir::parse(replaced(
                  R"(graph(%0 "x": f32[5, 70], %1 "i": i64[2], %2 "v": f32[2, 70], %3 "all": i64[2, 70]) {
  %4: f32[5, 70] = aten::CALL
  return (%4)
}
)",
                  "CALL", call)),
              {}, {.cache = false});
    const auto at = at::tensor(at::ArrayRef<int64_t>({0, index}));
    return fast->run({at::zeros({5, 70}), at, at::ones({2, 70}), at.unsqueeze(1).repeat({1, 70})});
  };
  const std::string add = "index_add(self=%0, dim=0, index=%1, source=%2)",
                    scatter = "scatter_add(self=%0, dim=0, index=%3, src=%2)",
                    put = "index_put(self=%0, indices=tensors[%1], values=%2, accumulate=true)";
  for (const auto& call : {add, scatter, put}) {
    EXPECT_NO_THROW(run(call, 4)) << call;
    EXPECT_THROW(run(call, 5), Error) << call;
    EXPECT_THROW(run(call, -6), Error) << call;
  }
  EXPECT_THROW(run(add, -1), Error);
  EXPECT_THROW(run(scatter, -1), Error);
  EXPECT_NO_THROW(run(put, -1));
}

TEST(Scatter, EmbeddingGradientPassesOverIndicesOutside) {
  expect_scattered(R"(graph(%0 "a": f32[6, 77], %1 "tokens": i64[6]) {
  %2: f32[5, 77] = aten::embedding_dense_backward(grad_output=%0, indices=%1, num_weights=5, padding_idx=1, scale_grad_by_freq=false)
  return (%2)
}
)",
                   {at::randn({6, 77}), at::tensor({0, 5, -1, 1, 4, 0}, at::kLong)}, {2, 0});
}

// --- as capture makes them

TEST(Scatter, BackwardOfLookingUp) {
  const auto i = places({30}, 9), all = places({30, 80}, 9);
  const auto x = at::randn({9, 80}).requires_grad_();
  for (const auto& f : std::vector<std::function<Tensor(Tensor)>>{
           [&](Tensor t) { return at::embedding(t, i).tanh(); },
           [&](Tensor t) { return t.index({i}).tanh(); },
           [&](Tensor t) { return t.index_select(0, i).tanh(); },
           [&](Tensor t) { return t.gather(0, all).tanh(); },
           [&](Tensor t) { return at::embedding(t, i).matmul(t.t()); }}) {
    reset();
    const auto fast = compile(f, {.fullgraph = true, .cache = false});
    const auto weights = at::randn_like(f(x));
    const auto gradient = [&](const Tensor& y) { return torch::autograd::grad({y}, {x}, {weights})[0]; };
    for (int call = 0; call < 2; ++call)
      EXPECT_EQ(testing_tools::differs(gradient(fast(x)), gradient(f(x))), "");
  }
}

}  // namespace
}  // namespace graft
