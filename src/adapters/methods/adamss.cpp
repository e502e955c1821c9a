#include "adapters/methods/adamss.h"

#include <ATen/ATen.h>

#include <mutex>

#include "adapters/added_weight.h"
#include "adapters/k_means.h"
#include "adapters/svd.h"
#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

/// The base weight's own singular vectors decide which rows belong together, and the file does not say it:
/// they are found again, as PEFT does.
class AdamssPart : public Part {
 public:
  explicit AdamssPart(const PartBuild& build) : Part(build), in_(build.in_features()) {
    if (build.layer.kind() != nn::LayerKind::linear) build.refuse("PEFT has it for torch.nn.Linear only");
    const at::NoGradGuard no_grad;
    const auto dtype = build.layer.weight.scalar_type();
    auto whole = build.layer.weight.detach().to(at::kFloat);
    if (build.layer.bias.defined())
      whole = at::cat({whole, build.layer.bias.detach().to(at::kFloat).unsqueeze(1)}, 1);
    const int64_t r = std::min({positive(build.config, "r"), whole.size(0), whole.size(1)});
    const auto [u, s, vh] = largest_singular(whole, r, 2, seeded(build.config.integer("random_seed")));
    const auto groups = std::min(positive(build.config, "num_subspaces"), whole.size(0));
    // Then they are at right angles to each other, all equally far apart, and rounding decides.
    if (groups > 1 && groups < whole.size(0) && r == whole.size(0))
      build.refuse("an \"r\" of " + std::to_string(r) + " leaves nothing by which to put its " +
                   std::to_string(r) + " outputs into groups: choose a smaller one");
    const auto labels = k_means(u, groups, /*rounds=*/10, /*seed=*/123456789);
    std::vector<at::Tensor> order;
    for (int64_t i = 0; i < groups; ++i) {
      order.push_back(at::nonzero(labels == i).flatten());
      if (order.back().numel() == 0)
        build.refuse("its rows fall into fewer than " + std::to_string(groups) +
                     " groups: choose a smaller \"num_subspaces\"");
    }
    for (int64_t i = 0; i < groups; ++i)
      add_subspace(build, i, u.index_select(0, order[static_cast<size_t>(i)].to(u.device())), dtype);
    directions_ = parameter(build, "adamss_newB", {r, whole.size(1)}, /*trainable=*/false);
    if (build.fresh()) directions_.copy_(vh.to(dtype));
    place_ = constant("place", at::argsort(at::cat(order)).to(build.layer.weight.device()));
  }

  at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) override {
    const auto in = gate.part(x).to(layer().weight.scalar_type());
    const auto directions = cast_to(directions_, in);
    const auto low = layer().bias.defined()
                         ? at::linear(in, directions.narrow(1, 0, in_), directions.select(1, in_))
                         : at::linear(in, directions);
    std::vector<at::Tensor> groups;
    groups.reserve(A_.size());
    for (size_t i = 0; i < A_.size(); ++i)
      groups.push_back(at::linear(at::linear(low, cast_to(A_[i], in)), cast_to(B_[i], in)));
    return gate.add(next(x), at::cat(groups, -1).index_select(-1, place_));
  }

  void merge(Weights& weights) const override {
    const auto wide = at::empty({0}, layer().weight.options().dtype(widest(weights.weight.scalar_type())));
    std::vector<at::Tensor> groups;
    groups.reserve(A_.size());
    for (size_t i = 0; i < A_.size(); ++i)
      groups.push_back(at::matmul(cast_to(B_[i], wide), cast_to(A_[i], wide)));
    const auto delta = at::matmul(at::cat(groups, 0), cast_to(directions_, wide)).index_select(0, place_);
    const auto add = [](const at::Tensor& to, const at::Tensor& change) {
      return to + change.to(to.scalar_type());
    };
    weights.weight = add(weights.weight, delta.narrow(1, 0, in_));
    if (weights.bias.defined()) weights.bias = add(weights.bias, delta.select(1, in_));
  }

 private:
  static at::ScalarType widest(at::ScalarType dtype) {
    return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
  }

  /// `rows` are the group's rows of the left singular vectors.
  void add_subspace(const PartBuild& build, int64_t i, const at::Tensor& rows, at::ScalarType dtype) {
    const auto suffix = [i](const char* name) { return name + std::to_string(i); };
    const int64_t rank = rank_of(build, suffix("adamss_A."), rows), r = rows.size(1);
    if (rank > r)
      build.refuse("a \"subspace_rank\" of " + std::to_string(rank) + " is more than its rank, which is " +
                   std::to_string(r));
    check_size(build, suffix("adamss_B."), rows.size(0));
    A_.push_back(parameter(build, suffix("adamss_A."), {rank, r}));
    B_.push_back(parameter(build, suffix("adamss_B."), {rows.size(0), rank}));
    if (!build.fresh()) return;
    const auto start = largest_singular(at::matmul(rows, rows.t()), rank, 2).u;
    A_.back().copy_(std::get<0>(at::linalg_qr(at::matmul(rows.t(), start))).t().to(dtype));
    if (build.config.is_string("init_weights"))
      B_.back().zero_();
    else
      B_.back().copy_(at::randn({rows.size(0), rank}, at::TensorOptions(dtype)) * 0.01);
  }

  /// As many as the configuration says, or as the rows' singular values: then the file has them.
  static int64_t rank_of(const PartBuild& build, const std::string& suffix, const at::Tensor& rows) {
    const int64_t most = positive(build.config, "subspace_rank");
    if (!build.config.boolean("use_dynamic_rank")) return std::min(rows.size(0), most);
    if (const auto shapes = build.source.shapes(build.key(suffix)); !shapes.empty() && shapes[0].size() == 2)
      return shapes[0][0];
    const auto s = largest_singular(at::matmul(rows, rows.t()), rows.size(0), 2).s;
    const auto large = (s > s[0] * build.config.number("svd_threshold")).sum().item<int64_t>();
    return std::max<int64_t>(1, std::min({large, most, s.size(0)}));
  }

  static void check_size(const PartBuild& build, const std::string& suffix, int64_t rows) {
    const auto shapes = build.source.shapes(build.key(suffix));
    if (shapes.empty() || (shapes[0].size() == 2 && shapes[0][0] == rows)) return;
    throw FormatError(
        "[adamss] \"" + build.key(suffix) + "\" is of shape " + c10::str(shapes[0]) + ", and " +
        std::to_string(rows) +
        " rows of this base weight belong together: the adapter goes with another base, or with this "
        "one in another dtype");
  }

  int64_t in_;
  std::vector<at::Tensor> A_, B_;
  at::Tensor directions_, place_;
};

void check_adamss(const AdapterConfig& config) {
  for (const char* field : {"r", "num_subspaces", "subspace_rank"}) positive(config, field);
  const auto init = config.text("init_weights");
  if (init != "\"orthogonal\"" && init != "null" && init != "false")
    throw ConfigError("[adamss] \"init_weights\" must be \"orthogonal\", null or false, got " + init);
  if (!config.boolean("use_asa")) return;
  static std::once_flag said;
  std::call_once(said, [] {
    log_warning(
        "[adamss] \"use_asa\" lets fewer subspaces be trained step by step where PEFT's callback is called; "
        "graft trains all of them");
  });
}

}  // namespace

Method adamss_method() {
  return {.type = "ADAMSS",
          .fields = {{"r", 100},
                     {"num_subspaces", 5},
                     {"subspace_rank", 1},
                     {"init_weights", "orthogonal", {}, Field::Rule::any},
                     {"use_asa", false},
                     {"asa_target_subspaces", 50},
                     {"init_warmup", 50},
                     {"final_warmup", 1000},
                     {"mask_interval", 100},
                     {"asa_importance_beta", 0.85},
                     {"asa_uncertainty_beta", 0.85},
                     {"asa_schedule_exponent", 3.0},
                     {"use_dynamic_rank", false},
                     {"svd_threshold", 0.1},
                     {"random_seed", 0}},
          .lacks = {"exclude_modules"},
          .part = [](const PartBuild& build) -> std::shared_ptr<Part> {
            return std::make_shared<AdamssPart>(build);
          },
          .default_targets = usual_targets(),
          .check = check_adamss,
          .data_fields = {"init_weights", "use_asa", "asa_target_subspaces", "init_warmup", "final_warmup",
                          "mask_interval", "asa_importance_beta", "asa_uncertainty_beta",
                          "asa_schedule_exponent", "use_dynamic_rank", "svd_threshold", "random_seed"}};
}

}  // namespace graft::adapters
