// Scans, what reads and writes at places that are data, what moves elements, sorting and reductions.
#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

constexpr int64_t kRows = 1024, kColumns = 512, kPicked = 1024;
const std::vector<int64_t> kMatrix{kRows, kColumns}, kLarge{2048, 1024}, kTable{8192, 256};

OpInput x() { return trained("x", kMatrix); }
OpInput y() { return trained("y", kMatrix); }
OpInput large() { return trained("x", kLarge); }
OpInput fixed_large() { return fixed("x", kLarge); }
OpInput table() { return trained("x", kTable); }
OpInput rows() { return whole("rows", {kPicked}, kRows); }
OpInput columns() { return whole("columns", {kPicked}, kColumns); }
OpInput places() { return whole("places", kMatrix, kRows); }
OpInput picked() { return trained("y", {kPicked, kColumns}); }

template <class Made>
Tensors both(const Made& made) {
  return {std::get<0>(made), std::get<1>(made)};
}

Tensors put_slice(const Tensors& in) {
  auto made = in[0].clone();
  made.slice(1, 0, kColumns, 2).copy_(in[1].slice(1, 0, kColumns / 2));
  return {made};
}

Tensors rotate_half(const Tensors& in) {
  const auto parts = in[0].chunk(2, -1);
  return {at::cat({-parts[1], parts[0]}, -1)};
}

Tensors put_at(const Tensors& in, bool accumulate) { return {in[0].index_put({in[1]}, in[2], accumulate)}; }

/// Every row of places is a bag.
Tensors embedding_bag(const Tensors& in, int64_t mode) {
  const auto& ids = in[1];
  const auto starts = at::arange(0, ids.numel(), ids.size(1), ids.options());
  return {std::get<0>(at::embedding_bag(in[0], ids.flatten(), starts, false, mode))};
}

}  // namespace

std::vector<Op> scan_ops() {
  const auto near_one = trained("x", kMatrix, 0.9, 1.1);
  return {
      {"cumsum", {x()}, GRAFT_OP(in[0].cumsum(-1))},
      {"cumsum_first", {x()}, GRAFT_OP(in[0].cumsum(0))},
      {"cumprod", {near_one}, GRAFT_OP(in[0].cumprod(-1))},
      {"logcumsumexp", {x()}, GRAFT_OP(in[0].logcumsumexp(-1))},
      {"cummax", {x()}, [](const Tensors& in) { return both(in[0].cummax(-1)); }},
  };
}

std::vector<Op> indexing_ops() {
  const auto bags = whole("ids", {256, 16}, kTable[0]);
  return {
      {"gather", {x(), places()}, GRAFT_OP(in[0].gather(0, in[1]))},
      {"gather_last", {x(), whole("places", kMatrix, kColumns)}, GRAFT_OP(in[0].gather(-1, in[1]))},
      {"take_along_dim",
       {x(), whole("places", {kRows, 1}, kColumns)},
       GRAFT_OP(at::take_along_dim(in[0], in[1], -1))},
      {"scatter",
       {x(), whole("places", {1, kColumns}, kRows), trained("y", {1, kColumns})},
       GRAFT_OP(in[0].scatter(0, in[1], in[2]))},
      {"scatter_value", {x(), places()}, GRAFT_OP(in[0].scatter(0, in[1], 2.0))},
      {"scatter_add", {x(), places(), y()}, GRAFT_OP(in[0].scatter_add(0, in[1], in[2]))},
      {"index_select", {x(), rows()}, GRAFT_OP(in[0].index_select(0, in[1]))},
      {"index_select_last", {x(), columns()}, GRAFT_OP(in[0].index_select(-1, in[1]))},
      {"index", {x(), rows()}, GRAFT_OP(in[0].index({in[1]}))},
      {"index_pairs",
       {x(), whole("rows", {256, 1}, kRows), columns()},
       GRAFT_OP(in[0].index({in[1], in[2]}))},
      {"index_add", {x(), rows(), picked()}, GRAFT_OP(in[0].index_add(0, in[1], in[2]))},
      {"index_copy",
       {x(), whole("rows", {1}, kRows), trained("y", {1, kColumns})},
       GRAFT_OP(in[0].index_copy(0, in[1], in[2]))},
      {"index_fill", {x(), rows()}, GRAFT_OP(in[0].index_fill(0, in[1], 0.5))},
      {"index_put",
       {x(), rows(), fixed("y", {kColumns})},
       [](const Tensors& in) { return put_at(in, false); }},
      {"index_put_add", {x(), rows(), picked()}, [](const Tensors& in) { return put_at(in, true); }},
      {"embedding", {table(), whole("ids", {16, 128}, kTable[0])}, GRAFT_OP(at::embedding(in[0], in[1]))},
      {"embedding_bag_sum", {table(), bags}, [](const Tensors& in) { return embedding_bag(in, 0); }},
      {"embedding_bag_mean", {table(), bags}, [](const Tensors& in) { return embedding_bag(in, 1); }},
      {"embedding_bag_max", {table(), bags}, [](const Tensors& in) { return embedding_bag(in, 2); }},
  };
}

std::vector<Op> movement_ops() {
  return {
      {"cat", {x(), y()}, GRAFT_OP(at::cat({in[0], in[1]}, 0))},
      {"cat_last", {x(), y()}, GRAFT_OP(at::cat({in[0], in[1]}, -1))},
      {"stack", {x(), y()}, GRAFT_OP(at::stack({in[0], in[1]}, -1))},
      {"flip", {large()}, GRAFT_OP(in[0].flip({-1}))},
      {"roll", {large()}, GRAFT_OP(in[0].roll({3}, {1}))},
      {"repeat", {x()}, GRAFT_OP(in[0].repeat({2, 2}))},
      {"repeat_interleave", {x()}, GRAFT_OP(in[0].repeat_interleave(4, 1))},
      {"transposed_copy", {large()}, GRAFT_OP(in[0].t().contiguous())},
      {"permuted_copy", {trained("x", {16, 128, 8, 64})}, GRAFT_OP(in[0].permute({0, 2, 1, 3}).contiguous())},
      {"tril", {large()}, GRAFT_OP(in[0].tril())},
      {"triu", {large()}, GRAFT_OP(in[0].triu(1))},
      {"put_slice", {x(), y()}, put_slice},
      {"rotate_half", {large()}, rotate_half},
      {"diff", {large()}, GRAFT_OP(at::diff(in[0]))},
  };
}

std::vector<Op> sorting_ops() {
  const auto few = trained("x", {64, 512});
  return {
      {"sort", {few}, [](const Tensors& in) { return both(at::sort(in[0], true, -1, false)); }},
      {"argsort", {fixed("x", {64, 512})}, GRAFT_OP(at::argsort(in[0], true, -1, false))},
      {"topk", {few}, [](const Tensors& in) { return both(in[0].topk(16)); }},
      {"kthvalue", {few}, GRAFT_OP(std::get<0>(in[0].kthvalue(100)))},
      {"median", {few}, GRAFT_OP(std::get<0>(in[0].median(-1)))},
  };
}

std::vector<Op> reduction_ops() {
  return {
      {"sum", {large()}, GRAFT_OP(in[0].sum())},
      {"sum_last", {large()}, GRAFT_OP(in[0].sum(-1))},
      {"sum_first", {large()}, GRAFT_OP(in[0].sum(0))},
      {"mean", {large()}, GRAFT_OP(in[0].mean())},
      {"mean_last", {large()}, GRAFT_OP(in[0].mean(-1))},
      {"mean_middle", {trained("x", {32, 64, 1024})}, GRAFT_OP(in[0].mean(1))},
      {"amax", {large()}, GRAFT_OP(in[0].amax(-1))},
      {"amin_first", {large()}, GRAFT_OP(in[0].amin(0))},
      {"max", {fixed_large()}, GRAFT_OP(in[0].max())},
      {"max_last", {large()}, [](const Tensors& in) { return both(in[0].max(-1)); }},
      {"min_first", {large()}, [](const Tensors& in) { return both(in[0].min(0)); }},
      {"argmax", {fixed_large()}, GRAFT_OP(in[0].argmax(-1))},
      {"argmin_all", {fixed_large()}, GRAFT_OP(in[0].argmin())},
      {"var", {large()}, GRAFT_OP(in[0].var(-1))},
      {"var_first", {large()}, GRAFT_OP(in[0].var(0))},
      {"std", {large()}, GRAFT_OP(in[0].std(-1))},
      {"var_mean", {large()}, [](const Tensors& in) { return both(at::var_mean(in[0], -1)); }},
      {"norm", {large()}, GRAFT_OP(at::linalg_vector_norm(in[0]))},
      {"norm_last", {large()}, GRAFT_OP(at::linalg_vector_norm(in[0], 2, at::IntArrayRef{-1}))},
      {"prod", {fixed("x", kLarge, 0.9, 1.1)}, GRAFT_OP(in[0].prod(-1))},
      {"any", {flags("x", kLarge)}, GRAFT_OP(in[0].any(-1))},
      {"all", {flags("x", kLarge)}, GRAFT_OP(in[0].all(0))},
      {"count_nonzero", {fixed_large()}, GRAFT_OP(at::count_nonzero(in[0], at::IntArrayRef{-1}))},
  };
}

}  // namespace graft::cli::bench
