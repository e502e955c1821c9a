#include "nn/resident.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <vector>

namespace graft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void enter(const torch::nn::Module* module) {
  const void* key = module;
  if (auto* residency = Residency::current()) residency->enter({&key, 1});
}

void leave(const torch::nn::Module* module) {
  const void* key = module;
  if (auto* residency = Residency::current()) residency->leave({&key, 1});
}

/// Autograd runs the nodes that were made last first: all of the block are done before this one, also those
/// that do not lead to x.
struct Entered : torch::autograd::Function<Entered> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const torch::nn::Module* module) {
    ctx->saved_data["module"] = reinterpret_cast<int64_t>(module);
    return x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    leave(reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["module"].toInt()));
    return {grads[0], {}};
  }
};

/// Modules in a backward pass whose x wants no gradient, so that no node tells their end: it is when one that
/// ran before them is entered (a decoder's first block, then the encoder), or that of the pass.
thread_local std::vector<const torch::nn::Module*> ending;

struct Left : torch::autograd::Function<Left> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const torch::nn::Module* module,
                            bool ends_here) {
    ctx->saved_data["module"] = reinterpret_cast<int64_t>(module);
    ctx->saved_data["ends here"] = ends_here;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto* module = reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["module"].toInt());
    for (const auto* done : std::exchange(ending, {})) leave(done);
    enter(module);
    if (ctx->saved_data["ends here"].toBool()) {
      ending.push_back(module);
      torch::autograd::Engine::get_default_engine().queue_callback([module] {
        if (std::erase(ending, module) > 0) leave(module);
      });
    }
    return {grads[0], {}, {}};
  }
};

bool wants_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

/// The modules that were entered and not left, and whether the gradient ends in them: nothing before them
/// wants one.
struct Open {
  const torch::nn::Module* module;
  bool ends_here;
};
thread_local std::vector<Open> open;

c10::StorageImpl* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

/// The tensor stays, for autograd's sake, and so does its version; its memory goes and comes.
class Cast : public Residency::Copy {
 public:
  Cast(at::Tensor weight, at::ScalarType dtype) : weight_(std::move(weight)) { make_as(dtype); }
  void make() override { make_as(tensor_.scalar_type()); }
  void drop() override {
    storage_of(tensor_)->set_data_ptr_noswap(at::DataPtr(nullptr, tensor_.device()));
    storage_of(tensor_)->set_nbytes(0);
  }
  int64_t bytes() const override { return static_cast<int64_t>(tensor_.nbytes()); }
  const at::Tensor& tensor() const { return tensor_; }

 private:
  void make_as(at::ScalarType dtype) {
    const at::NoGradGuard no_grad;
    auto made = weight_.to(dtype);
    if (!tensor_.defined()) {
      tensor_ = std::move(made);
      return;
    }
    const auto size = made.storage().nbytes();
    storage_of(tensor_)->set_data_ptr_noswap(storage_of(made)->set_data_ptr(at::DataPtr()));
    storage_of(tensor_)->set_nbytes(size);
  }

  at::Tensor weight_, tensor_;
};

}  // namespace

at::Tensor entered(const torch::nn::Module& module, const at::Tensor& x) {
  ending.clear();  // of a pass that ended by a throw
  enter(&module);
  const bool goes_on = wants_gradient(x);
  open.push_back({&module, !goes_on});
  return goes_on ? Entered::apply(x, &module) : x;
}

at::Tensor left(const torch::nn::Module& module, const at::Tensor& y) {
  leave(&module);
  bool ends_here = false;
  for (bool found = false; !found && !open.empty();
       open.pop_back()) {  // what is above it was left by a throw
    found = open.back().module == &module;
    ends_here = found && open.back().ends_here;
  }
  return wants_gradient(y) ? Left::apply(y, &module, ends_here) : y;
}

at::Tensor for_product(const at::Tensor& weight) {
  auto* residency = Residency::current();
  if (!residency || weight.requires_grad() || weight.scalar_type() != at::kFloat || !weight.has_storage() ||
      !at::autocast::is_autocast_enabled(weight.device().type()))
    return weight;
  const auto dtype = at::autocast::get_autocast_dtype(weight.device().type());
  const auto* cast = dynamic_cast<const Cast*>(residency->copy(
      storage_of(weight), static_cast<int>(dtype), [&] { return std::make_unique<Cast>(weight, dtype); }));
  return cast ? cast->tensor() : weight;
}

}  // namespace graft::nn
