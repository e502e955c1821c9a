#include "adapters/methods/frod.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "adapters/added_weight.h"
#include "adapters/sparse_rows.h"
#include "graft/error.h"
#include "nn/dropout.h"

namespace graft::adapters {
namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find('.', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

/// What the layer is to its block, "self_attn_q_proj", by PEFT's rules: layers of one kind share a basis.
std::string kind_of(const std::string& path) {
  const auto parts = parts_of(path);
  const size_t count = parts.size();
  if (count == 1 || is_number(parts[count - 2])) return parts.back();
  auto kind = parts[count - 2] + "_" + parts.back();
  if (kind == "output_dense" && count >= 3 && parts[count - 3] == "attention") return "attention_output";
  return kind;
}

/// The block that the layer is in; `fallback` where its path has no number.
int64_t block_of(const std::string& path, int64_t fallback) {
  const auto parts = parts_of(path);
  const auto layers = std::find(parts.begin(), parts.end(), "layers");
  if (layers != parts.end() && layers + 1 != parts.end() && is_number(layers[1]))
    return std::stoll(layers[1]);
  for (const auto& part : parts)
    if (is_number(part)) return std::stoll(part);
  return fallback;
}

/// A basis [in, in] that suits all these weights [out, in], one below the other a tall matrix: with its QR
/// decomposition, R^T times the eigenvectors of the mean of the inverses of Q_i^T Q_i.
at::Tensor basis_for(const std::vector<at::Tensor>& weights, double ridge) {
  const auto all = at::cat(weights, 0);
  if (all.size(0) < all.size(1)) return std::get<2>(at::linalg_svd(all, /*full_matrices=*/true)).t();
  const auto [q, r] = at::linalg_qr(all);
  const auto identity = at::eye(r.size(1));
  auto sum = at::zeros_like(identity);
  int64_t begin = 0;
  for (const auto& weight : weights) {
    const auto slice = q.narrow(0, begin, weight.size(0));
    sum = sum + at::linalg_inv(at::matmul(slice.t(), slice) + ridge * identity);
    begin += weight.size(0);
  }
  return at::matmul(r.t(), std::get<1>(at::linalg_eigh(sum / static_cast<double>(weights.size()))));
}

class FrodBases : public Shared {
 public:
  struct Basis {
    at::Tensor V;                       // [in, in]
    at::Tensor indices;                 // [2, entries] of S
    at::Tensor size;                    // [2]
    at::Tensor places;                  // the same, as numbers row by row
    at::Tensor order, columns, starts;  // of the entries row after row
  };

  FrodBases(const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers, TensorSource& source)
      : saved_(config.boolean("save_projection")) {
    const at::NoGradGuard no_grad;
    // By block: where two layers of a block are of one kind, the last counts.
    std::map<std::string, std::map<int64_t, const nn::WeightedLayer*>> kinds;
    int64_t number = 0;
    for (const auto* layer : layers)
      if (is_linear(*layer)) kinds[kind_of(layer->path())][block_of(layer->path(), number++)] = layer;
    auto generator = seeded(config.integer("projection_prng_key"));
    for (const auto& [kind, blocks] : kinds) {
      const int64_t in = out_in(*blocks.begin()->second, blocks.begin()->second->weight).size(1);
      const int64_t entries = entries_of(in, config.number("sparse_rate"));
      Basis basis;
      if (saved_ && !source.fresh()) {
        basis.V = source.take(name("V", kind), {in, in});
        basis.indices = source.take(name("s_indices", kind), {2, entries});
        basis.size = source.take(name("s_size", kind), {2});
        check(kind, basis, in);
      } else {
        std::vector<at::Tensor> weights;
        for (const auto& [block, layer] : blocks) {
          weights.push_back(out_in(*layer, layer->weight.detach()).to(at::kCPU, at::kFloat));
          if (weights.back().size(1) != in)
            throw ConfigError("[adapters] FROD: the layers of the kind \"" + kind +
                              "\" have inputs of different widths, and would share a basis");
        }
        basis.V = basis_for(weights, config.number("regularization_alpha")).contiguous();
        basis.indices = draw(in, entries, generator);
        basis.size = at::tensor({in, in}, at::kLong);
      }
      sort(basis, in);
      const auto device = blocks.begin()->second->weight.device();
      for (auto* each : {&basis.V, &basis.indices, &basis.size, &basis.places, &basis.order, &basis.columns,
                         &basis.starts})
        *each = each->to(device);
      bases_.emplace(kind, basis);
    }
  }

  std::vector<Entry> entries() const override {
    std::vector<Entry> all;
    for (const auto& [kind, basis] : bases_)
      for (const auto& [suffix, tensor] :
           {std::pair{"V", basis.V}, {"s_indices", basis.indices}, {"s_size", basis.size}})
        all.push_back({name(suffix, kind), tensor, false, saved_});
    return all;
  }

  const Basis& of(const std::string& path) const { return bases_.at(kind_of(path)); }

 private:
  static std::string name(const std::string& suffix, const std::string& kind) {
    return "base_model.frod_" + suffix + "." + kind;
  }

  static int64_t entries_of(int64_t in, double rate) {
    const int64_t off_diagonal = in * (in - 1);
    const auto wanted = std::min(static_cast<int64_t>(static_cast<double>(in * in) * rate), off_diagonal);
    return rate > 0 && off_diagonal > 0 ? std::max<int64_t>(1, wanted) : wanted;
  }

  /// Of all places but the diagonal's, numbered row by row.
  static at::Tensor draw(int64_t in, int64_t entries, at::Generator& generator) {
    if (entries == 0) return at::empty({2, 0}, at::kLong);
    const auto chosen = at::randperm(in * (in - 1), generator).narrow(0, 0, entries);
    const auto rows = at::floor_divide(chosen, in - 1), before = at::remainder(chosen, in - 1);
    return at::stack({rows, before + before.ge(rows).to(at::kLong)});
  }

  static void check(const std::string& kind, const Basis& basis, int64_t in) {
    const auto wrong = at::logical_or(basis.indices.lt(0), basis.indices.ge(in)).any().item<bool>() ||
                       basis.size.ne(in).any().item<bool>();
    if (wrong)
      throw FormatError("[adapters] \"" + name("s_indices", kind) + "\" and \"" + name("s_size", kind) +
                        "\" must name entries of a matrix of " + std::to_string(in) + " rows and columns");
  }

  static void sort(Basis& basis, int64_t in) {
    const auto wide = basis.indices.to(at::kLong);
    basis.places = wide.select(0, 0) * in + wide.select(0, 1);
    const auto [sorted, order] = basis.places.sort();
    basis.order = order;
    basis.columns = at::remainder(sorted, in);
    basis.starts = row_starts(at::floor_divide(sorted, in), in);
  }

  bool saved_;
  std::map<std::string, Basis> bases_;
};

/// The weight W = U L V^T becomes U (S + L) V^T: L is diagonal, S sparse and at first zero. U and the first L
/// follow from the base's weight.
class FrodPart : public AddedWeight {
 public:
  explicit FrodPart(const PartBuild& build)
      : AddedWeight(build), dropout_(build.config.number("frod_dropout")) {
    const auto& basis = dynamic_cast<const FrodBases&>(*build.shared).of(build.path);
    V_ = constant("frod_V", basis.V);
    constant("indices", basis.indices);  // goes into the file: another adapter in this place brings its own
    places_ = constant("places", basis.places);
    order_ = constant("order", basis.order);
    columns_ = constant("columns", basis.columns);
    starts_ = constant("starts", basis.starts);
    l_ = parameter(build, "frod_lambda_l", {V_.size(0)});
    s_ = parameter(build, "frod_lambda_s_values", {basis.indices.size(1)});
    const at::NoGradGuard no_grad;
    const auto [u, lengths] = decomposed(build.layer);
    U_ = constant("frod_U", u.to(build.options()));
    if (!build.fresh()) return;
    l_.copy_(lengths);
    s_.zero_();
    if (build.config.boolean("init_weights")) return;
    s_.normal_(0, 0.1);
    l_.add_(at::randn(l_.sizes()) * 0.1);
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = nn::dropout(cast_to(gate.part(x), l_), dropout_, is_training());
    const auto inner = cast_to(at::matmul(in, cast_to(V_, l_)), l_);  // autocast makes it narrower
    auto made = inner * l_;
    if (s_.numel() > 0) made = made + sparse_linear(inner, columns_, starts_, s_.index_select(0, order_));
    const auto base = cast_to(out_in(layer(), layer().weight), l_);
    return gate.add(next(x), at::linear(made, cast_to(U_, l_)) - at::linear(in, base));
  }

 protected:
  at::Tensor delta_weight() const override {
    const auto l = widened(l_);
    const int64_t in = l.size(0);
    const auto middle = at::diag(l).view(-1).index_add(0, places_, widened(s_)).view({in, in});
    const auto weight = at::matmul(at::matmul(cast_to(U_, l), middle), cast_to(V_, l).t());
    return weight - cast_to(out_in(layer(), layer().weight), l);
  }

 private:
  struct Decomposed {
    at::Tensor u, lengths;
  };

  /// The columns of W V^-T, and their lengths.
  Decomposed decomposed(const nn::WeightedLayer& layer) const {
    const auto w = out_in(layer, layer.weight.detach()).to(at::kCPU, at::kDouble);
    const auto v = V_.to(at::kCPU, at::kDouble);
    const auto [solved, info] = at::linalg_solve_ex(v, w.t());
    const auto columns = info.item<int>() == 0 ? solved.t() : at::matmul(w, at::linalg_pinv(v, 1e-6).t());
    const auto lengths = at::linalg_vector_norm(columns, 2, at::IntArrayRef{0});
    const auto u = at::where(lengths > 1e-12, columns / lengths, at::zeros({}, at::kDouble));
    return {u.to(at::kFloat), lengths.to(at::kFloat)};
  }

  at::Tensor V_, U_, l_, s_;
  at::Tensor places_, order_, columns_, starts_;  // of the entries of S
  double dropout_;
};

void check_frod(const AdapterConfig& config) {
  const auto rate = config.number("sparse_rate");
  if (!(rate >= 0 && rate <= 1))
    throw ConfigError("[adapters] \"sparse_rate\" must be between 0 and 1, got " + std::to_string(rate));
}

}  // namespace

Method frod_method() {
  return {.type = "FROD",
          .fields = {{"projection_prng_key", 0},
                     {"save_projection", true},
                     {"frod_dropout", 0.0},
                     {"fan_in_fan_out", false},
                     {"bias", "none", {"none", "all", "frod_only"}},
                     {"init_weights", true},
                     {"sparse_rate", 0.01},
                     {"regularization_alpha", 1e-3},
                     {"progressbar", true},
                     {"runtime_offload_base_weight", false, {}, Field::Rule::default_only}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<FrodPart>(build);
          },
          .default_targets = usual_targets_but("vit", {"query", "value"}),
          .check = check_frod,
          .shared = [](const AdapterConfig& config, const std::vector<nn::WeightedLayer*>& layers,
                       TensorSource& source) -> std::shared_ptr<Shared> {
            return std::make_shared<FrodBases>(config, layers, source);
          },
          .data_fields = {"projection_prng_key", "regularization_alpha", "progressbar", "init_weights"}};
}

}  // namespace graft::adapters
