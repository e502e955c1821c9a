// loop_driver MODEL ADAPTER|full TOKENS OUT accelerator|own BACKEND LR: a loop of one's own over the batches
// of TOKENS, with AdamW and a learning rate that falls to nothing, as transformers' Trainer has it; through
// Accelerator, or with nothing but compile() and torch. The losses go to OUT, one a line.
#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <fstream>
#include <iostream>

#include "graft/graft.h"

namespace {

struct Run {
  std::vector<std::string> words;
  graft::CompileOptions compile;
  double rate;
};

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

/// `after_step` is told the number of each step, from 0, while the gradients are there.
template <class Model>
void train(const Run& run, const std::shared_ptr<Model>& model, const std::vector<at::Tensor>& trained,
           const std::function<void(int64_t)>& after_step) {
  const auto adam =
      std::make_shared<torch::optim::AdamW>(trained, torch::optim::AdamWOptions(run.rate).weight_decay(0.0));
  const auto tokens = graft::read_tokens(run.words.at(2));
  const auto rate = [&](int64_t step) {
    return run.rate * (1 - static_cast<double>(step) / static_cast<double>(tokens->batches()));
  };
  model->train();
  std::ofstream losses(run.words.at(3));
  losses.precision(9);
  if (run.words.at(4) == "accelerator") {
    graft::Accelerator accelerator{{.compile = run.compile}};
    auto [prepared, optimizer, data] = accelerator.prepare(model, adam, tokens);
    for (int64_t i = 0; i < data.batches(); ++i) {
      auto batch = data.batch(0, i);
      batch.labels = batch.input_ids;
      const auto loss = prepared(batch).loss;
      accelerator.backward(loss);
      accelerator.clip_grad_norm_(trained, 1.0);
      set_rate(optimizer.optimizer(), rate(i));
      optimizer.step();
      after_step(i);
      optimizer.zero_grad();
      const auto mean = accelerator.reduce(loss, "mean").template item<double>();
      if (accelerator.is_main_process()) losses << mean << "\n";
    }
    accelerator.wait_for_everyone();
    return;
  }
  const auto fast = graft::compile(
      [model](const graft::ModelInputs& batch) { return model->forward(batch).loss; }, run.compile, {model});
  for (int64_t i = 0; i < tokens->batches(); ++i) {
    auto batch = tokens->batch(0, i);
    batch.labels = batch.input_ids;
    const auto loss = fast(batch);
    loss.backward();
    torch::nn::utils::clip_grad_norm_(trained, 1.0);
    set_rate(*adam, rate(i));
    adam->step();
    after_step(i);
    adam->zero_grad();
    losses << loss.template item<double>() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Run run{{argv + 1, argv + argc}, {}, 0};
    run.compile = {.backend = run.words.at(5) == "graft" ? graft::Backend::graft : graft::Backend::eager,
                   .fullgraph = true};
    run.rate = std::stod(run.words.at(6));
    const auto model = graft::AutoModelForCausalLM::from_pretrained(run.words.at(0));
    if (run.words.at(1) == "full") {
      std::vector<at::Tensor> trained;
      for (const auto& [name, tensor] : model->unique_parameters()) trained.push_back(tensor);
      train(run, model, trained, [](int64_t) {});
      return 0;
    }
    const auto peft = std::make_shared<graft::PeftModel>(model);
    peft->load_adapter(run.words.at(1), "default", {.is_trainable = true});
    peft->set_adapter("default");
    std::vector<at::Tensor> trained;
    for (const auto& [name, tensor] : peft->trainable_tensors("default")) trained.push_back(tensor);
    const bool allocates = run.words.size() > 7 && run.words.at(7) == "allocates";
    train(run, peft, trained, [&](int64_t step) {
      if (allocates) peft->update_and_allocate("default", step);
    });
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
