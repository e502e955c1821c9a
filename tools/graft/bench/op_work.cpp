#include "bench/op_work.h"

#include <ATen/ATen.h>

#include <map>

#include "graft/compile.h"
#include "graft/error.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

using Tensors = std::vector<at::Tensor>;

at::Tensor pointwise(const Tensors& in) { return at::gelu(in[0]) * in[1] + in[2]; }
at::Tensor layer_norm(const Tensors& in) { return at::layer_norm(in[0], {in[0].size(-1)}, in[1], in[2]); }
at::Tensor rms_norm(const Tensors& in) { return at::rms_norm(in[0], {in[0].size(-1)}, in[1], 1e-6); }
at::Tensor softmax(const Tensors& in) { return at::softmax(in[0], -1); }
at::Tensor cross_entropy(const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }

using Op = at::Tensor (*)(const Tensors&);

Op op_named(const std::string& name) {
  static const std::map<std::string, Op> known{{"pointwise", pointwise},
                                               {"layer_norm", layer_norm},
                                               {"rms_norm", rms_norm},
                                               {"softmax", softmax},
                                               {"cross_entropy", cross_entropy}};
  const auto found = known.find(name);
  if (found == known.end()) throw UsageError("[bench] the work \"" + name + "\" is unknown");
  return found->second;
}

/// One op over tensors, without gradients.
class OpWork : public Work {
 public:
  OpWork(const fs::path& folder, const std::string& op, const std::vector<std::string>& names,
         const std::string& how)
      : op_(compile(std::function<at::Tensor(const Tensors&)>(op_named(op)), options_for(how))) {
    const auto file = SafetensorsFile::open(folder / "inputs.safetensors");
    // Copies: a mapped file has small pages, and bandwidth is what is measured.
    for (const auto& name : names) inputs_.push_back(file->tensor(name).clone());
  }

  void call() override {
    const at::NoGradGuard guard;
    out_ = at::Tensor();
    out_ = op_(inputs_);
  }
  NamedTensors outputs() const override { return {{"out", out_}}; }

 private:
  Compiled<at::Tensor(const Tensors&)> op_;
  Tensors inputs_;
  at::Tensor out_;
};

/// Reads and writes `bytes` in all, as plainly as can be.
class CopyWork : public Work {
 public:
  explicit CopyWork(int64_t bytes)
      : from_(at::ones({bytes / 2 / 4}, at::kFloat)), to_(at::zeros_like(from_)) {}
  void call() override { to_.copy_(from_); }
  NamedTensors outputs() const override { return {{"out", to_}}; }

 private:
  at::Tensor from_, to_;
};

}  // namespace

std::unique_ptr<Work> load_op_work(const ordered_json& request) {
  return std::make_unique<OpWork>(folder_of(request), request.at("work").get<std::string>(),
                                  request.at("inputs").get<std::vector<std::string>>(),
                                  request.at("how").get<std::string>());
}

std::unique_ptr<Work> load_copy_work(const ordered_json& request) {
  return std::make_unique<CopyWork>(request.at("bytes").get<int64_t>());
}

}  // namespace graft::cli::bench
