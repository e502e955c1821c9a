// A training loop of one's own with Accelerator: an ordinary torch module and torch's optimizer, compiled,
// two batches a step. The same program runs in several processes: graft launch -n 2 own_loop
#include <torch/torch.h>

#include <cstdio>

#include "graft/graft.h"

namespace {

/// y = 3x - 1, a little noisy; the batch is that of all processes.
class Line : public graft::TrainingData {
 public:
  int64_t batches() const override { return 80; }
  graft::ModelInputs batch(int64_t epoch, int64_t index) const override {
    const auto x = torch::linspace(-1, 1, 16).unsqueeze(1) + 0.01 * static_cast<double>(index % 7 + epoch);
    return {.pixel_values = x, .labels = 3 * x - 1 + 0.01 * torch::sin(40 * x)};
  }
};

}  // namespace

int main() try {
  torch::manual_seed(0);
  graft::Accelerator accelerator{
      {.gradient_accumulation_steps = 2, .compile = {.backend = graft::Backend::graft, .fullgraph = true}}};
  const auto net = std::make_shared<torch::nn::LinearImpl>(1, 1);
  const auto adam = std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.2));
  auto [model, optimizer, data] = accelerator.prepare(net, adam, std::make_shared<Line>());
  double first = 0, last = 0;
  for (int64_t i = 0; i < data.batches(); ++i)
    accelerator.accumulate([&, &model = model, &optimizer = optimizer, &data = data] {
      const auto batch = data.batch(0, i);
      const auto loss = torch::mse_loss(model(batch.pixel_values), batch.labels);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      last = accelerator.reduce(loss, "mean").item<double>();
      if (i == 0) first = last;
    });
  char line[80];
  std::snprintf(line, sizeof line, "loss from %.4f to %.4f with %d process(es)", first, last,
                accelerator.num_processes());
  accelerator.print(line);
  return last < first / 10 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "own_loop: %s\n", error.what());
  return 1;
}
