// Training: transformers' Trainer and TrainingArguments over a model or its adapters.
//
//   auto data = graft::read_tokens("tokens.safetensors");
//   graft::Trainer trainer{peft, {.output_dir = "out", .learning_rate = 1e-4, .max_steps = 50}, data};
//   trainer.train();
//   trainer.save_model("out");   // PEFT loads it
//
// With the same data, seed and arguments a run on the CPU gives the same bits, also when it was killed and
// resumed in between.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graft/compile.h"
#include "graft/model.h"
#include "graft/peft.h"
#include "graft/process_group.h"

namespace graft {

/// transformers' TrainingArguments: the names and the defaults are its own.
struct TrainingArguments {
  /// Where checkpoint-N/, metrics.jsonl, TensorBoard's events and report.html go; empty: nothing is written.
  std::filesystem::path output_dir = {};
  double learning_rate = 5e-5;
  /// "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
  /// "inverse_sqrt"
  std::string lr_scheduler_type = "linear";
  /// Below 1: a share of all steps.
  double warmup_steps = 0;
  /// "adamw_torch" (also "adamw_torch_fused"), "sgd", "adafactor"
  std::string optim = "adamw_torch_fused";
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  /// Not applied to biases and normalisations.
  double weight_decay = 0;
  /// LoRA+ (Hayou et al. 2024), as PEFT's create_loraplus_optimizer: B learns so many times as fast as A, and
  /// adapters of embeddings at a rate of their own.
  std::optional<double> loraplus_lr_ratio = {};
  double loraplus_lr_embedding = 1e-6;
  double max_grad_norm = 1;  ///< 0: no clipping
  int64_t max_steps = -1;    ///< if positive, in place of num_train_epochs
  double num_train_epochs = 3;
  int64_t gradient_accumulation_steps = 1;
  bool gradient_checkpointing = false;
  /// The forward pass under autocast; with fp16 the loss is scaled as torch's GradScaler does it.
  bool bf16 = false, fp16 = false;
  uint64_t seed = 42;
  /// When checkpoints are saved: "no", every save_steps "steps", or after each "epoch".
  std::string save_strategy = "steps";
  int64_t save_steps = 500;                      ///< 0: none
  std::optional<int64_t> save_total_limit = {};  ///< keep the last so many checkpoints, and the best one
  int64_t eval_steps = 0;  ///< evaluate every so many steps, see Trainer::evaluate_on(); 0: never
  /// The model is that of the lowest loss on the data to evaluate on, which is kept as a checkpoint.
  bool load_best_model_at_end = false;
  /// Ends the run after so many evaluations in a row that were not better by more than the threshold; 0:
  /// never.
  int64_t early_stopping_patience = 0;
  double early_stopping_threshold = 0;
  CompileOptions compile = {.backend = Backend::eager};
  /// Those that train together, each on its rows of every batch; none: this one alone. All of them have to
  /// see the same output_dir, into which the first writes.
  std::shared_ptr<ProcessGroup> processes = {};
  /// 1: each process keeps the optimizer's state of its share of the tensors only, as ZeRO's first stage
  /// does. 3: also only its share of the weights that are not trained, and has the whole of a block while it
  /// runs. The model is the trainer's then: see gather_weights().
  int zero_stage = 0;
};

/// The batches of an epoch, in any order: a resumed run asks for those it has not seen. Derive your own from
/// it.
class TrainingData {
 public:
  virtual ~TrainingData() = default;
  /// In one epoch; at least one.
  virtual int64_t batches() const = 0;
  /// The same for the same numbers, always. Without labels a language model is trained on its inputs. Where
  /// several processes train together, this is the batch of all of them.
  virtual ModelInputs batch(int64_t epoch, int64_t index) const = 0;
  /// What tells these data from others, whatever it is made of: it is kept with checkpoints, and a run that
  /// is resumed on other data says so. Empty: it looks at the first batch only.
  virtual std::string fingerprint() const { return {}; }
};

/// A safetensors file of inputs with one dimension more than a model takes, batches along the first:
/// input_ids [batches, batch, seq], perhaps labels and attention_mask. They are taken in order.
std::shared_ptr<const TrainingData> read_tokens(const std::filesystem::path& path);

struct JsonlOptions {
  int64_t batch_size = 8;  ///< per_device_train_batch_size
  /// By the seed, shuffled for each epoch in the order of transformers' Trainer.
  bool shuffle = true;
  uint64_t seed = 42;
  std::optional<int64_t> max_length = {};  ///< longer rows are cut
  /// Fewer different shapes, of which each is compiled by itself.
  int64_t pad_to_multiple_of = 1;
  /// Of rows with messages only what the assistant says is judged; else all of it.
  bool assistant_only_loss = true;
  /// Where adapters know another number of tokens than the model (PeftModel::vocab_size()).
  std::optional<int64_t> vocab_size = {};
  bool skip_bad_rows = false;                          ///< else the first one is an error
  std::function<void(int64_t count)> on_skipped = {};  ///< told how many were left out
};

/// A file with one JSON object a line: {"input_ids": [..][, "labels": [..]]}, {"text": ..[, "text_pair":
/// ..]}, {"prompt": .., "completion": ..}, of which the prompt is not judged (both texts, or both lists of
/// messages), or {"messages": [..][, "tools": [..]]}; messages are put through the model's chat template; for
/// a classifier with "label". An encoder-decoder reads
/// the prompt (or input_ids) and is to write the completion (or labels). Other fields are left alone.
/// FormatError names the line and the reason. Text goes through the tokenizer in the folder `tokenizer`.
std::shared_ptr<const TrainingData> read_jsonl(const std::filesystem::path& path,
                                               const PreTrainedModel& model,
                                               const std::filesystem::path& tokenizer,
                                               const JsonlOptions& options = {});

struct EvalMetrics {
  double loss = 0;
  std::optional<double> perplexity = {};  ///< of language models
  std::optional<double> accuracy = {};    ///< of tokens, or of rows for a classifier; none for a regression
  int64_t items = 0;                      ///< tokens or rows that were judged
};

/// What one step of the optimizer did.
struct TrainingStep {
  int64_t step = 0;  ///< counted from 1
  int64_t max_steps = 0;
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  std::optional<double> grad_norm = {};  ///< before clipping
  int64_t tokens = 0;                    ///< or images, of this step
  double seconds = 0;                    ///< that it took
  /// Of these, in forward, backward and optimizer: the compiled program, where the whole step is one.
  double compute_seconds = 0;
  std::optional<EvalMetrics> eval = {};  ///< after it, where it was time for that
  bool skipped = false;                  ///< with fp16: a gradient overflowed, and nothing was changed
};

struct TrainOutput {
  int64_t global_step = 0;
  std::optional<int64_t> best_step = {};   ///< with the lowest loss on the data to evaluate on
  std::optional<double> best_metric = {};  ///< that loss
  bool stopped_early = false;              ///< for want of patience, or because a callback asked for it
  double training_loss = 0;                ///< mean over the steps
  std::vector<double> losses = {};         ///< one a step, also those before a resume
  std::vector<double> step_seconds = {};   ///< of the steps done now
  std::vector<TrainingStep> steps = {};    ///< all, also those before a resume
};

/// Where a run stands, for callbacks: transformers' TrainerState.
struct TrainerState {
  int64_t global_step = 0;  ///< steps that are done
  int64_t max_steps = 0;
  double epoch = 0;  ///< with the share of it that is done
  /// Of the last step.
  std::optional<double> loss = {}, learning_rate = {}, grad_norm = {};
  /// The lowest loss on the data to evaluate on, and after which step it was.
  std::optional<double> best_metric = {};
  std::optional<int64_t> best_global_step = {};
  /// All steps, also those before a resume.
  std::span<const TrainingStep> log_history = {};
  bool is_world_process_zero = true;
};

/// What a callback may ask for: transformers' TrainerControl. With several processes it is enough that one
/// of them asks.
struct TrainerControl {
  bool should_training_stop = false;  ///< ends the run as its last step would
  /// After this step. They are set by the arguments before on_step_end, and a callback may change them either
  /// way there and in on_epoch_end.
  bool should_evaluate = false, should_save = false;
  bool should_log = false;  ///< whether on_log is called; the files have every step in any case
};

/// Derive from it what a run should tell: transformers' TrainerCallback. All processes call theirs. An
/// exception ends the run: on all processes, with the checkpoints whole that are there.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(const TrainerState&, TrainerControl&) {}
  virtual void on_epoch_begin(const TrainerState&, TrainerControl&) {}
  virtual void on_step_begin(const TrainerState&, TrainerControl&) {}
  /// When the optimizer has changed the weights, before the step is counted. The gradients are gone.
  virtual void on_optimizer_step(const TrainerState&, TrainerControl&) {}
  virtual void on_step_end(const TrainerState&, TrainerControl&) {}
  /// After on_step_end of an epoch's last step, before what the two asked for is done. None for an epoch
  /// that the run does not finish.
  virtual void on_epoch_end(const TrainerState&, TrainerControl&) {}
  virtual void on_evaluate(const TrainerState&, TrainerControl&, const EvalMetrics&) {}
  virtual void on_log(const TrainerState&, TrainerControl&, const TrainingStep&) {}
  /// The checkpoint is whole when this is called.
  virtual void on_save(const TrainerState&, TrainerControl&) {}
  /// The model is the one that the run gives.
  virtual void on_train_end(const TrainerState&, TrainerControl&) {}
};

/// What the frozen weights take on this process, with zero_stage 3 and several processes; else zeros.
struct BaseMemory {
  int64_t whole = 0;  ///< bytes of all of them
  int64_t held = 0;   ///< bytes that are here now
  int64_t peak = 0;   ///< the most that ever were
};

class Trainer {
 public:
  /// Trains the active adapters: those that are active, and not merged, when train() begins. To change them
  /// during a run, so that other tensors are in training, is a UsageError.
  Trainer(std::shared_ptr<PeftModel> model, TrainingArguments arguments,
          std::shared_ptr<const TrainingData> data);
  /// Trains all parameters that require a gradient.
  Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments,
          std::shared_ptr<const TrainingData> data);
  ~Trainer();
  Trainer(Trainer&&) noexcept;

  /// With `resume` continues from the last whole checkpoint in output_dir, or starts where there are no
  /// checkpoints yet. Error where there are some and none of them is whole.
  /// IoError while another process trains into the same folder; UsageError for a checkpoint of another base
  /// model.
  TrainOutput train(bool resume = false);
  EvalMetrics evaluate(const TrainingData& data);
  /// The data for `eval_steps`.
  void evaluate_on(std::shared_ptr<const TrainingData> data);
  /// The trained adapter, or the model: as PEFT or transformers load it.
  void save_model(const std::filesystem::path& dir) const;
  /// They are called in the order in which they were added.
  void add_callback(std::shared_ptr<TrainerCallback> callback);
  /// Called after each step, when all is done that belongs to it: for those who only watch.
  void on_step(std::function<void(const TrainingStep&)> callback);
  int64_t max_steps() const;
  /// With zero_stage 3: the model has all its weights again, to be merged, saved or used. For all processes
  /// to call: when a trainer goes, the weights that it has not gathered are gone.
  void gather_weights();
  BaseMemory base_memory() const;

 private:
  struct Impl;
  Impl& impl() const;  ///< UsageError for a trainer that was moved from
  std::unique_ptr<Impl> impl_;
};

}  // namespace graft
