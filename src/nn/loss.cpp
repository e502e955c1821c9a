#include "nn/loss.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::nn {
namespace {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  if (labels.scalar_type() != at::kLong && labels.scalar_type() != at::kByte)
    throw UsageError("[loss] labels that name classes must be int64");
  if (labels.numel() * logits.size(-1) != logits.numel())
    throw UsageError("[loss] there are " + std::to_string(labels.numel()) + " labels for " +
                     std::to_string(logits.numel() / logits.size(-1)) + " predictions");
  const auto target = labels.reshape({-1}).to(logits.device());
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), target, {}, at::Reduction::Mean,
                                kIgnoredLabel);
}

std::string problem_type(const Config& config, const at::Tensor& logits, const at::Tensor& labels) {
  if (config.has("problem_type")) return config.string("problem_type");
  if (logits.size(-1) == 1) return "regression";
  const bool integral = labels.scalar_type() == at::kLong || labels.scalar_type() == at::kInt;
  return integral ? "single_label_classification" : "multi_label_classification";
}

}  // namespace

at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const auto shifted = at::constant_pad_nd(labels, {0, 1}, kIgnoredLabel).slice(-1, 1).contiguous();
  return cross_entropy(logits.to(at::kFloat), shifted);
}

at::Tensor token_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return cross_entropy(logits, labels);
}

at::Tensor token_classification_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return cross_entropy(logits.to(at::kFloat), labels);
}

at::Tensor classification_loss(const Config& config, const at::Tensor& logits, const at::Tensor& labels) {
  const auto kind = problem_type(config, logits, labels);
  const auto target = labels.to(logits.device());
  if (kind == "regression") {
    // Half-precision logits against float32 targets: CUDA's mse_loss promotes in forward but not in backward.
    const auto wide = logits.to(at::promote_types(logits.scalar_type(), target.scalar_type()));
    return wide.size(-1) == 1 ? at::mse_loss(wide.squeeze(), target.squeeze()) : at::mse_loss(wide, target);
  }
  if (kind == "single_label_classification") return cross_entropy(logits, target);
  if (kind == "multi_label_classification") return at::binary_cross_entropy_with_logits(logits, target);
  throw ConfigError("[config] \"problem_type\" is \"" + kind +
                    "\"; known: regression, single_label_classification, multi_label_classification");
}

}  // namespace graft::nn
