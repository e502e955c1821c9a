#include "adapters/replacement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "graft/error.h"
#include "nn/norm.h"

namespace graft::adapters {
namespace {

/// For the layer's place: the tensor itself would tie the layer to the adapter, and train it with it.
at::Tensor own_copy(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.detach().to(like.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

class Replacement : public Part {
 public:
  Replacement(const PartBuild& build, const std::string& prefix, bool trainable) : Part(build) {
    auto sizes = build.layer.weight.sizes().vec();
    sizes[0] = adapters::resized_rows(build, build.key(prefix + "weight")).value_or(sizes[0]);
    weight = parameter(build, prefix + "weight", sizes, trainable);
    resized_ = sizes[0] != build.layer.weight.size(0);
    if (build.layer.bias.defined())
      bias = parameter(build, prefix + "bias",
                       resized_ ? at::IntArrayRef(sizes[0]) : build.layer.bias.sizes(), trainable);
    if (!build.fresh()) return;
    // Not into the float32 tensor that is there: PEFT keeps these copies in the base's dtype.
    weight.set_data(build.layer.weight.detach().clone());
    if (bias.defined()) bias.set_data(build.layer.bias.detach().clone());
  }

  /// With the weight of another layer's part, which the file has under this layer's name, too.
  Replacement(const PartBuild& build, const Replacement& other)
      : Part(build), shared_key_(build.key("weight")), resized_(other.resized_), weight(other.weight) {
    if (build.layer.bias.defined()) bias = copied(build, "bias", build.layer.bias);
    if (build.fresh()) return;
    const auto given = build.source.take_if_there(shared_key_, weight.sizes());
    if (!given.defined())
      build.source.take(shared_key_, weight.sizes());  // which finish() tells
    else if (!at::equal(given.to(weight.scalar_type()), weight.cpu()))
      throw FormatError("[adapters] \"ensure_weight_tying\": " + shared_key_ +
                        " is not what the embedding has, which shares the layer's weight");
  }

  std::optional<int64_t> resized_rows() const override {
    return resized_ ? std::optional(weight.size(0)) : std::nullopt;
  }

  NamedTensors saved() const override {
    auto all = Part::saved();
    if (!shared_key_.empty()) all.emplace_back(shared_key_, weight.detach().clone());
    return all;
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto part = gate.part(x);
    // Ids of an embedding keep their dtype.
    const auto in = part.is_floating_point() ? cast_to(part, weight) : part;
    if (resized_ && !gate.is_all()) return beside_the_base(x, in, next, gate);
    const auto made = layer().apply(in, weight, bias);
    return gate.is_all() ? made.to(layer().weight.scalar_type()) : gate.put(next(x), made);
  }

  void merge(Weights& weights) const override {
    weights.weight = own_copy(weight, weights.weight);
    if (bias.defined()) weights.bias = own_copy(bias, weights.weight);
  }

  bool exclusive() const override { return true; }

 private:
  /// Rows of one batch know another number of tokens: an embedding is not asked for those that it has not,
  /// and an output layer says of them that they never come.
  at::Tensor beside_the_base(const at::Tensor& x, const at::Tensor& in, const Next& next,
                             const Gate& gate) const {
    if (layer().kind() == nn::LayerKind::embedding)
      return gate.put(next(gate.others(x)), layer().apply(in, weight, bias));
    return put_logits(gate, next(x), layer().apply(in, weight, bias));
  }

  std::string shared_key_;
  bool resized_ = false;
  at::Tensor weight, bias;
};

/// A batch normalisation with statistics of the adapter's own, which move in training while the base's stay.
class BatchNormReplacement : public Part {
 public:
  BatchNormReplacement(const PartBuild& build, const std::string& prefix)
      : Part(build), norm_(dynamic_cast<nn::BatchNorm2d&>(build.layer)) {
    weight = copied(build, prefix + "weight", norm_.weight);
    bias = copied(build, prefix + "bias", norm_.bias);
    const auto& base = norm_.statistics;
    own_ = {.running_mean = copied(build, prefix + "running_mean", base.running_mean, /*trainable=*/false),
            .running_var = copied(build, prefix + "running_var", base.running_var, /*trainable=*/false),
            .num_batches_tracked =
                copied(build, prefix + "num_batches_tracked", base.num_batches_tracked, false)};
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto made = [&](const Statistics& by) {
      return norm_.apply(cast_to(gate.part(x), weight), weight, bias, by);
    };
    if (gate.is_all()) return made(own_).to(layer().weight.scalar_type());
    if (!is_training()) return gate.put(next(x), made(own_));
    // Both are computed, over copies of their statistics; only those of the one that works may move. (The
    // copies stay as they are: the backward pass wants them.)
    const auto moved_own = snapshot(own_), moved_base = snapshot(norm_.statistics);
    const auto y = gate.put(with_statistics(moved_base, [&] { return next(x); }), made(moved_own));
    move(norm_.statistics, gate, norm_.statistics, moved_base);
    move(own_, gate, moved_own, own_);
    return y;
  }

  void merge(Weights& weights) const override {
    weights.weight = own_copy(weight, weights.weight);
    weights.bias = own_copy(bias, weights.bias);
    const auto copy = snapshot(own_);
    weights.buffers = {{"running_mean", copy.running_mean},
                       {"running_var", copy.running_var},
                       {"num_batches_tracked", copy.num_batches_tracked}};
  }

  bool exclusive() const override { return true; }

 private:
  using Statistics = nn::BatchNorm2d::Statistics;
  static Statistics snapshot(const Statistics& s) {
    return {s.running_mean.clone(), s.running_var.clone(), s.num_batches_tracked.clone()};
  }
  static void move(const Statistics& into, const Gate& gate, const Statistics& with,
                   const Statistics& without) {
    into.running_mean.copy_(gate.if_any(with.running_mean, without.running_mean));
    into.running_var.copy_(gate.if_any(with.running_var, without.running_var));
    into.num_batches_tracked.copy_(gate.if_any(with.num_batches_tracked, without.num_batches_tracked));
  }
  /// The call with others in place of the base's statistics.
  at::Tensor with_statistics(const Statistics& others, const std::function<at::Tensor()>& call) {
    struct Restore {
      Statistics& place;
      Statistics was = place;
      ~Restore() { place = was; }
    } restore{norm_.statistics};
    norm_.statistics = others;
    return call();
  }

  nn::BatchNorm2d& norm_;
  at::Tensor weight, bias;
  Statistics own_;
};

/// The build of what is named by a whole path, "a.b.bias": on "a", with the rest for a suffix.
std::pair<PartBuild, std::string> named_by(const PartBuild& build, const std::string& path) {
  const auto dot = path.rfind('.', path.rfind('.') - 1);
  auto made = build;
  made.path = dot == std::string::npos ? "" : path.substr(0, dot);
  if (made.path.empty()) return {made, path};
  return {made, path.substr(dot + 1)};
}

class BiasPart : public Part {
 public:
  BiasPart(const PartBuild& build, const BiasNames& names) : Part(build), unseen_(names.unseen) {
    const auto own = build.path + "." + names.suffix;
    const auto enter = [&](const std::string& path, const at::Tensor& base) {
      const auto [made, suffix] = named_by(build, path);
      const auto entered = parameter(made, suffix, base.sizes());
      const at::NoGradGuard no_grad;
      if (build.fresh()) entered.copy_(base);
      return entered;
    };
    const bool tied = names.twin.defined() && names.twin.is_same(build.layer.bias);
    // Older files have a tied one under the layer's own name only.
    const bool by_twin = tied && (build.fresh() || !build.source.shapes(names.twin_path).empty());
    bias = enter(by_twin ? names.twin_path : own, build.layer.bias);
    if (by_twin) {
      again_ = build.key(names.suffix);
      build.source.take_if_there(again_, bias.sizes());
    }
    if (names.twin.defined() && !tied) enter(names.twin_path, names.twin);
  }

  NamedTensors saved() const override {
    auto all = Part::saved();
    if (!again_.empty()) all.emplace_back(again_, bias.detach().clone());  // a file takes no tensor twice
    return all;
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    if (unseen_) return next(x);
    auto change = bias - layer().bias;
    const auto kind = layer().kind();
    if (kind == nn::LayerKind::conv2d || kind == nn::LayerKind::batch_norm)
      change = change.view({1, -1, 1, 1});
    return gate.add(next(x), change);
  }

  void merge(Weights& weights) const override {
    if (!unseen_) weights.bias = weights.bias + (bias - layer().bias).to(weights.bias.scalar_type());
  }

 private:
  bool unseen_;
  std::string again_;
  at::Tensor bias;
};

}  // namespace

bool is_token_table(const PartBuild& build) {
  const auto kind = build.layer.kind();
  return build.model && (kind == nn::LayerKind::embedding || kind == nn::LayerKind::linear) &&
         build.layer.weight.size(0) == build.model->config().optional_integer("vocab_size");
}

std::optional<int64_t> resized_rows(const PartBuild& build, const std::string& key) {
  if (build.fresh() || !is_token_table(build)) return {};
  const auto found = build.source.shapes(key);
  const auto& weight = build.layer.weight;
  const bool resized = found.size() == 1 && found[0].size() == 2 && found[0][1] == weight.size(1) &&
                       found[0][0] != weight.size(0);
  return resized ? std::optional(found[0][0]) : std::nullopt;
}

std::shared_ptr<Part> resized_part(const PartBuild& build) {
  return resized_rows(build, build.key("weight"))
             ? std::make_shared<Replacement>(build, "", /*trainable=*/false)
             : nullptr;
}

std::shared_ptr<Part> tied_replacement_part(const PartBuild& build, const Part& embedding) {
  return std::make_shared<Replacement>(build, dynamic_cast<const Replacement&>(embedding));
}

at::Tensor put_logits(const Gate& gate, const at::Tensor& others, const at::Tensor& own) {
  if (gate.is_all()) return own;
  const auto tokens = std::max(own.size(-1), others.size(-1));
  const auto widened = [&](const at::Tensor& logits) {
    return at::constant_pad_nd(logits, {0, tokens - logits.size(-1)}, std::numeric_limits<float>::lowest());
  };
  return gate.put(widened(others), widened(own));
}

std::shared_ptr<Part> replacement_part(const PartBuild& build, const std::string& prefix) {
  if (build.layer.kind() == nn::LayerKind::batch_norm)
    return std::make_shared<BatchNormReplacement>(build, prefix);
  return std::make_shared<Replacement>(build, prefix, /*trainable=*/true);
}

std::shared_ptr<Part> bias_part(const PartBuild& build, const BiasNames& names) {
  return std::make_shared<BiasPart>(build, names);
}

}  // namespace graft::adapters
