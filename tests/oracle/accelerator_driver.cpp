// accelerator_driver MODEL ADAPTER TOKENS OUT PRECISION ACCUMULATE BACKEND [SAVE_AFTER DIR | LOAD DIR]: a
// loop of one's own through Accelerator over the batches of TOKENS; the losses go to OUT, one a line.
#include <ATen/ATen.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <fstream>
#include <iostream>

#include "graft/graft.h"

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    graft::Accelerator accelerator{
        {.mixed_precision = words.at(4),
         .gradient_accumulation_steps = std::stoll(words.at(5)),
         .compile = {.backend = words.at(6) == "graft" ? graft::Backend::graft : graft::Backend::eager,
                     .fullgraph = true}}};
    const auto peft =
        std::make_shared<graft::PeftModel>(graft::AutoModelForCausalLM::from_pretrained(words.at(0)));
    peft->load_adapter(words.at(1), "default", {.is_trainable = true});
    peft->set_adapter("default");
    std::vector<at::Tensor> trained;
    for (const auto& [name, tensor] : peft->trainable_tensors("default")) trained.push_back(tensor);
    const auto adam =
        std::make_shared<torch::optim::AdamW>(trained, torch::optim::AdamWOptions(1e-2).weight_decay(0.0));
    const auto decay = std::make_shared<torch::optim::StepLR>(*adam, 3, 0.5);
    const auto tokens = graft::read_tokens(words.at(2));
    auto [model, optimizer, scheduler, data] = accelerator.prepare(peft, adam, decay, tokens);
    if (accelerator.unwrap_model(model) != peft) throw graft::Error("unwrap_model gives another model");

    int64_t first = 0, last = data.batches();
    if (words.size() > 7 && words.at(7) == "load") {
      accelerator.load_state(words.at(8));
      first = data.batches() / 2;
    } else if (words.size() > 7) {
      last = data.batches() / 2;
    }
    peft->train();
    std::ofstream losses(words.at(3) + "." + std::to_string(accelerator.process_index()));
    losses.precision(9);
    for (int64_t i = first; i < last; ++i) {
      accelerator.accumulate([&] {
        auto batch = data.batch(0, i);
        batch.labels = batch.input_ids;
        const auto loss = model(batch).loss;
        accelerator.backward(loss);
        accelerator.clip_grad_norm_(trained, 1.0);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
        losses << accelerator.reduce(loss, "mean").item<double>()
               << (optimizer.step_was_skipped() ? " skipped" : "") << "\n";
      });
    }
    const auto rows =
        accelerator.gather(at::full({accelerator.process_index() + 1, 2}, accelerator.process_index()));
    const int64_t n = accelerator.num_processes();
    if (rows.size(0) != n * (n + 1) / 2) throw graft::Error("gather lost rows");
    if (words.size() > 7 && words.at(7) == "save") accelerator.save_state(words.at(8));
    accelerator.wait_for_everyone();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
