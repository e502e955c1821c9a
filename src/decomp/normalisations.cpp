// Layer, group and batch normalisation, forward and backward.
#include <numeric>
#include <optional>

#include "decomp/table.h"
#include "ir/arguments.h"

namespace graft::decomp {
namespace {

using ir::Node;
using ir::Value;
using Values = std::vector<Value*>;

struct Shape {
  Dims outer, inner;  // dimensions
};
Shape split(const Value* x, size_t normalised) {
  Shape shape;
  const size_t rank = x->type().sizes.size();
  for (size_t i = 0; i < rank; ++i)
    (i < rank - normalised ? shape.outer : shape.inner).push_back(static_cast<int64_t>(i));
  return shape;
}

Values layer_norm(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "input");
  if (x->type().numel() == 0) return {};
  const auto dtype = x->type().dtype;
  const auto dims = split(x, ir::ints_of(n, "normalized_shape")->size()).inner;
  auto* w = b.to(x, wide(dtype));
  auto* mean = b.mean(w, dims);
  auto* centred = b.sub(w, mean);
  auto* rstd = b.rsqrt(b.add(b.mean(b.mul(centred, centred), dims), *ir::number_of(n, "eps")));
  auto* y = b.mul(centred, rstd);
  if (auto* weight = ir::value_of(n, "weight")) y = b.mul(y, b.to(weight, wide(dtype)));
  if (auto* bias = ir::value_of(n, "bias")) y = b.add(y, b.to(bias, wide(dtype)));
  return {b.to(y, dtype), b.to(mean, n.output(1).type().dtype), b.to(rstd, n.output(2).type().dtype)};
}

std::vector<bool> mask_of(const Node& n) {
  return std::get<std::vector<bool>>(*ir::attribute_of(n, "output_mask"));
}

Values layer_norm_backward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "input");
  if (x->type().numel() == 0) return {};
  const auto dtype = x->type().dtype;
  const auto shape = split(x, ir::ints_of(n, "normalized_shape")->size());
  const auto mask = mask_of(n);
  auto* weight = ir::value_of(n, "weight");
  auto* grad = b.to(ir::value_of(n, "grad_out"), wide(dtype));
  auto* rstd = b.to(ir::value_of(n, "rstd"), wide(dtype));
  auto* normal = b.mul(b.sub(b.to(x, wide(dtype)), b.to(ir::value_of(n, "mean"), wide(dtype))), rstd);
  Values made(3, nullptr);
  if (mask[0]) {
    auto* g = weight ? b.mul(grad, b.to(weight, wide(dtype))) : grad;
    auto* along = b.mul(normal, b.mean(b.mul(g, normal), shape.inner));
    made[0] = b.to(b.mul(rstd, b.sub(b.sub(g, b.mean(g, shape.inner)), along)), dtype);
  }
  if (mask[1] && weight)
    made[1] = b.to(b.sum(b.mul(grad, normal), shape.outer, false), n.output(1).type().dtype);
  if (mask[2] && ir::value_of(n, "bias"))
    made[2] = b.to(b.sum(grad, shape.outer, false), n.output(2).type().dtype);
  return made;
}

/// ATen has kernels of its own for these, which walk the memory as it lies.
bool has_channels_last(const Value* x) {
  const auto& type = x->type();
  return type.sizes.size() >= 4 && type.sizes[1] > 1 && type.strides[1] == 1 && !type.is_contiguous();
}

/// [N, C, ...] as groups and as channels.
struct Groups {
  int64_t n, channels, points, groups;
  Dims by_group, by_channel;
};
std::optional<Groups> groups_of(const Node& n) {
  const auto* x = ir::value_of(n, "input");
  Groups found{
      *ir::int_of(n, "N"), *ir::int_of(n, "C"), *ir::int_of(n, "HxW"), *ir::int_of(n, "group"), {}, {}};
  if (x->type().numel() == 0 || has_channels_last(x)) return std::nullopt;
  found.by_group = {found.n, found.groups, found.channels / found.groups * found.points};
  found.by_channel = {found.n, found.channels, found.points};
  return found;
}

/// A vector over the channels as it stands in [N, C, points].
Value* for_channels(Builder& b, Value* v) {
  return b.view(b.to(v, wide(v->type().dtype)), {1, v->type().sizes[0], 1});
}

Values group_norm(Builder& b, const Node& n) {
  const auto groups = groups_of(n);
  if (!groups) return {};
  auto* x = ir::value_of(n, "input");
  const auto dtype = x->type().dtype;
  auto* w = b.view(b.to(b.contiguous(x), wide(dtype)), groups->by_group);
  auto* mean = b.mean(w, {2});
  auto* centred = b.sub(w, mean);
  auto* rstd = b.rsqrt(b.add(b.mean(b.mul(centred, centred), {2}), *ir::number_of(n, "eps")));
  auto* y = b.view(b.mul(centred, rstd), groups->by_channel);
  if (auto* weight = ir::value_of(n, "weight")) y = b.mul(y, for_channels(b, weight));
  if (auto* bias = ir::value_of(n, "bias")) y = b.add(y, for_channels(b, bias));
  const auto statistic = [&](Value* v, size_t i) {
    return b.to(b.view(v, {groups->n, groups->groups}), n.output(i).type().dtype);
  };
  return {b.to(b.view(y, x->type().sizes), dtype), statistic(mean, 1), statistic(rstd, 2)};
}

/// Two sums over each channel of each sample, from which all three gradients follow.
Values group_norm_backward(Builder& b, const Node& n) {
  const auto groups = groups_of(n);
  auto* grad_out = ir::value_of(n, "grad_out");
  if (!groups || has_channels_last(grad_out)) return {};
  auto* x = ir::value_of(n, "input");
  const auto dtype = x->type().dtype;
  const auto mask = mask_of(n);
  const Dims a_group{groups->n, groups->groups, 1},
      split{groups->n, groups->groups, groups->channels / groups->groups};
  const auto for_groups = [&](const char* name) {
    auto* v = ir::value_of(n, name);
    return b.view(b.to(v, wide(v->type().dtype)), a_group);
  };
  auto* mean = for_groups("mean");
  auto* rstd = for_groups("rstd");
  auto* grouped = b.view(b.to(b.contiguous(x), wide(dtype)), groups->by_group);
  auto* normal = b.view(b.mul(b.sub(grouped, mean), rstd), groups->by_channel);
  auto* grad = b.view(b.to(b.contiguous(grad_out), wide(dtype)), groups->by_channel);
  auto* sums = b.sum(grad, {2});
  auto* dots = b.sum(b.mul(grad, normal), {2});
  Values made(3, nullptr);
  if (mask[0]) {
    auto* weight = ir::value_of(n, "weight");
    const auto weighted = [&](Value* v) { return weight ? b.mul(v, for_channels(b, weight)) : v; };
    const auto count = static_cast<double>(groups->by_group[2]);
    const auto of_group = [&](Value* v) { return b.div(b.sum(b.view(weighted(v), split), {2}), count); };
    auto* along = b.mul(b.view(normal, groups->by_group), of_group(dots));
    auto* g = b.sub(b.sub(b.view(weighted(grad), groups->by_group), of_group(sums)), along);
    made[0] = b.to(b.view(b.mul(g, rstd), x->type().sizes), dtype);
  }
  const auto of_channels = [&](Value* v, size_t i) {
    return b.to(b.sum(b.view(v, {groups->n, groups->channels}), {0}, false), n.output(i).type().dtype);
  };
  if (mask[1] && ir::value_of(n, "weight")) made[1] = of_channels(dots, 1);
  if (mask[2]) made[2] = of_channels(sums, 2);
  return made;
}

/// A vector over the channels as it stands in [N, C, ...].
Value* over_channels(Builder& b, Value* v, size_t rank) {
  Dims sizes(rank, 1);
  sizes[1] = v->type().sizes[0];
  return b.view(v, sizes);
}

Dims all_but_channels(size_t rank) {
  Dims dims;
  for (size_t i = 0; i < rank; ++i)
    if (i != 1) dims.push_back(static_cast<int64_t>(i));
  return dims;
}

Value* affine(Builder& b, const Node& n, Value* y, ir::DType dtype) {
  const size_t rank = y->type().sizes.size();
  if (auto* weight = ir::value_of(n, "weight"))
    y = b.mul(y, over_channels(b, b.to(weight, wide(dtype)), rank));
  if (auto* bias = ir::value_of(n, "bias")) y = b.add(y, over_channels(b, b.to(bias, wide(dtype)), rank));
  return y;
}

/// What training left: the mean and one over the deviation of each channel.
struct Statistics {
  Value *mean, *rstd;
};

Statistics running_statistics(Builder& b, const Node& n, ir::DType dtype) {
  auto* var = b.to(ir::value_of(n, "running_var"), wide(dtype));
  return {.mean = b.to(ir::value_of(n, "running_mean"), wide(dtype)),
          .rstd = b.rsqrt(b.add(var, *ir::number_of(n, "eps")))};
}

/// Outputs: y, and what a CPU leaves empty and a GPU keeps for the backward pass: the statistics.
Values batch_norm_inference(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "input");
  const auto dtype = x->type().dtype;
  const size_t rank = x->type().sizes.size();
  const auto [mean, rstd] = running_statistics(b, n, dtype);
  auto* y = b.mul(b.sub(b.to(x, wide(dtype)), over_channels(b, mean, rank)), over_channels(b, rstd, rank));
  const auto saved = [&](size_t i, Value* statistic) {
    const auto& type = n.output(i).type();
    return type.numel() == 0 ? b.full(type.sizes, 0, type.dtype, x->type().device)
                             : b.to(statistic, type.dtype);
  };
  return {b.to(affine(b, n, y, dtype), dtype), saved(1, mean), saved(2, rstd)};
}

/// Outputs: y, saved mean, saved 1/std, and the new running statistics where there are any.
Values batch_norm_training(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "input");
  if (x->type().numel() == 0 || !ir::bool_of(n, "training", true)) return {};
  const auto dtype = x->type().dtype;
  const size_t rank = x->type().sizes.size();
  const auto dims = all_but_channels(rank);
  auto* w = b.to(x, wide(dtype));
  auto* mean = b.mean(w, dims);
  auto* centred = b.sub(w, mean);
  auto* var = b.mean(b.mul(centred, centred), dims);
  auto* rstd = b.rsqrt(b.add(var, *ir::number_of(n, "eps")));
  const Dims channels{x->type().sizes[1]};
  Values made{b.to(affine(b, n, b.mul(centred, rstd), dtype), dtype), b.view(mean, channels),
              b.view(rstd, channels)};
  if (n.outputs().size() == 5) {
    const double momentum = *ir::number_of(n, "momentum");
    const int64_t per_channel = x->type().numel() / channels[0];
    const auto count = static_cast<double>(per_channel);
    const auto moved = [&](const char* name, Value* now) {
      auto* old = ir::value_of(n, name);
      auto* mixed = b.add(b.mul(b.to(old, wide(old->type().dtype)), 1 - momentum), b.mul(now, momentum));
      return b.to(mixed, old->type().dtype);
    };
    made.push_back(moved("running_mean", made[1]));
    made.push_back(moved("running_var", b.mul(b.view(var, channels), count / (count - 1))));
  }
  return made;
}

/// The statistics are results of the forward pass in training, and constants otherwise.
Values batch_norm_backward(Builder& b, const Node& n) {
  auto* x = ir::value_of(n, "input");
  if (x->type().numel() == 0) return {};
  const bool training = ir::bool_of(n, "train", true);
  if (!training && !ir::value_of(n, "running_mean")) return {};
  const auto dtype = x->type().dtype;
  const size_t rank = x->type().sizes.size();
  const auto dims = all_but_channels(rank);
  const auto mask = mask_of(n);
  const auto statistics = training ? Statistics{.mean = b.to(ir::value_of(n, "save_mean"), wide(dtype)),
                                                .rstd = b.to(ir::value_of(n, "save_invstd"), wide(dtype))}
                                   : running_statistics(b, n, dtype);
  auto* mean = over_channels(b, statistics.mean, rank);
  auto* rstd = over_channels(b, statistics.rstd, rank);
  auto* grad = b.to(ir::value_of(n, "grad_out"), wide(dtype));
  auto* normal = b.mul(b.sub(b.to(x, wide(dtype)), mean), rstd);
  auto* grad_sum = b.sum(grad, dims);
  auto* dot = b.sum(b.mul(grad, normal), dims);
  const int64_t per_channel = x->type().numel() / x->type().sizes[1];
  const auto count = static_cast<double>(per_channel);
  const Dims channels{x->type().sizes[1]};
  Values made(3, nullptr);
  if (mask[0]) {
    auto* centred =
        training ? b.sub(b.sub(grad, b.div(grad_sum, count)), b.mul(normal, b.div(dot, count))) : grad;
    auto* scaled = b.mul(centred, rstd);
    if (auto* weight = ir::value_of(n, "weight"))
      scaled = b.mul(scaled, over_channels(b, b.to(weight, wide(dtype)), rank));
    made[0] = b.to(scaled, dtype);
  }
  if (mask[1] && ir::value_of(n, "weight")) made[1] = b.to(b.view(dot, channels), n.output(1).type().dtype);
  if (mask[2]) made[2] = b.to(b.view(grad_sum, channels), n.output(2).type().dtype);
  return made;
}

}  // namespace

void add_normalisations(Table& table) {
  table["aten::native_layer_norm"] = layer_norm;
  table["aten::native_layer_norm_backward"] = layer_norm_backward;
  table["aten::native_group_norm"] = group_norm;
  table["aten::native_group_norm_backward"] = group_norm_backward;
  table["aten::_native_batch_norm_legit_no_training"] = batch_norm_inference;
  table["aten::_native_batch_norm_legit_functional"] = batch_norm_training;
  table["aten::_native_batch_norm_legit.no_stats"] = batch_norm_training;
  table["aten::native_batch_norm_backward"] = batch_norm_backward;
}

}  // namespace graft::decomp
