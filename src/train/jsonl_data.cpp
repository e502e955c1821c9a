// Rows of a JSONL file as batches: shuffled for each epoch, padded to the longest row of a batch.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "graft/error.h"
#include "graft/trainer.h"
#include "io/format/mapped_file.h"
#include "io/format/quote.h"
#include "models/heads.h"
#include "nn/loss.h"
#include "support/hash.h"
#include "support/log.h"
#include "train/jsonl_row.h"

namespace graft {
namespace {

using train::Example;

class Rows : public TrainingData {
 public:
  Rows(std::vector<Example> examples, const JsonlOptions& options, int64_t pad)
      : examples_(std::move(examples)), options_(options), pad_(pad) {
    for (const auto& each : examples_) has_types_ |= !each.token_type_ids.empty();
    has_tasks_ = !examples_.empty() && examples_[0].task_id.has_value();
    for (const auto& each : examples_)
      if (each.task_id.has_value() != has_tasks_)
        throw FormatError("[train] some rows have \"task_ids\" and some have none: give all of them one");
  }

  int64_t batches() const override {
    return (static_cast<int64_t>(examples_.size()) + options_.batch_size - 1) / options_.batch_size;
  }

  ModelInputs batch(int64_t epoch, int64_t index) const override {
    const auto order = order_of(epoch);
    const auto first = static_cast<size_t>(index * options_.batch_size);
    const auto last = std::min(first + static_cast<size_t>(options_.batch_size), examples_.size());
    std::vector<const Example*> rows;
    for (size_t i = first; i < last; ++i) rows.push_back(&examples_[static_cast<size_t>((*order)[i])]);
    return together(rows);
  }

  std::string fingerprint() const override {
    std::string all = std::to_string(options_.batch_size) + " " +
                      std::to_string(options_.pad_to_multiple_of) + " " + std::to_string(pad_) +
                      (options_.shuffle ? " by " + std::to_string(options_.seed) : "");
    for (const auto& each : examples_) {
      all += hex(hash128({bytes_of(each.input_ids), bytes_of(each.token_type_ids),
                          std::to_string(each.task_id.value_or(-1)), std::to_string(each.labels.index()),
                          std::visit([](const auto& labels) { return bytes_of(labels); }, each.labels)}));
    }
    return hex(hash128({all}));
  }

 private:
  template <class T>
  static std::string_view bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  template <class T>
  static std::string_view bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  /// The permutation that Accelerate's sampler draws for this seed and epoch, so that the order is that of
  /// transformers' Trainer.
  std::shared_ptr<const std::vector<int64_t>> order_of(int64_t epoch) const {
    const std::lock_guard<std::mutex> lock(guard_);
    if (order_ && order_epoch_ == epoch) return order_;
    auto order = std::make_shared<std::vector<int64_t>>(examples_.size());
    if (options_.shuffle) {
      const auto drawn = at::randperm(
          static_cast<int64_t>(examples_.size()),
          at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch)), at::kLong);
      std::copy_n(drawn.const_data_ptr<int64_t>(), order->size(), order->begin());
    } else {
      std::iota(order->begin(), order->end(), 0);
    }
    order_ = order;
    order_epoch_ = epoch;
    return order_;
  }

  using Values = std::function<const std::vector<int64_t>&(const Example&)>;

  /// Of the longest row, rounded up.
  int64_t width_of(const std::vector<const Example*>& rows, const Values& values) const {
    size_t longest = 0;
    for (const auto* row : rows) longest = std::max(longest, values(*row).size());
    const auto multiple = options_.pad_to_multiple_of;
    return (static_cast<int64_t>(longest) + multiple - 1) / multiple * multiple;
  }

  static at::Tensor table(const std::vector<const Example*>& rows, int64_t width, int64_t fill,
                          const Values& values) {
    auto made = at::full({static_cast<int64_t>(rows.size()), width}, fill, at::kLong);
    auto* to = made.mutable_data_ptr<int64_t>();
    for (const auto* row : rows) {
      std::copy(values(*row).begin(), values(*row).end(), to);
      to += width;
    }
    return made;
  }

  ModelInputs together(const std::vector<const Example*>& rows) const {
    const Values ids = [](const Example& row) -> const auto& { return row.input_ids; };
    const Values types = [](const Example& row) -> const auto& { return row.token_type_ids; };
    const Values labels = [](const Example& row) -> const auto& {
      return std::get<std::vector<int64_t>>(row.labels);
    };
    const auto width = width_of(rows, ids);
    ModelInputs batch{.input_ids = table(rows, width, pad_, ids)};
    // By lengths: a row may hold the pad token.
    std::vector<int64_t> lengths;
    lengths.reserve(rows.size());
    for (const auto* row : rows) lengths.push_back(static_cast<int64_t>(row->input_ids.size()));
    batch.attention_mask = at::arange(width).lt(at::tensor(lengths).unsqueeze(1)).to(at::kLong);
    if (has_types_) batch.token_type_ids = table(rows, width, 0, types);
    if (has_tasks_) {
      std::vector<int64_t> tasks;
      tasks.reserve(rows.size());
      for (const auto* row : rows) tasks.push_back(*row->task_id);
      batch.task_ids = at::tensor(tasks);
    }
    // An encoder-decoder's labels are as long as they are; it makes its decoder's inputs of them.
    if (std::holds_alternative<std::vector<int64_t>>(rows[0]->labels))
      batch.labels = table(rows, width_of(rows, labels), nn::kIgnoredLabel, labels);
    else
      batch.labels = row_labels(rows);
    return batch;
  }

  static at::Tensor row_labels(const std::vector<const Example*>& rows) {
    std::vector<at::Tensor> each;
    for (const auto* row : rows) {
      if (const auto* number = std::get_if<int64_t>(&row->labels))
        each.push_back(at::scalar_tensor(*number, at::kLong));
      else if (const auto* value = std::get_if<double>(&row->labels))
        each.push_back(at::scalar_tensor(*value, at::kFloat));
      else
        each.push_back(at::tensor(std::get<std::vector<double>>(row->labels)).to(at::kFloat));
    }
    return at::stack(each);
  }

  std::vector<Example> examples_;
  JsonlOptions options_;
  int64_t pad_;
  bool has_types_ = false, has_tasks_ = false;
  mutable std::mutex guard_;
  mutable int64_t order_epoch_ = -1;
  mutable std::shared_ptr<const std::vector<int64_t>> order_;
};

/// Calls `use` with each line that is not blank, and its number counted from 1.
void each_line(std::string_view text, const std::function<void(std::string_view, int64_t)>& use) {
  int64_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) use(line, number);
  }
}

}  // namespace

std::shared_ptr<const TrainingData> read_jsonl(const std::filesystem::path& path,
                                               const PreTrainedModel& model,
                                               const std::filesystem::path& tokenizer,
                                               const JsonlOptions& options) {
  if (options.batch_size < 1) throw UsageError("[train] the batch size must be at least 1");
  if (options.pad_to_multiple_of < 1) throw UsageError("[train] pad_to_multiple_of must be at least 1");
  const io::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  train::RowReader reader(model, tokenizer, options);
  std::vector<Example> examples;
  int64_t bad = 0;
  std::string first_bad;
  each_line(text, [&](std::string_view line, int64_t number) {
    try {
      auto example = reader.read(line);
      // Numbers per class in one row and a class in the next are two different tasks.
      if (!examples.empty() && examples[0].labels.index() != example.labels.index())
        throw FormatError("its label is of another kind than that of the rows before");
      examples.push_back(std::move(example));
    } catch (const FormatError& error) {
      const auto what = "line " + std::to_string(number) + ": " + error.what();
      if (!options.skip_bad_rows)
        throw FormatError("[data] " + io::quote_path(path) + ", " + what +
                          ". Correct the row, or leave bad rows out with --skip-bad-rows");
      if (bad++ == 0) first_bad = what;
    }
  });
  if (examples.empty())
    throw FormatError("[data] " + io::quote_path(path) +
                      (bad > 0 ? " has only bad rows; the first: " + first_bad : " has no rows"));
  if (bad > 0)
    log_warning("[data] " + io::quote_path(path) + ": " + std::to_string(bad) + " bad rows of " +
                std::to_string(bad + static_cast<int64_t>(examples.size())) +
                " are left out; the first: " + first_bad);
  if (options.on_skipped) options.on_skipped(bad);
  const auto pad = pad_token(model.config(), {}).value_or(0);
  return std::make_shared<Rows>(std::move(examples), options, std::max<int64_t>(0, pad));
}

}  // namespace graft
