// The training loop.
#include "graft/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "graft/error.h"
#include "support/counted.h"
#include "support/given.h"
#include "support/log.h"
#include "train/arguments.h"
#include "train/base_fingerprint.h"
#include "train/batches.h"
#include "train/callbacks.h"
#include "train/evaluation.h"
#include "train/module_mode.h"
#include "train/report_page.h"
#include "train/run_folder.h"
#include "train/saved_state.h"
#include "train/schedule.h"
#include "train/sharded_base.h"
#include "train/stepper.h"
#include "train/trained_set.h"

namespace graft {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct Trainer::Impl {
  std::unique_ptr<train::Subject> subject;
  TrainingArguments args;
  std::shared_ptr<ProcessGroup> group;
  std::shared_ptr<const TrainingData> data;
  int64_t updates_per_epoch, max_steps;
  train::Schedule schedule;
  train::TrainedSet trained;
  std::unique_ptr<train::Stepper> stepper;
  std::unique_ptr<train::ShardedBase> base;  // with zero_stage 3, once there is work to do
  bool gathered = false;                     // it was there, and is no more
  std::shared_ptr<const TrainingData> eval_data;
  std::optional<train::Evaluator> evaluator;
  train::Callbacks callbacks;
  std::function<void(const TrainingStep&)> on_step = [](const TrainingStep&) {};
  std::map<const c10::TensorImpl*, uint32_t> versions;  // of buffers, when all processes had the same
  std::string base_model;  // its fingerprint before the first step; only where checkpoints are written
  std::string data_mark, eval_mark;  // of the data, once they are asked for
  std::set<int64_t> forgotten;       // steps whose evaluations do not count

  Impl(std::unique_ptr<train::Subject> what, TrainingArguments arguments,
       std::shared_ptr<const TrainingData> batches)
      : subject(std::move(what)),
        args(checked(std::move(arguments), *subject)),
        group(train::processes_of(args)),
        data(checked(std::move(batches))),
        updates_per_epoch(1 + (data->batches() - 1) / args.gradient_accumulation_steps),
        max_steps(train::count_steps(args, updates_per_epoch)),
        schedule(args.lr_scheduler_type, args.learning_rate,
                 train::warmup_count(args.warmup_steps, max_steps), max_steps),
        trained(*subject),
        stepper(train::make_stepper(*subject, args)) {
    if (args.gradient_checkpointing) subject->model().gradient_checkpointing_enable();
  }

  static TrainingArguments checked(TrainingArguments given, const train::Subject& subject) {
    train::check_arguments(given);
    if (given.zero_stage != 3) return given;
    train::refuse_without_frozen_weights(subject);
    // The weights come and go between regions: a program over the whole would need all of them at once.
    if (train::processes_of(given)->size() > 1) given.compile.regional = true;
    return given;
  }

  static std::shared_ptr<const TrainingData> checked(std::shared_ptr<const TrainingData> data) {
    if (given(data, "[train] the data")->batches() < 1)
      throw UsageError("[train] the data have no batch: batches() gives " + std::to_string(data->batches()));
    return data;
  }

  /// As transformers' Trainer, which makes its optimizer in train(): what counts is what is active by then.
  void find_trained() {
    if (trained.is_of(*subject)) return;
    trained = train::TrainedSet(*subject);
    stepper = train::make_stepper(*subject, args);
  }

  /// With zero_stage 3 from now on the model has its frozen weights only while they are used. Not before the
  /// first work: what is done to adapters until then may read them, and they are still the mapped file's.
  void share_out() {
    remember_base();
    if (args.zero_stage == 3 && !base && group->size() > 1)
      base = std::make_unique<train::ShardedBase>(*subject, group);
  }

  /// While the base's weights are all here, and as they were given.
  void remember_base() {
    if (base_model.empty() && !args.output_dir.empty() && group->is_main())
      base_model = train::base_fingerprint(subject->model());
  }

  train::RunIdentity identity() {
    if (data_mark.empty()) data_mark = train::mark_of(*data);
    if (eval_data && eval_mark.empty()) eval_mark = train::mark_of(*eval_data);
    return {base_model, train::arguments_json(args, max_steps, data->batches(), data_mark, eval_mark)};
  }

  /// Losses on other data cannot be compared: those that were evaluated before do not count.
  void check_evaluations(const train::SavedRun& saved) {
    if (!train::evaluates_on_other_data(saved.identity.arguments, identity().arguments)) return;
    for (const auto& step : saved.log)
      if (step.eval) forgotten.insert(step.step);
    if (!forgotten.empty() && eval_data && group->is_main())
      log_warning(
          "[train] the data to evaluate on are others than in the run that is resumed: its evaluations are "
          "not "
          "compared with those that come");
  }

  /// The best is one that can be loaded: a checkpoint may have been removed or damaged meanwhile.
  train::Standing standing_on_disk(const std::vector<TrainingStep>& log,
                                   const std::optional<train::RunFolder>& folder) {
    auto standing = standing_of(log);
    if (!args.load_best_model_at_end || !folder) return standing;
    while (standing.best_step && *standing.best_step != log.back().step) {
      const auto step = *standing.best_step;
      const auto why = folder->trouble_with(step);
      const auto broken = at::scalar_tensor(static_cast<int64_t>(why.empty() ? 0 : 1), at::kLong);
      group->all_reduce(broken);
      if (broken.item<int64_t>() == 0) break;
      if (group->is_main())
        log_warning("[train] " + folder->checkpoint(step).string() +
                    ", the model of the best evaluation, cannot be loaded: " + why +
                    ". It does not count any more; the best of the others is kept");
      forgotten.insert(step);
      standing = standing_of(log);
    }
    return standing;
  }

  train::Standing standing_of(const std::vector<TrainingStep>& log) const {
    return train::standing_of(log, args.early_stopping_threshold, forgotten);
  }

  /// Continuing on another base would give an adapter that fits neither.
  void check_identity(const train::SavedRun& saved) {
    const auto now = identity();
    train::warn_of_other_arguments(saved.identity.arguments, now.arguments);
    if (!saved.identity.base.empty() && saved.identity.base != now.base)
      throw UsageError("[train] the base model is not the one that " + saved.dir.string() +
                       " was trained on (or has another dtype): resume with that one, or begin a new run in "
                       "another folder");
  }

  /// The batches of one step; fewer at the end of an epoch.
  std::vector<ModelInputs> batches_of(int64_t step) const {
    const int64_t epoch = step / updates_per_epoch, update = step % updates_per_epoch;
    const int64_t first = update * args.gradient_accumulation_steps;
    std::vector<ModelInputs> batches;
    const int64_t end = first + std::min(args.gradient_accumulation_steps, data->batches() - first);
    for (int64_t i = first; i < end; ++i)
      batches.push_back(train::rows_of(train::ready_for(subject->model(), data->batch(epoch, i)),
                                       group->rank(), group->size()));
    return batches;
  }

  double epoch_after(int64_t step) const {
    const int64_t first = (step % updates_per_epoch) * args.gradient_accumulation_steps;
    const int64_t batch = first + std::min(args.gradient_accumulation_steps, data->batches() - first);
    const int64_t epochs_done = step / updates_per_epoch;
    return static_cast<double>(epochs_done) +
           static_cast<double>(batch) / static_cast<double>(data->batches());
  }

  /// `skipped` steps before it changed nothing: the schedule does not count them.
  TrainingStep do_step(int64_t step, int64_t skipped, const TrainerState& state) {
    const auto start = Clock::now();
    check_trained();
    TrainingStep done{.step = step + 1,
                      .max_steps = max_steps,
                      .epoch = epoch_after(step),
                      .learning_rate = schedule.learning_rate(step - skipped)};
    const auto batches = batches_of(step);
    std::vector<int64_t> counts;
    counts.reserve(batches.size());
    for (const auto& batch : batches) {
      counts.push_back(train::judged(subject->model(), batch));
      done.tokens += train::size_of(batch);
    }
    const auto sums = at::tensor({std::accumulate(counts.begin(), counts.end(), int64_t{0}), done.tokens});
    group->all_reduce(sums);
    const auto labels = sums[0].item<int64_t>();
    done.tokens = sums[1].item<int64_t>();
    if (labels == 0)
      throw UsageError("[train] the batches of step " + std::to_string(step + 1) +
                       " have no label that counts (all are -100)");
    const auto computing = Clock::now();
    const auto stepped = stepper->step(batches, counts, labels, done.learning_rate, step);
    done.compute_seconds = seconds_since(computing);
    if (base) base->release();
    buffers_from_first();
    if (!std::isfinite(stepped.loss)) not_finite("loss", stepped.loss, step);
    if (stepped.grad_norm && !std::isfinite(*stepped.grad_norm))
      not_finite("norm of the gradients", *stepped.grad_norm, step);
    done.loss = stepped.loss;
    done.grad_norm = stepped.grad_norm;
    done.skipped = stepped.skipped;
    if (!done.skipped) callbacks.call(&TrainerCallback::on_optimizer_step, state);
    done.seconds = seconds_since(start);
    return done;
  }

  /// Running statistics are of each process's own rows: those of the first count, as in torch's
  /// DistributedDataParallel.
  void buffers_from_first() {
    if (group->size() == 1) return;
    for (const auto& buffer : subject->module()->buffers()) {
      auto& seen = versions[buffer.unsafeGetTensorImpl()];
      if (seen != buffer._version()) group->broadcast(buffer, 0);
      seen = buffer._version();
    }
  }

  /// Whatever the processes began with, they continue with the first one's.
  void all_from_first() {
    if (group->size() == 1) return;
    for (const auto& each : subject->tensors()) group->broadcast(each.tensor, 0);
    for (const auto& buffer : subject->module()->buffers()) {
      group->broadcast(buffer, 0);
      versions[buffer.unsafeGetTensorImpl()] = buffer._version();
    }
  }

  [[noreturn]] void not_finite(const std::string& what, double value, int64_t step) const {
    throw Error("[train] the " + what + " is " + shown(value) + " at step " + std::to_string(step + 1) +
                " of " + std::to_string(max_steps) +
                ". Lower the learning rate, clip gradients, or look at the batch");
  }

  /// Frozen tensors are left alone; but several processes wait for everybody's gradients of all.
  void check_trained() const { trained.check(*subject, /*may_freeze=*/group->size() == 1); }

  /// The loss does not always tell: on some CPUs ATen's attention makes zeros of NaN.
  void check_weights(const std::vector<TrainingStep>& log) const {
    check_trained();
    for (const auto& each : subject->tensors())
      if (!each.tensor.isfinite().all().item<bool>())
        throw Error("[train] " + each.name + " has NaN or infinity in it at step " +
                    std::to_string(log.size()) + " of " + std::to_string(max_steps) +
                    ". Lower the learning rate, clip gradients, or look at the batches");
  }

  /// The steps done before.
  std::vector<TrainingStep> prepare(std::optional<train::RunFolder>& folder, bool resume) {
    at::manual_seed(args.seed);
    if (args.output_dir.empty()) {
      if (resume) throw UsageError("[train] to resume, output_dir must say where the checkpoints are");
      return {};
    }
    if (group->is_main()) folder.emplace(args.output_dir);
    group->barrier();  // the others look only when the folder is tidy
    if (!group->is_main()) folder.emplace(args.output_dir, /*writes=*/false);
    remember_base();
    std::vector<TrainingStep> log;
    if (resume) {
      if (const auto saved = folder->last()) {
        if (group->is_main()) check_identity(*saved);
        check_evaluations(*saved);
        subject->load_to_resume(saved->dir);
        trained = train::TrainedSet(*subject);
        stepper = train::make_stepper(*subject, args);  // the tensors may be others now
        train::load_state(saved->dir, *subject, *stepper, group->rank());
        log = saved->log;
      } else if (group->is_main()) {
        log_warning("[train] " + args.output_dir.string() +
                    " has no checkpoint to resume from yet: the run starts at the beginning");
      }
    } else if (folder->has_checkpoints()) {
      throw UsageError(
          "[train] " + args.output_dir.string() +
          " has checkpoints of another run: continue from them (--resume, or train(true)), remove "
          "them, or choose another folder");
    }
    check_same_position(log.size());
    if (group->is_main()) folder->begin_metrics(log);
    return log;
  }

  /// To make an adapter again may need the weights it is on.
  void load(const std::filesystem::path& dir) {
    if (base && subject->load_in_place(dir)) return;
    if (base) base->gather();
    subject->load(dir);
    if (base) base->release();
  }

  void check_same_position(size_t step) {
    const auto all = group->all_gather(at::scalar_tensor(static_cast<int64_t>(step), at::kLong));
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank].item<int64_t>() != all[0].item<int64_t>())
        throw Error("[train] rank 0 continues from step " + std::to_string(all[0].item<int64_t>()) +
                    " and rank " + std::to_string(rank) + " from step " +
                    std::to_string(all[rank].item<int64_t>()) +
                    ": all processes must see the same output folder");
  }

  EvalMetrics evaluate(const TrainingData& on) {
    if (!gathered) share_out();
    if (!evaluator) evaluator.emplace(*subject, args);
    auto metrics = evaluator->evaluate(on);
    if (base) base->release();
    return metrics;
  }

  void save(const train::RunFolder& folder, const std::vector<TrainingStep>& log) {
    check_weights(log);
    const auto state = train::step_state(*stepper, *group);
    if (!group->is_main()) return;
    folder.save(log.back().step, log, identity(),
                [&](const auto& dir) { train::save_state(dir, *subject, state); });
  }

  void keep_checkpoint(const std::optional<train::RunFolder>& folder, const std::vector<TrainingStep>& log,
                       const train::Standing& standing) {
    if (!folder) throw UsageError("[train] a callback asked for a checkpoint, and there is no output_dir");
    save(*folder, log);
    const auto spared = args.load_best_model_at_end ? standing.best_step : std::nullopt;
    if (args.save_total_limit && group->is_main()) folder->keep_last(*args.save_total_limit, spared);
  }

  TrainerState state_of(const std::vector<TrainingStep>& log, const train::Standing& standing) const {
    TrainerState state{.global_step = static_cast<int64_t>(log.size()),
                       .max_steps = max_steps,
                       .best_global_step = standing.best_step,
                       .log_history = log,
                       .is_world_process_zero = group->is_main()};
    if (standing.best_step) state.best_metric = standing.best_loss;
    if (log.empty()) return state;
    state.epoch = log.back().epoch;
    state.loss = log.back().loss;
    state.learning_rate = log.back().learning_rate;
    state.grad_norm = log.back().grad_norm;
    return state;
  }

  static bool is_time(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

  /// What follows a step: evaluation, what is kept on disk of it, and the callbacks.
  void after_step(std::vector<TrainingStep>& log, train::Standing& standing,
                  std::optional<train::RunFolder>& folder) {
    auto& done = log.back();
    auto& control = callbacks.control;
    control.should_evaluate |= is_time(args.eval_steps, done.step);
    const bool ends_epoch = done.step % updates_per_epoch == 0;
    control.should_save |=
        folder && ((args.save_strategy == "steps" && is_time(args.save_steps, done.step)) ||
                   (args.save_strategy == "epoch" && ends_epoch));
    control.should_log = true;
    auto state = state_of(log, standing);
    callbacks.call(&TrainerCallback::on_step_end, state);
    if (ends_epoch) callbacks.call(&TrainerCallback::on_epoch_end, state);
    callbacks.agree();
    if (std::exchange(control.should_evaluate, false)) {
      if (!eval_data)
        throw UsageError(
            "[train] a callback asked for an evaluation, and there is no data: see evaluate_on()");
      done.eval = evaluate(*eval_data);
      standing = standing_of(log);
      control.should_save |= args.load_best_model_at_end && standing.best_step == done.step;
      state = state_of(log, standing);
      callbacks.call(&TrainerCallback::on_evaluate, state, *done.eval);
    }
    if (folder && group->is_main()) folder->add_metrics(done);
    if (control.should_log) callbacks.call(&TrainerCallback::on_log, state, done);
    callbacks.agree();
    if (std::exchange(control.should_save, false)) {
      keep_checkpoint(folder, log, standing);
      callbacks.call(&TrainerCallback::on_save, state);
    }
    on_step(done);
    callbacks.agree();
  }

  TrainOutput train(bool resume) {
    try {
      return train_all(resume);
    } catch (const std::exception& error) {
      group->fail(error.what());  // else the others would wait for this process
      throw;
    }
  }

  TrainOutput train_all(bool resume) {
    if (args.eval_steps > 0 && !eval_data)
      throw UsageError("[train] eval_steps are given and no data to evaluate on: see evaluate_on()");
    std::optional<train::RunFolder> folder;
    find_trained();
    forgotten.clear();
    auto log = prepare(folder, resume);
    all_from_first();
    share_out();
    TrainOutput out;
    auto standing = standing_on_disk(log, folder);
    callbacks.begin(group);
    callbacks.call(&TrainerCallback::on_train_begin, state_of(log, standing));
    callbacks.agree();
    do_steps(log, standing, folder, out);
    check_weights(log);
    const bool asked = callbacks.control.should_training_stop && std::ssize(log) < max_steps;
    out.stopped_early = has_waited_enough(standing) || asked;
    group->barrier();  // the first has written all
    standing = standing_on_disk(log, folder);
    out.best_step = standing.best_step;
    if (standing.best_step) out.best_metric = standing.best_loss;
    if (args.load_best_model_at_end && standing.best_step && *standing.best_step != log.back().step)
      load(folder->checkpoint(*standing.best_step));
    if (folder && group->is_main()) folder->write_page(train::to_html(train::page_of(log, *subject, args)));
    callbacks.call(&TrainerCallback::on_train_end, state_of(log, standing));
    out.global_step = static_cast<int64_t>(log.size());
    out.training_loss = std::accumulate(out.losses.begin(), out.losses.end(), 0.0) /
                        static_cast<double>(std::max<size_t>(1, out.losses.size()));
    out.steps = std::move(log);
    return out;
  }

  void do_steps(std::vector<TrainingStep>& log, train::Standing& standing,
                std::optional<train::RunFolder>& folder, TrainOutput& out) {
    const train::ModuleMode mode(*subject->module(), /*training=*/true);
    for (const auto& step : log) out.losses.push_back(step.loss);
    auto skipped = std::count_if(log.begin(), log.end(), [](const auto& each) { return each.skipped; });
    const auto first = static_cast<int64_t>(log.size());
    for (auto step = first; step < max_steps && !has_waited_enough(standing); ++step) {
      if (callbacks.control.should_training_stop) break;
      const auto state = state_of(log, standing);
      if (step == first || step % updates_per_epoch == 0)
        callbacks.call(&TrainerCallback::on_epoch_begin, state);
      callbacks.call(&TrainerCallback::on_step_begin, state);
      log.push_back(do_step(step, skipped, state));
      skipped += log.back().skipped ? 1 : 0;
      out.losses.push_back(log.back().loss);
      out.step_seconds.push_back(log.back().seconds);
      after_step(log, standing, folder);
    }
  }

  bool has_waited_enough(const train::Standing& standing) const {
    return args.early_stopping_patience > 0 && standing.no_better >= args.early_stopping_patience;
  }
};

Trainer::Trainer(std::shared_ptr<PeftModel> model, TrainingArguments arguments,
                 std::shared_ptr<const TrainingData> data)
    : impl_(std::make_unique<Impl>(train::train_adapters(std::move(model)), std::move(arguments),
                                   std::move(data))) {}
Trainer::Trainer(std::shared_ptr<PreTrainedModel> model, TrainingArguments arguments,
                 std::shared_ptr<const TrainingData> data)
    : impl_(std::make_unique<Impl>(train::train_all(std::move(model)), std::move(arguments),
                                   std::move(data))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer::Impl& Trainer::impl() const { return behind(impl_, "[train] this Trainer"); }

TrainOutput Trainer::train(bool resume) { return impl().train(resume); }
EvalMetrics Trainer::evaluate(const TrainingData& data) { return impl().evaluate(data); }
void Trainer::evaluate_on(std::shared_ptr<const TrainingData> data) {
  impl().eval_data = std::move(data);
  impl().eval_mark.clear();
}
void Trainer::save_model(const std::filesystem::path& dir) const { impl().subject->save(dir); }
void Trainer::add_callback(std::shared_ptr<TrainerCallback> callback) {
  impl().callbacks.add(std::move(callback));
}
void Trainer::on_step(std::function<void(const TrainingStep&)> callback) {
  impl().on_step = callback ? std::move(callback) : [](const TrainingStep&) {};
}
void Trainer::gather_weights() {
  auto& me = impl();
  if (!me.base) return;
  me.base->gather();
  me.group->barrier();  // until then the others need this process's share
  me.base.reset();
  me.gathered = true;
}
BaseMemory Trainer::base_memory() const {
  const auto& me = impl();
  if (!me.base) return {};
  return {me.base->whole_bytes(), me.base->held_bytes(), me.base->peak_bytes()};
}
int64_t Trainer::max_steps() const { return impl().max_steps; }

}  // namespace graft
