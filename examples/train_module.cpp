// README.md's training loop: a module and an optimizer of torch's, with forward and backward compiled.
#include <graft/graft.h>
#include <torch/torch.h>

#include <cstdio>

struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 64))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(std::vector<int64_t>{64}))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(64, 1))};
  at::Tensor forward(const at::Tensor& x) { return out(torch::gelu(norm(in(x)))); }
};

int main() {
  torch::manual_seed(0);
  const auto net = std::make_shared<Net>();
  const auto fast = graft::compile(net, {.fullgraph = true});
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto x = torch::rand({256, 2});
  const auto y = (x.select(1, 0) * x.select(1, 1)).unsqueeze(1);
  for (int step = 0; step <= 200; ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(fast(x), y);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %3d  loss %.4f\n", step, loss.item<double>());
  }
}
