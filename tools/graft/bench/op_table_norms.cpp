// Softmax and its relatives, norms and losses.
#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

constexpr int64_t kWidth = 768, kClasses = 1000;
const std::vector<int64_t> kRows{1024, kWidth}, kLogits{1024, kClasses}, kImages{16, 64, 28, 28};

OpInput x() { return trained("x", kRows); }
OpInput target() { return fixed("y", kRows); }
OpInput images() { return trained("x", kImages); }
OpInput logits() { return trained("x", kLogits); }
OpInput classes() { return whole("target", {kLogits[0]}, kClasses); }
OpInput along(const char* name, int64_t count) { return trained(name, {count}); }

at::Tensor normalized(const at::Tensor& x) {
  return x / at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true).clamp_min(1e-12).expand_as(x);
}

}  // namespace

std::vector<Op> softmax_ops() {
  return {
      {"softmax", {x()}, GRAFT_OP(at::softmax(in[0], -1))},
      {"softmax_first", {x()}, GRAFT_OP(at::softmax(in[0], 0))},
      {"softmax_channels", {images()}, GRAFT_OP(at::softmax(in[0], 1))},
      {"softmax_long", {trained("x", {16, 65536})}, GRAFT_OP(at::softmax(in[0], -1))},
      {"softmax_short", {trained("x", {65536, 16})}, GRAFT_OP(at::softmax(in[0], -1))},
      {"softmin", {x()}, GRAFT_OP(at::softmax(-in[0], -1))},
      {"log_softmax", {x()}, GRAFT_OP(at::log_softmax(in[0], -1))},
      {"log_softmax_first", {x()}, GRAFT_OP(at::log_softmax(in[0], 0))},
      {"log_softmax_channels", {images()}, GRAFT_OP(at::log_softmax(in[0], 1))},
      {"logsumexp", {x()}, GRAFT_OP(at::logsumexp(in[0], -1))},
  };
}

std::vector<Op> norm_ops() {
  return {
      {"layer_norm",
       {x(), along("weight", kWidth), along("bias", kWidth)},
       GRAFT_OP(at::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2]))},
      {"layer_norm_plain", {x()}, GRAFT_OP(at::layer_norm(in[0], {in[0].size(-1)}))},
      {"rms_norm",
       {x(), along("weight", kWidth)},
       GRAFT_OP(at::rms_norm(in[0], {in[0].size(-1)}, in[1], 1e-6))},
      {"batch_norm",
       {images(), along("weight", 64), along("bias", 64)},
       GRAFT_OP(at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false))},
      {"batch_norm_eval",
       {images(), along("weight", 64), along("bias", 64), fixed("mean", {64}), fixed("var", {64}, 0.5, 2)},
       GRAFT_OP(at::batch_norm(in[0], in[1], in[2], in[3], in[4], false, 0.1, 1e-5, false))},
      {"group_norm",
       {images(), along("weight", 64), along("bias", 64)},
       GRAFT_OP(at::group_norm(in[0], 8, in[1], in[2]))},
      {"instance_norm",
       {images(), along("weight", 64), along("bias", 64)},
       GRAFT_OP(at::instance_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false))},
      {"normalize", {x()}, GRAFT_OP(normalized(in[0]))},
      {"cosine_similarity", {x(), trained("y", kRows)}, GRAFT_OP(at::cosine_similarity(in[0], in[1], -1))},
  };
}

std::vector<Op> loss_ops() {
  const auto chances = trained("x", kRows, 0.05, 0.95), wanted = fixed("y", kRows, 0, 1);
  return {
      {"mse_loss", {x(), target()}, GRAFT_OP(at::mse_loss(in[0], in[1]))},
      {"l1_loss", {x(), target()}, GRAFT_OP(at::l1_loss(in[0], in[1]))},
      {"smooth_l1_loss", {x(), target()}, GRAFT_OP(at::smooth_l1_loss(in[0], in[1]))},
      {"huber_loss", {x(), target()}, GRAFT_OP(at::huber_loss(in[0], in[1], at::Reduction::Mean, 0.7))},
      {"bce", {chances, wanted}, GRAFT_OP(at::binary_cross_entropy(in[0], in[1]))},
      {"bce_with_logits", {x(), wanted}, GRAFT_OP(at::binary_cross_entropy_with_logits(in[0], in[1]))},
      {"nll_loss", {logits(), classes()}, GRAFT_OP(at::nll_loss(in[0], in[1]))},
      {"cross_entropy", {logits(), classes()}, GRAFT_OP(at::cross_entropy_loss(in[0], in[1]))},
      {"cross_entropy_smoothed",
       {logits(), classes()},
       GRAFT_OP(at::cross_entropy_loss(in[0], in[1], {}, at::Reduction::Mean, -100, 0.1))},
      {"kl_div", {x(), fixed("y", kRows, 0.01, 1)}, GRAFT_OP(at::kl_div(in[0], in[1]))},
      {"soft_margin_loss", {x(), target()}, GRAFT_OP(at::soft_margin_loss(in[0], in[1]))},
      {"poisson_nll_loss",
       {x(), wanted},
       GRAFT_OP(at::poisson_nll_loss(in[0], in[1], true, false, 1e-8, at::Reduction::Mean))},
      {"triplet_margin_loss",
       {x(), trained("y", kRows), trained("z", kRows)},
       GRAFT_OP(at::triplet_margin_loss(in[0], in[1], in[2])),
       chaotic},
  };
}

}  // namespace graft::cli::bench
