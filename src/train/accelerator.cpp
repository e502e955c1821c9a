#include "graft/accelerator.h"

#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/serialize.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "distributed/connected.h"
#include "graft/error.h"
#include "graft/safetensors.h"
#include "nn/weighted.h"
#include "support/given.h"
#include "train/batches.h"
#include "train/precision.h"
#include "train/random_state.h"
#include "train/whole_folder.h"

namespace graft {
namespace fs = std::filesystem;

/// torch's schedulers cannot be saved: what can is how often one has stepped.
struct detail::CountedScheduler {
  std::shared_ptr<torch::optim::LRScheduler> scheduler;
  int64_t steps = 0;

  void step() {
    scheduler->step();
    ++steps;
  }
};

struct detail::AcceleratorState {
  std::shared_ptr<ProcessGroup> group;
  std::optional<at::ScalarType> dtype;
  std::optional<train::LossScaler> scaler;
  int64_t accumulated = 1;  ///< batches of a step
  int64_t batch = 0;        ///< of the present step, counted from 1 within accumulate()
  bool sync = true;
  bool in_batch = false, end_of_data = false;  ///< within accumulate(); the next batch is the last
  bool unscaled = false, skipped = false;      ///< of the present step
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::vector<std::shared_ptr<torch::optim::Optimizer>> optimizers;
  std::vector<std::shared_ptr<CountedScheduler>> schedulers;
  std::unique_ptr<dist::GradientSum> sum;

  NamedTensors trained() const {
    NamedTensors all;
    for (size_t i = 0; i < modules.size(); ++i)
      for (const auto& item : modules[i]->named_parameters())
        if (item.value().requires_grad())
          all.emplace_back(std::to_string(i) + "." + item.key(), item.value());
    return all;
  }

  /// Once per step, before anybody looks at the gradients.
  void unscale() {
    if (!scaler || unscaled) return;
    std::vector<at::Tensor> gradients;
    for (const auto& [name, tensor] : trained())
      if (tensor.grad().defined()) gradients.push_back(tensor.grad());
    skipped = !scaler->unscale(gradients);
    unscaled = true;
  }

  void write(const fs::path& folder, const NamedTensors& random) const;
};

namespace {

constexpr const char* kUnfinished = ".unfinished";

std::string numbered(const char* name, size_t i, const char* ending) {
  return name + (i == 0 ? std::string() : "_" + std::to_string(i)) + ending;
}

/// The PeftModels in a tree, by what the paths of their tensors start with.
std::map<std::string, PeftModel*> peft_models_in(torch::nn::Module& root) {
  std::map<std::string, PeftModel*> found;
  for (const auto& item : root.named_modules("", /*include_self=*/false))
    if (auto* peft = dynamic_cast<PeftModel*>(item.value().get())) found.emplace(item.key() + ".", peft);
  if (auto* peft = dynamic_cast<PeftModel*>(&root)) found.emplace("", peft);
  return found;
}

/// An adapter's tensors lie in the tree by the number of its slot, which is of the order in which adapters
/// came and went. Here they have the adapter's name instead.
NamedTensors tensors_of(torch::nn::Module& module) {
  const auto peft_models = peft_models_in(module);
  const auto is_adapters = [&](const std::string& path) {
    return std::any_of(peft_models.begin(), peft_models.end(), [&](const auto& each) {
      return path.starts_with(each.first) &&
             (nn::is_wrapped_path(path) || path.compare(each.first.size(), 1, "@") == 0);
    });
  };
  NamedTensors all;
  const auto add = [&](const auto& items) {
    for (const auto& item : items)
      if (item.value().defined() && !is_adapters(item.key())) all.emplace_back(item.key(), item.value());
  };
  add(module.named_parameters());
  add(module.named_buffers());
  for (const auto& [path, peft] : peft_models) {
    auto names = peft->adapter_names();
    std::sort(names.begin(), names.end());  // the same order on all processes
    for (const auto& name : names)
      for (const auto& [place, tensor] : peft->tensors_by_place(name))
        all.emplace_back(path + "@adapter." + name + ":" + place, tensor);
  }
  return all;
}

/// FormatError unless the file holds these tensors and no others.
void check_holds(const SafetensorsFile& file, const NamedTensors& tensors) {
  const auto refuse = [&](const std::string& name, const std::string& what) {
    throw FormatError("[accelerator] " + file.path().string() + " is not of this model: \"" + name + "\" " +
                      what + ". Prepare the model as it was saved, with the same adapters");
  };
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors) {
    known.insert(name);
    if (!file.contains(name)) refuse(name, "is missing");
    if (file.tensor(name).sizes() != tensor.sizes()) refuse(name, "has another shape");
  }
  for (const auto& name : file.names())
    if (!known.contains(name)) refuse(name, "is in it, and not in the model");
}

std::optional<at::ScalarType> dtype_of(const std::string& mixed_precision) {
  if (mixed_precision == "no") return {};
  if (mixed_precision == "bf16") return at::kBFloat16;
  if (mixed_precision == "fp16") return at::kHalf;
  throw UsageError("[accelerator] mixed_precision \"" + mixed_precision +
                   "\" is unknown; known: no, bf16, fp16");
}

}  // namespace

void detail::under_autocast(const AcceleratorState& state, const torch::nn::Module& module,
                            const std::function<void()>& body) {
  const auto parameters = module.parameters();
  const auto device = parameters.empty() ? at::kCPU : parameters[0].device().type();
  const train::Autocast autocast(device, state.dtype);
  body();
}

void detail::ToFloat::tensor(at::Tensor& tensor) {
  if (tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16))
    tensor = tensor.to(at::kFloat);
}

PreparedOptimizer::PreparedOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     std::shared_ptr<detail::AcceleratorState> state)
    : optimizer_(given(std::move(optimizer), "[accelerator] the optimizer")), state_(std::move(state)) {}

void PreparedOptimizer::step() {
  if (!state_->sync) return;
  state_->unscale();
  if (!state_->skipped) optimizer_->step();
}

void PreparedOptimizer::zero_grad() {
  if (state_->sync) optimizer_->zero_grad();
}

bool PreparedOptimizer::step_was_skipped() const { return state_->skipped; }

PreparedScheduler::PreparedScheduler(std::shared_ptr<detail::CountedScheduler> scheduler,
                                     std::shared_ptr<detail::AcceleratorState> state)
    : scheduler_(std::move(scheduler)), state_(std::move(state)) {}

void PreparedScheduler::step() {
  if (state_->sync && !state_->skipped) scheduler_->step();
}

PreparedData::PreparedData(std::shared_ptr<const TrainingData> data,
                           std::shared_ptr<detail::AcceleratorState> state)
    : data_(given(std::move(data), "[accelerator] the data")), state_(std::move(state)) {}

ModelInputs PreparedData::batch(int64_t epoch, int64_t index) const {
  const bool last = index + 1 == data_->batches();
  if (!state_->in_batch)
    state_->end_of_data = last;  // for the batch that accumulate() begins
  else if (last)
    state_->sync = true;
  return train::rows_of(data_->batch(epoch, index), state_->group->rank(), state_->group->size());
}

Accelerator::Accelerator(const AcceleratorOptions& options)
    : options_(options), state_(std::make_shared<detail::AcceleratorState>()) {
  if (options.gradient_accumulation_steps < 1)
    throw UsageError("[accelerator] gradient_accumulation_steps must be at least 1");
  state_->dtype = dtype_of(options.mixed_precision);
  if (options.mixed_precision == "fp16") state_->scaler.emplace();
  state_->accumulated = options.gradient_accumulation_steps;
  state_->group = options.processes ? options.processes : ProcessGroup::connect();
}

int Accelerator::process_index() const { return state_->group->rank(); }
int Accelerator::num_processes() const { return state_->group->size(); }

void Accelerator::add_module(const std::shared_ptr<torch::nn::Module>& module) {
  state_->modules.push_back(given(module, "[accelerator] the model"));
  state_->sum.reset();
  for (const auto& [name, tensor] : tensors_of(*module)) state_->group->broadcast(tensor, 0);
}

void Accelerator::add_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  state_->optimizers.push_back(given(optimizer, "[accelerator] the optimizer"));
}

std::shared_ptr<detail::CountedScheduler> Accelerator::add_scheduler(
    std::shared_ptr<torch::optim::LRScheduler> scheduler) {
  state_->schedulers.push_back(std::make_shared<detail::CountedScheduler>(
      detail::CountedScheduler{given(std::move(scheduler), "[accelerator] the scheduler")}));
  return state_->schedulers.back();
}

void Accelerator::begin_batch() {
  auto& s = *state_;
  if (s.sync) s.batch = 0;
  ++s.batch;
  s.sync = s.batch == s.accumulated || s.end_of_data;
  s.end_of_data = false;
  s.in_batch = true;
  s.unscaled = s.skipped = false;
}

void Accelerator::end_batch() { state_->in_batch = false; }

bool Accelerator::sync_gradients() const { return state_->sync; }

void Accelerator::backward(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1)
    throw UsageError("[accelerator] backward() takes a loss of one number, and was given " +
                     (loss.defined() ? std::to_string(loss.numel()) + ": take their mean() or sum()"
                                     : std::string("none: does the batch have labels?")));
  if (!loss.requires_grad())
    throw UsageError(
        "[accelerator] the loss does not depend on anything that requires a gradient: is an adapter active "
        "and trainable, or a parameter of the model?");
  auto& s = *state_;
  const double weight = (s.scaler ? s.scaler->scale() : 1.0) / static_cast<double>(s.accumulated) /
                        static_cast<double>(s.group->size());
  const auto gradient = at::full_like(loss, weight);
  if (s.group->size() == 1 || !s.sync) return torch::autograd::backward({loss}, {gradient});
  if (!s.sum) s.sum = dist::sum_gradients(s.group, s.trained());
  s.sum->backward(loss, gradient);
}

std::optional<double> Accelerator::clip_grad_norm_(const std::vector<at::Tensor>& parameters,
                                                   double max_norm) {
  if (!state_->sync) return {};
  state_->unscale();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  const at::NoGradGuard no_grad;
  const auto norm = train::clip_grad_norm(gradients, max_norm);
  return norm.defined() ? std::optional(norm.item<double>()) : std::nullopt;
}

at::Tensor Accelerator::gather(const at::Tensor& tensor) const {
  auto& group = *state_->group;
  const auto mine = tensor.dim() == 0 ? tensor.detach().unsqueeze(0) : tensor.detach();
  // All send as many rows as the largest has.
  const auto counts = group.all_gather(at::scalar_tensor(mine.size(0), at::kLong));
  int64_t most = 0;
  for (const auto& count : counts) most = std::max(most, count.item<int64_t>());
  auto sizes = mine.sizes().vec();
  sizes[0] = most;
  const auto padded = at::zeros(sizes, mine.options());
  padded.slice(0, 0, mine.size(0)).copy_(mine);
  auto all = group.all_gather(padded);
  for (size_t i = 0; i < all.size(); ++i) all[i] = all[i].slice(0, 0, counts[i].item<int64_t>());
  return at::cat(all);
}

at::Tensor Accelerator::reduce(const at::Tensor& tensor, const std::string& reduction) const {
  if (reduction != "sum" && reduction != "mean")
    throw UsageError("[accelerator] reduction \"" + reduction + "\" is unknown; known: sum, mean");
  auto sum = tensor.detach().clone();
  state_->group->all_reduce(sum);
  return reduction == "sum" ? sum : sum / static_cast<double>(num_processes());
}

void Accelerator::wait_for_everyone() const { state_->group->barrier(); }

void Accelerator::print(const std::string& text) const {
  if (is_main_process()) std::cout << text << '\n' << std::flush;
}

void detail::AcceleratorState::write(const fs::path& folder, const NamedTensors& random) const {
  for (size_t i = 0; i < modules.size(); ++i)
    save_safetensors(folder / numbered("model", i, ".safetensors"), tensors_of(*modules[i]));
  for (size_t i = 0; i < optimizers.size(); ++i) {
    torch::serialize::OutputArchive archive;
    optimizers[i]->save(archive);
    archive.save_to((folder / numbered("optimizer", i, ".pt")).string());
  }
  save_safetensors(folder / train::kRandomFile, random);
  NamedTensors others;
  if (scaler) others = scaler->state();
  for (size_t i = 0; i < schedulers.size(); ++i)
    others.emplace_back("scheduler." + std::to_string(i), at::scalar_tensor(schedulers[i]->steps, at::kLong));
  save_safetensors(folder / "state.safetensors", others);
}

void Accelerator::save_state(const fs::path& dir) const {
  auto& s = *state_;
  const auto random = train::random_state(*s.group);
  if (is_main_process()) {
    auto unfinished = dir;
    unfinished += kUnfinished;
    train::write_whole_folder(unfinished, dir, [&](const fs::path& folder) { s.write(folder, random); });
  }
  s.group->barrier();
}

void Accelerator::load_state(const fs::path& dir) {
  auto& s = *state_;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < s.modules.size(); ++i) {
    const auto file = SafetensorsFile::open(dir / numbered("model", i, ".safetensors"));
    const auto tensors = tensors_of(*s.modules[i]);
    check_holds(*file, tensors);
    for (const auto& [name, tensor] : tensors) tensor.copy_(file->tensor(name));
  }
  const auto others = SafetensorsFile::open(dir / "state.safetensors");
  for (size_t i = 0; i < s.schedulers.size(); ++i) {
    const auto steps = others->tensor("scheduler." + std::to_string(i)).item<int64_t>();
    if (s.schedulers[i]->steps > steps)
      throw UsageError(
          "[accelerator] a scheduler has stepped further than the one that was saved: load the state first");
    while (s.schedulers[i]->steps < steps) s.schedulers[i]->step();
  }
  // After the schedulers: the learning rate is the optimizer's.
  for (size_t i = 0; i < s.optimizers.size(); ++i) {
    torch::serialize::InputArchive archive;
    archive.load_from((dir / numbered("optimizer", i, ".pt")).string());
    s.optimizers[i]->load(archive);
  }
  if (s.scaler) train::restore(s.scaler->state(), *others, /*part=*/true);
  train::restore_random_state(*SafetensorsFile::open(dir / train::kRandomFile), process_index());
}

}  // namespace graft
