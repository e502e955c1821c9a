// Attention of few queries as an operator of its own: where it is recognised, and that it means the same.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/dead_code.h"
#include "passes/few_queries.h"

namespace graft::passes {
namespace {

/// As a decoder with 8 heads over 2 groups of keys has it. `query`: how many; `extra`: more of the call.
std::string decoder(int queries, const std::string& results = "%8") {
  const auto n = std::to_string(queries);
  return R"(graph(%0 "q": bf16[2, 8, )" + n +
         R"(, 64], %1 "k": bf16[2, 2, 96, 64], %2 "v": bf16[2, 2, 96, 64], %3 "mask": bf16[2, 1, )" + n +
         R"(, 96]) {
  %4: bf16[2, 2, 1, 96, 64]{12288, 6144, 6144, 64, 1} = aten::unsqueeze(self=%1, dim=2)
  %5: bf16[2, 2, 4, 96, 64]{12288, 6144, 0, 64, 1} = aten::expand(self=%4, size=[2, 2, 4, 96, 64])
  %6: bf16[2, 2, 4, 96, 64] = aten::clone(self=%5)
  %7: bf16[2, 8, 96, 64] = aten::_unsafe_view(self=%6, size=[2, 8, 96, 64])
  %8: bf16[2, 8, )" +
         n + R"(, 64], %9: f32[2, 8, )" + n +
         R"(], %10: i64[], %11: i64[] = aten::_scaled_dot_product_efficient_attention(query=%0, key=%7, value=%7, attn_bias=%3, compute_log_sumexp=false)
  return ()" +
         results + R"()
}
)";
}

std::string after(const std::string& text, int64_t queries) {
  auto graph = ir::parse(text);
  attend_with_few_queries(graph, queries);
  eliminate_dead_code(graph);
  ir::verify(graph);
  return ir::to_string(graph);
}

TEST(FewQueries, KeysAreReadAsTheyAreBeforeEachHeadGetsACopy) {
  for (const int queries : {1, 4}) {
    const auto text = after(decoder(queries), 4);
    EXPECT_NE(text.find("graft::attend(query=%0, key=%1, value=%1, bias=%3, scale=0.125"), std::string::npos)
        << text;
    EXPECT_EQ(text.find("aten::clone"), std::string::npos) << text;
  }
}

TEST(FewQueries, OthersStay) {
  EXPECT_EQ(after(decoder(5), 4).find("graft::attend"), std::string::npos);
  EXPECT_EQ(after(decoder(1), 0).find("graft::attend"), std::string::npos);
  // A backward pass needs the sums.
  EXPECT_EQ(after(decoder(1, "%8, %9"), 4).find("graft::attend"), std::string::npos);
  auto causal = decoder(2);
  causal.insert(causal.find("compute_log_sumexp"), "is_causal=true, ");
  EXPECT_EQ(after(causal, 4).find("graft::attend"), std::string::npos);
  auto dropped = decoder(1);
  dropped.insert(dropped.find("compute_log_sumexp"), "dropout_p=0.5, ");
  EXPECT_EQ(after(dropped, 4).find("graft::attend"), std::string::npos);
}

TEST(FewQueries, TheOperatorIsAttention) {
  using Attend = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const std::optional<at::Tensor>&, double, at::IntArrayRef);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("graft::attend", "").typed<Attend>();
  const auto q = at::randn({2, 3, 8, 16}).transpose(1, 2), k = at::randn({2, 2, 33, 16}),
             v = at::randn({2, 33, 2, 16}).transpose(1, 2);
  auto bias = at::randn({2, 1, 3, 33});
  bias.masked_fill_(bias.gt(1), -INFINITY);
  const auto repeated = [](const at::Tensor& x) { return x.repeat_interleave(4, 1); };
  const auto want =
      at::scaled_dot_product_attention(q, repeated(k), repeated(v), bias, 0, /*is_causal=*/false, 0.3);
  const auto got = op.call(q, k, v, bias, 0.3, q.strides());
  EXPECT_TRUE(at::allclose(got, want, 1e-5, 1e-5));
  EXPECT_EQ(got.strides(), q.strides());
  // Who sees nothing gets zeros; what is not a number stays visible.
  bias.select(2, 1).fill_(-INFINITY);
  EXPECT_TRUE(at::equal(op.call(q, k, v, bias, 0.3, q.strides()).select(2, 1), at::zeros({2, 8, 16})));
  bias.select(2, 0).fill_(NAN);
  EXPECT_TRUE(op.call(q, k, v, bias, 0.3, q.strides()).select(2, 0).isnan().all().item<bool>());
}

}  // namespace
}  // namespace graft::passes
