#include "bench/op_work.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "bench/op_table.h"
#include "graft/compile.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

/// Gradients of a result: any numbers that are neither equal nor random, so that nothing cancels out.
at::Tensor gradient_like(const at::Tensor& out) {
  return at::arange(out.numel(), at::kDouble).mul_(0.7).cos_().reshape(out.sizes()).to(out.scalar_type());
}

/// One op over tensors: forward, or forward and backward where some of them are trained.
class OpWork : public Work {
 public:
  OpWork(const fs::path& folder, const ordered_json& request)
      : op_(op_named(request.at("work"))), compiled_(compiled(op_, request.at("how"))) {
    const auto file = SafetensorsFile::open(folder / "inputs.safetensors");
    const auto trained = request.at("trained").get<std::vector<std::string>>();
    for (const auto& name : request.at("inputs").get<std::vector<std::string>>()) {
      // Copies: a mapped file has small pages, and bandwidth is what is measured.
      inputs_.push_back(file->tensor(name).clone());
      if (std::ranges::find(trained, name) == trained.end()) continue;
      inputs_.back().requires_grad_();
      trained_.emplace_back("grad." + name, inputs_.back());
    }
    if (trained_.empty()) return;
    for (const auto& out : op_.run(inputs_))
      given_.push_back(out.requires_grad() ? gradient_like(out) : at::Tensor());
  }

  void call() override {
    const at::AutoGradMode mode(!trained_.empty());
    for (const auto& [name, input] : trained_) input.mutable_grad() = at::Tensor();
    out_.clear();
    out_ = compiled_(inputs_);
    if (trained_.empty()) return;
    Tensors roots, given;
    for (size_t i = 0; i < out_.size(); ++i)
      if (given_[i].defined()) {
        roots.push_back(out_[i]);
        given.push_back(given_[i]);
      }
    torch::autograd::backward(roots, given);
  }

  NamedTensors outputs() const override {
    NamedTensors found;
    for (size_t i = 0; i < out_.size(); ++i)
      found.emplace_back("out" + std::to_string(i), out_[i].detach().contiguous());
    for (const auto& [name, input] : trained_)
      if (input.grad().defined()) found.emplace_back(name, input.grad().contiguous());
    return found;
  }

 private:
  using Function = Tensors(const Tensors&);
  static Compiled<Function> compiled(const Op& op, const std::string& how) {
    auto options = options_for(how);
    options.fullgraph = !op.has(breaks);
    return compile(std::function<Function>(op.run), options);
  }

  const Op& op_;
  Compiled<Function> compiled_;
  Tensors inputs_, out_;
  NamedTensors trained_;
  Tensors given_;  ///< gradients of the results; undefined for those that have none
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
  return std::make_unique<OpWork>(folder_of(request), request);
}

std::unique_ptr<Work> load_copy_work(const ordered_json& request) {
  return std::make_unique<CopyWork>(request.at("bytes").get<int64_t>());
}

}  // namespace graft::cli::bench
