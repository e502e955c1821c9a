// Continuous batching: one compiled step over rows that are at different places of different requests.
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>

#include "adapters/method.h"
#include "generation/choice.h"
#include "generation/one_at_a_time.h"
#include "generation/static_steps.h"
#include "generation/stops.h"
#include "graft/error.h"
#include "models/architecture.h"
#include "nn/row_cache.h"
#include "support/counted.h"
#include "support/given.h"
#include "support/memory.h"

namespace graft {
using generation::AdapterModelCall;
using generation::last_logits;
using generation::Runner;

namespace {

constexpr auto kBase = "__base__", kBatch = "[batch] this BatchGenerator";

/// A request, waiting or at work.
struct Work {
  Work(int64_t number, const generation::Prompt& prompt, BatchRequest request)
      : id(number),
        ids(std::move(request.input_ids)),
        prompt_length(prompt.length()),
        total(prompt.max_length()),
        stops(request.config, std::move(request.tokenizer)),
        choose(request.config, prompt.score_context()),
        adapter(std::move(request.adapter_name)),
        on_token(std::move(request.on_token)),
        on_error(std::move(request.on_error)) {}

  int64_t id;
  std::vector<int64_t> ids;  ///< the prompt and what was added
  int64_t prompt_length, total;
  generation::Stops stops;
  bool invoked = false;  ///< its prompt has its aLoRA's invocation tokens
  generation::Choice choose;
  std::string adapter;
  std::function<bool(const BatchToken&)> on_token;
  std::function<void(const std::exception_ptr&)> on_error;

  /// The last token is not in the cache: it is what the next step runs.
  int64_t column() const { return static_cast<int64_t>(ids.size()) - 1; }

  int64_t chosen(const at::Tensor& logits) {
    const auto so_far = at::tensor(ids, at::TensorOptions(at::kLong).device(logits.device())).unsqueeze(0);
    return choose(choose.scores()(logits, so_far)).item<int64_t>();
  }

  std::optional<Finish> add(int64_t token) {
    ids.push_back(token);
    if (stops.ended_by(ids)) return Finish::stop;
    if (static_cast<int64_t>(ids.size()) == total || stops.late()) return Finish::length;
    return {};
  }
};

/// What a token of a row takes in the cache at least: a config may have other names, and a model more heads
/// than it says.
double least_bytes(const PreTrainedModel& model) {
  const auto size = [&](std::initializer_list<std::string_view> keys) -> double {
    for (const auto key : keys)
      if (const auto value = model.config().optional_integer(key)) return static_cast<double>(*value);
    return 1;
  };
  const double heads = size({"num_attention_heads", "n_head"});
  const double by_heads = heads > 1 ? size({"hidden_size", "n_embd"}) / heads : 1;
  const double width = model.config().has("head_dim") ? size({"head_dim"}) : by_heads;
  return 2 * static_cast<double>(c10::elementSize(model.dtype())) * std::max(width, 1.0) *
         size({"num_key_value_heads"}) * size({"num_hidden_layers", "n_layer"});
}

/// Before any of it is asked for. What a GPU has is not known here, but no row costs the host nothing.
void check_size(const PreTrainedModel& model, const BatchOptions& options) {
  if (options.capacity > INT32_MAX)
    throw UsageError("[batch] a capacity of " + std::to_string(options.capacity) +
                     " tokens is more than can be counted: lower it");
  const double of_a_token = model.device().is_cpu() ? least_bytes(model) : 1;
  check_memory(of_a_token * static_cast<double>(options.rows) * static_cast<double>(options.capacity),
               "the cache for " + std::to_string(options.rows) + " rows of " +
                   std::to_string(options.capacity) + " tokens takes",
               "lower the rows or the capacity");
}

std::vector<int64_t> checked_buckets(const PreTrainedModel& model, const BatchOptions& options) {
  const auto need = [](bool holds, const std::string& what, int64_t value) {
    if (!holds) throw UsageError("[batch] " + what + ", got " + std::to_string(value));
  };
  need(options.rows > 0, "rows must be above 0", options.rows);
  need(options.capacity > 0, "capacity must be above 0", options.capacity);
  check_size(model, options);
  auto buckets = options.buckets;
  if (buckets.empty()) {
    constexpr int64_t first = 64, times = 4;
    for (int64_t size = first; size < options.capacity; size *= times) buckets.push_back(size);
  }
  std::sort(buckets.begin(), buckets.end());
  for (const auto size : buckets) {
    need(size > 0, "a bucket must be above 0", size);
    need(size <= options.capacity, "a bucket must be at most the capacity", size);
  }
  if (buckets.empty() || buckets.back() < options.capacity) buckets.push_back(options.capacity);
  return buckets;
}

void check_model(const PreTrainedModel& model, const BatchOptions& options) {
  const auto task = find_architecture(model.architecture()).task;
  if (task == Task::seq2seq_lm)
    throw UsageError("[batch] " + model.architecture() +
                     " is an encoder-decoder, whose cache has no rows at positions of their own: use "
                     "generate()");
  if (task != Task::causal_lm)
    throw UsageError("[batch] " + model.architecture() +
                     " has no head for the next token: load it by AutoModelForCausalLM::from_pretrained");
  const auto limit = model.rotation_limit();
  if (limit && options.capacity > *limit)
    throw UsageError("[batch] beyond " + std::to_string(*limit) +
                     " tokens this model's rotary positions change with the longest row, so that requests "
                     "would change each other: lower the capacity to that, from " +
                     std::to_string(options.capacity));
}

}  // namespace

struct BatchGenerator::Impl {
  Impl(Runner with, const BatchOptions& options)
      : runner(std::move(with)),
        capacity(options.capacity),
        buckets(checked_buckets(*runner.model, options)),
        cache(std::make_shared<nn::RowCache>(options.rows, options.capacity)),
        rows(static_cast<size_t>(options.rows)),
        kind(runner.model->dtype(), runner.model->device()) {
    check_model(*runner.model, options);
  }

  Runner runner;
  int64_t capacity;
  std::vector<int64_t> buckets;
  std::map<int64_t, AdapterModelCall> programs;  ///< by bucket
  std::shared_ptr<nn::RowCache> cache;
  std::vector<std::unique_ptr<Work>> rows;     ///< none: free
  std::pair<at::ScalarType, at::Device> kind;  ///< the model's when the cache was last used
  std::exception_ptr failure;                  ///< the first of this step that no on_error took
  std::atomic<bool> busy = false;              ///< in step() or warm_up()

  mutable std::mutex guard;  ///< of what follows
  std::deque<std::unique_ptr<Work>> waiting;
  std::set<int64_t> at_work;
  int64_t next_id = 1;

  void check_adapter(const std::string& name) const;
  int64_t submit(BatchRequest request);
  bool cancel(int64_t id);
  bool is_wanted(int64_t id) const;
  void ended(int64_t id);

  void fail(std::unique_ptr<Work> work);
  void take(size_t row, int64_t token);
  std::unique_ptr<Work> next_in_line();
  void join(size_t row, std::unique_ptr<Work> work);
  void leave_cancelled();
  void leave_without_adapter();
  at::Tensor run(const std::vector<int64_t>& tokens, const std::vector<int64_t>& columns, int64_t bucket,
                 const std::vector<std::string>& adapters);
  at::Tensor invoked(const std::vector<std::string>& adapters) const;
  void advance();
  void step();
  void warm_up();
  void follow_model();
  bool idle() const;
  at::Tensor tensor(const std::vector<int64_t>& values) const {
    return at::tensor(values, at::kLong).to(runner.model->device());
  }
  std::vector<std::string> names(const std::vector<std::string>& adapters) const {
    return runner.peft ? adapters : std::vector<std::string>();
  }
};

void BatchGenerator::Impl::check_adapter(const std::string& name) const {
  if (!runner.peft) {
    if (name == kBase) return;
    throw UsageError("[batch] the request asks for the adapter \"" + name +
                     "\" and the model has no adapters: use a PeftModel");
  }
  if (!runner.peft->merged_adapters().empty())
    throw UsageError("[batch] adapters cannot be chosen by row while some are merged: unmerge them first");
  if (name == kBase) return;
  // peft_config() refuses names that it does not know.
  const auto& method = adapters::find_method(runner.peft->peft_config(name).peft_type());
  if (method.takes_tasks)
    throw UsageError("[batch] \"" + name + "\" is " + std::string(method.type) +
                     ", which asks for the task of each row: generate with task_ids");
  if (!method.on_layers())
    throw UsageError("[batch] \"" + name +
                     "\" puts tokens before the input, which makes rows longer: generate with it alone");
}

int64_t BatchGenerator::Impl::submit(BatchRequest request) {
  for (const auto& [setting, is_given] :
       {std::pair("prompt_lookup_num_tokens", request.config.prompt_lookup_num_tokens.has_value()),
        {"num_beams", request.config.num_beams > 1},
        {"num_return_sequences", request.config.num_return_sequences > 1}})
    if (is_given)
      throw UsageError(std::string("[batch] a request has one row of the batch, and ") + setting +
                       " needs a call of its own: use generate() or a Decoder");
  const auto ids = tensor(request.input_ids).unsqueeze(0);
  check_adapter(request.adapter_name);
  const auto prompt =
      generation::prepare({.input_ids = ids, .attention_mask = at::ones_like(ids)}, request.config,
                          *runner.model, 0, runner.vocabulary(names({request.adapter_name})));
  if (const int64_t needed = prompt.length() + prompt.new_tokens - 1; needed > capacity)
    throw UsageError("[batch] a prompt of " + counted(prompt.length(), "token") + " and " +
                     counted(prompt.new_tokens, "new one") + " need room for " + std::to_string(needed) +
                     ", and a row has " + std::to_string(capacity) +
                     ": lower max_new_tokens or raise the capacity");
  const std::lock_guard lock(guard);
  waiting.push_back(std::make_unique<Work>(next_id, prompt, std::move(request)));
  return next_id++;
}

bool BatchGenerator::Impl::cancel(int64_t id) {
  const std::lock_guard lock(guard);
  if (at_work.erase(id) > 0) return true;  // its row is freed by the next step
  return std::erase_if(waiting, [&](const auto& work) { return work->id == id; }) > 0;
}

bool BatchGenerator::Impl::is_wanted(int64_t id) const {
  const std::lock_guard lock(guard);
  return at_work.contains(id);
}

void BatchGenerator::Impl::ended(int64_t id) {
  const std::lock_guard lock(guard);
  at_work.erase(id);
}

/// Called while an exception is handled: it is why.
void BatchGenerator::Impl::fail(std::unique_ptr<Work> work) {
  ended(work->id);
  auto why = std::current_exception();
  if (work->on_error) {
    try {
      work->on_error(why);
      return;
    } catch (...) {
      why = std::current_exception();
    }
  }
  if (!failure) failure = why;
}

/// A row's next token.
void BatchGenerator::Impl::take(size_t row, int64_t token) {
  auto& work = rows[row];
  if (!is_wanted(work->id)) return work.reset();
  // The row is free before its last token is told, so that a callback sees things as they are.
  const auto finish = work->add(token);
  if (finish) ended(work->id);
  auto told = std::move(work);
  bool go_on = true;
  try {
    if (told->on_token) go_on = told->on_token({told->id, token, finish});
  } catch (...) {
    return fail(std::move(told));
  }
  if (finish) return;
  if (go_on)
    rows[row] = std::move(told);
  else
    ended(told->id);
}

std::unique_ptr<Work> BatchGenerator::Impl::next_in_line() {
  const std::lock_guard lock(guard);
  if (waiting.empty()) return nullptr;
  auto work = std::move(waiting.front());
  waiting.pop_front();
  at_work.insert(work->id);
  return work;
}

/// The prompt is run alone, and what it leaves in the cache goes into the row.
void BatchGenerator::Impl::join(size_t row, std::unique_ptr<Work> work) {
  int64_t token = 0;
  try {
    check_adapter(work->adapter);
    const auto positions = at::arange(work->prompt_length, at::kLong).to(runner.model->device());
    const auto ids = tensor(work->ids).unsqueeze(0);
    if (runner.peft)
      if (const auto since = runner.peft->alora_offsets(ids, {{work->adapter}}); since.defined())
        work->invoked = since.item<int64_t>() > 0;
    const auto logits =
        last_logits(runner.eager({.input_ids = ids,
                                  .position_ids = positions.unsqueeze(0),
                                  .past_key_values = cache->joining(static_cast<int64_t>(row))},
                                 names({work->adapter})));
    token = work->chosen(logits);
  } catch (...) {
    return fail(std::move(work));
  }
  rows[row] = std::move(work);
  take(row, token);
}

void BatchGenerator::Impl::leave_cancelled() {
  for (auto& work : rows)
    if (work && !is_wanted(work->id)) work.reset();
}

void BatchGenerator::Impl::leave_without_adapter() {
  for (auto& work : rows) {
    if (!work || work->adapter == kBase) continue;
    try {
      check_adapter(work->adapter);
    } catch (...) {
      fail(std::move(work));
    }
  }
}

/// Whether each row's aLoRA works on its next token; undefined where no row has one.
at::Tensor BatchGenerator::Impl::invoked(const std::vector<std::string>& adapters) const {
  const auto one = tensor({0}).unsqueeze(0).expand({static_cast<int64_t>(adapters.size()), 1});
  if (!runner.peft || !runner.peft->alora_offsets(one, {adapters}).defined()) return {};
  std::vector<int64_t> flags;
  flags.reserve(rows.size());
  for (const auto& work : rows) flags.push_back(work && work->invoked);
  return tensor(flags);
}

at::Tensor BatchGenerator::Impl::run(const std::vector<int64_t>& tokens, const std::vector<int64_t>& columns,
                                     int64_t bucket, const std::vector<std::string>& adapters) {
  auto& program = programs[bucket];
  if (!program) program = runner.compiled();
  cache->place(columns, bucket, runner.model->device());
  return last_logits(program({.input_ids = tensor(tokens).unsqueeze(1),
                              .position_ids = tensor(columns).unsqueeze(1),
                              .past_key_values = cache,
                              .alora_offsets = invoked(adapters)},
                             names(adapters)));
}

/// One token more in each row. A free row runs some token at column 0, which the next one to join writes
/// over.
void BatchGenerator::Impl::advance() {
  std::vector<int64_t> tokens(rows.size(), 0), columns(rows.size(), 0);
  std::vector<std::string> adapters(rows.size(), kBase);
  int64_t longest = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row]) continue;
    tokens[row] = rows[row]->ids.back();
    columns[row] = rows[row]->column();
    adapters[row] = rows[row]->adapter;
    longest = std::max(longest, columns[row] + 1);
  }
  if (longest == 0) return;
  const auto logits =
      run(tokens, columns, *std::lower_bound(buckets.begin(), buckets.end(), longest), adapters);
  const auto likeliest = logits.argmax(-1).cpu();
  // All are chosen before any callback may throw.
  for (size_t row = 0; row < rows.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    if (rows[row])
      tokens[row] = rows[row]->choose.takes_the_likeliest() ? likeliest.const_data_ptr<int64_t>()[row]
                                                            : rows[row]->chosen(logits.slice(0, at, at + 1));
  }
  for (size_t row = 0; row < rows.size(); ++row)
    if (rows[row]) take(row, tokens[row]);
}

/// The model may have been moved or cast since the last step.
void BatchGenerator::Impl::follow_model() {
  const std::pair now(runner.model->dtype(), runner.model->device());
  if (now == kind) return;
  cache->cast(kind.first, now.first, now.second);
  kind = now;
}

void BatchGenerator::Impl::step() {
  const generation::OneAtATime only(
      busy,
      "[batch] step() is for one call at a time, and this one comes from a callback of another step or from "
      "another thread: let the callback return");
  const at::NoGradGuard no_grad;
  failure = nullptr;
  leave_cancelled();
  leave_without_adapter();
  follow_model();
  for (size_t row = 0; row < rows.size(); ++row)
    while (!rows[row]) {
      auto work = next_in_line();
      if (!work) break;
      join(row, std::move(work));
    }
  advance();
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

bool BatchGenerator::Impl::idle() const {
  const std::lock_guard lock(guard);
  return waiting.empty() && at_work.empty();
}

void BatchGenerator::Impl::warm_up() {
  if (!idle()) throw UsageError("[batch] warm_up() is for before the first request, and some are at work");
  const generation::OneAtATime only(busy,
                                    "[batch] warm_up() is for before the first request, and this one comes "
                                    "from a callback of a step or from "
                                    "another thread");
  const at::NoGradGuard no_grad;
  leave_cancelled();
  follow_model();
  const std::vector<int64_t> columns(rows.size(), 0);
  const std::vector<std::string> adapters(rows.size(), kBase);
  const auto zero = tensor({0}).unsqueeze(0);
  runner.eager({.input_ids = zero, .position_ids = zero, .past_key_values = cache->joining(0)},
               names({kBase}));
  // A program is compared with eager in its first two calls, on different data.
  for (const auto bucket : buckets)
    for (const int64_t token : {0, 1})
      run(std::vector<int64_t>(rows.size(), token), columns, bucket, adapters);
}

BatchGenerator::BatchGenerator(std::shared_ptr<PreTrainedModel> model, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(
          generation::runner(given(std::move(model), "[batch] the model"), options.compile), options)) {}

BatchGenerator::BatchGenerator(std::shared_ptr<PeftModel> model, const BatchOptions& options)
    : impl_(std::make_unique<Impl>(
          generation::runner(given(std::move(model), "[batch] the model"), options.compile), options)) {}

BatchGenerator::~BatchGenerator() = default;
BatchGenerator::BatchGenerator(BatchGenerator&&) noexcept = default;
BatchGenerator& BatchGenerator::operator=(BatchGenerator&&) noexcept = default;

int64_t BatchGenerator::submit(BatchRequest request) {
  return behind(impl_, kBatch).submit(std::move(request));
}

bool BatchGenerator::cancel(int64_t id) { return behind(impl_, kBatch).cancel(id); }

bool BatchGenerator::step() {
  behind(impl_, kBatch).step();
  return !idle();
}

bool BatchGenerator::idle() const { return behind(impl_, kBatch).idle(); }

void BatchGenerator::warm_up() { behind(impl_, kBatch).warm_up(); }

}  // namespace graft
