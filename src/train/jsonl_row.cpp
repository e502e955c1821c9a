#include "train/jsonl_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graft/error.h"
#include "io/format/json.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "nn/loss.h"
#include "support/log.h"
#include "train/chat_row.h"

namespace graft::train {
using nlohmann::json;

namespace {

[[noreturn]] void refuse(const std::string& what) { throw FormatError(what); }

std::string text_field(const json& row, const char* name) {
  if (!row.contains(name)) refuse(std::string("\"") + name + "\" is missing");
  if (!row[name].is_string()) refuse(std::string("\"") + name + "\" must be a text");
  return row[name].get<std::string>();
}

bool has_messages(const json& row, const char* name) { return row.contains(name) && row[name].is_array(); }

std::vector<int64_t> integers(const json& row, const char* name) {
  const auto& list = row[name];
  const bool fine = list.is_array() && std::all_of(list.begin(), list.end(),
                                                   [](const json& v) { return v.is_number_integer(); });
  if (!fine) refuse(std::string("\"") + name + "\" must be a list of integers");
  return list.get<std::vector<int64_t>>();
}

bool is_all_ones(const json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& v) { return v == 1; });
}

std::optional<int64_t> positions_of(const Config& config) {
  for (const char* key : {"max_position_embeddings", "n_positions"})
    if (config.has(key)) return config.integer(key);
  return {};
}

}  // namespace

RowReader::RowReader(const PreTrainedModel& model, std::filesystem::path folder, const JsonlOptions& options)
    : task_(find_architecture(model.architecture()).task),
      num_labels_(model.config().num_labels()),
      vocab_size_(options.vocab_size.value_or(model.config().integer("vocab_size", 0))),
      positions_(positions_of(model.config())),
      max_length_(options.max_length),
      folder_(std::move(folder)),
      assistant_only_loss_(options.assistant_only_loss) {
  if (task_ == Task::base)
    throw UsageError("[train] " + model.architecture() +
                     " has no head and so no loss; train a checkpoint with a head");
  if (task_ == Task::image_classification)
    throw UsageError("[train] JSONL rows hold text; give images as --tokens with pixel_values");
  if (task_ == Task::seq2seq_lm) positions_.reset();  // what such a config names is no table's length
  if (max_length_ && *max_length_ < 1) throw UsageError("[train] max_length must be at least 1");
  // Where it is a list, generation may stop at any of them; the first ends a training text.
  try {
    eos_ = model.config().optional_integer("eos_token_id");
  } catch (const ConfigError&) {
    if (const auto all = model.config().integers("eos_token_id"); !all.empty()) eos_ = all[0];
  }
}

const Tokenizer& RowReader::tokenizer() {
  if (tokenizer_) return *tokenizer_;
  try {
    tokenizer_ = Tokenizer::from_pretrained(folder_);
  } catch (const Error& error) {
    // Not the row's fault: it must not be skipped as a bad one.
    throw UsageError("[train] the rows have text, and the tokenizer in " + io::quote_path(folder_) +
                     " cannot be used: " + error.what() + ". Give rows with input_ids instead");
  }
  return *tokenizer_;
}

std::vector<int64_t> RowReader::encode(const std::string& text, bool special) {
  return tokenizer().encode(text, {}, special).ids;
}

void RowReader::read_ids(const json& row, Example& example) const {
  // What TRL's tokenised rows say of their tokens would be lost.
  const auto refuse_mask = [&](const char* name) {
    if (const auto mask = row.find(name); mask != row.end() && !is_all_ones(*mask))
      refuse(
          std::string("\"") + name +
          "\" beside \"input_ids\" is not read: leave out what is padding, and give \"labels\" with -100 for "
          "what is not judged");
  };
  refuse_mask("attention_mask");
  if (!row.contains("labels"))
    for (const char* name : {"completion_mask", "assistant_masks"}) refuse_mask(name);
  example.input_ids = integers(row, "input_ids");
  if (row.contains("token_type_ids")) {
    example.token_type_ids = integers(row, "token_type_ids");
    if (example.token_type_ids.size() != example.input_ids.size())
      refuse("\"token_type_ids\" is not as long as \"input_ids\"");
  }
  if (task_ == Task::sequence_classification) return;
  if (row.contains("labels")) {
    auto labels = integers(row, "labels");
    if (task_ != Task::seq2seq_lm && labels.size() != example.input_ids.size())
      refuse("\"labels\" is not as long as \"input_ids\"");
    example.labels = std::move(labels);
  } else if (task_ != Task::causal_lm) {
    refuse("\"labels\" is missing, which only a causal language model can do without");
  } else {
    example.labels = example.input_ids;
  }
}

void RowReader::read_text(const json& row, Example& example) {
  const auto text = text_field(row, "text");
  if (row.contains("text_pair")) {
    auto both = tokenizer().encode(text, text_field(row, "text_pair"));
    example.input_ids = std::move(both.ids);
    example.token_type_ids = std::move(both.type_ids);
  } else {
    example.input_ids = encode(text, true);
  }
  if (task_ == Task::masked_lm || task_ == Task::token_classification)
    refuse("a masked language model and a classifier of tokens need \"input_ids\" with \"labels\"");
  if (task_ == Task::seq2seq_lm) refuse("an encoder-decoder needs \"prompt\" with \"completion\"");
  if (task_ == Task::causal_lm) example.labels = example.input_ids;
}

/// The model is judged by the completion and the end of the text only. An encoder reads the prompt, and the
/// completion is what the decoder is to write, each with the special tokens that its tokenizer adds.
void RowReader::read_completion(const json& row, Example& example) {
  if (has_messages(row, "prompt") || has_messages(row, "completion"))
    refuse("\"prompt\" and \"completion\" must both be texts, or both lists of messages");
  if (task_ != Task::causal_lm && task_ != Task::seq2seq_lm)
    refuse("\"prompt\" with \"completion\" is for causal language models and encoder-decoders");
  example.input_ids = encode(text_field(row, "prompt"), true);
  if (task_ == Task::seq2seq_lm) {
    example.labels = encode(text_field(row, "completion"), true);
    return;
  }
  std::vector<int64_t> labels(example.input_ids.size(), nn::kIgnoredLabel);
  auto completion = encode(text_field(row, "completion"), false);
  if (eos_) completion.push_back(*eos_);
  example.input_ids.insert(example.input_ids.end(), completion.begin(), completion.end());
  labels.insert(labels.end(), completion.begin(), completion.end());
  example.labels = std::move(labels);
}

const ChatTemplate& RowReader::chat() {
  if (chat_) return *chat_;
  try {
    chat_ = ChatTemplate::from_pretrained(folder_);
  } catch (const Error& error) {  // not the row's fault
    throw UsageError(std::string("[train] the rows have messages, which need a chat template: ") +
                     error.what());
  }
  return *chat_;
}

void RowReader::read_messages(std::string_view line, const char* name, Example& example) {
  if (task_ != Task::causal_lm)
    refuse("messages in \"" + std::string(name) + "\" are for causal language models");
  // Once more, since templates may show objects, whose keys then come in the order of the file.
  const auto row = io::parse_ordered_json(line, "the row");
  example = row.contains("messages") ? chat_example(row, chat(), tokenizer(), assistant_only_loss_)
                                     : completion_example(row, chat(), tokenizer());
}

void RowReader::read_class(const json& row, Example& example) const {
  const auto* key = row.contains("label") ? "label" : "labels";
  if (!row.contains(key)) refuse("\"label\" is missing");
  const auto& label = row[key];
  const auto in_range = "an integer from 0 to " + std::to_string(num_labels_ - 1);
  if (num_labels_ == 1) {
    if (!label.is_number()) refuse("\"label\" must be a number");
    example.labels = label.get<double>();
  } else if (label.is_array()) {
    const bool numbers =
        std::all_of(label.begin(), label.end(), [](const json& value) { return value.is_number(); });
    if (!numbers || static_cast<int64_t>(label.size()) != num_labels_)
      refuse("\"label\" must be a list of " + std::to_string(num_labels_) + " numbers, or " + in_range);
    example.labels = label.get<std::vector<double>>();
  } else {
    if (!label.is_number_integer()) refuse("\"label\" must be " + in_range);
    const auto value = label.get<int64_t>();
    if (value < 0 || value >= num_labels_)
      refuse("\"label\" is " + std::to_string(value) + " and must be " + in_range);
    example.labels = value;
  }
}

void RowReader::check(const Example& example) const {
  const auto& ids = example.input_ids;
  if (ids.empty()) refuse("there is no token in it");
  const auto out_of_vocabulary = [&](int64_t id) { return vocab_size_ > 0 && (id < 0 || id >= vocab_size_); };
  for (const auto id : ids)
    if (out_of_vocabulary(id))
      refuse("token " + std::to_string(id) + " is not in the vocabulary of " + std::to_string(vocab_size_));
  if (positions_ && static_cast<int64_t>(ids.size()) > *positions_)
    refuse("it has " + std::to_string(ids.size()) + " tokens, and the model " + std::to_string(*positions_) +
           " positions; --max-length cuts longer rows");
  const auto* labels = std::get_if<std::vector<int64_t>>(&example.labels);
  if (labels == nullptr || task_ == Task::sequence_classification) return;
  bool judged = false;
  const bool classes = task_ == Task::token_classification;
  for (size_t i = 0; i < labels->size(); ++i) {
    const int64_t label = (*labels)[i];
    if (label == nn::kIgnoredLabel) continue;
    if (classes && (label < 0 || label >= num_labels_))
      refuse("label " + std::to_string(label) + " is neither -100 nor one of " + std::to_string(num_labels_) +
             " classes");
    if (!classes && out_of_vocabulary(label))
      refuse("label " + std::to_string(label) + " is neither -100 nor in the vocabulary of " +
             std::to_string(vocab_size_));
    judged |= i > 0 || task_ != Task::causal_lm;
  }
  if (!judged) refuse("it has no token to be judged by");
}

/// A row that could be read in several ways is read in the first of them; whoever wrote it may think of
/// another.
void RowReader::tell_of_others(const json& row) {
  if (told_of_others_) return;
  std::vector<std::string> ways;
  for (const char* name : {"input_ids", "text", "messages"})
    if (row.contains(name)) ways.push_back(std::string("\"") + name + "\"");
  if (row.contains("prompt") && row.contains("completion"))
    ways.emplace_back("\"prompt\" with \"completion\"");
  if (ways.size() < 2) return;
  log_warning("[train] rows have " + ways[0] + " and " + ways[1] + ": only " + ways[0] +
              " is read; take it out of the rows if the other is meant");
  told_of_others_ = true;
}

Example RowReader::read(std::string_view line) {
  if (const auto bad = io::find_invalid_utf8(line); bad != std::string_view::npos)
    refuse("byte " + std::to_string(bad + 1) + " is not UTF-8");
  const auto row = io::parse_json(line, "the row");
  if (!row.is_object()) refuse("a row must be a JSON object");
  Example example;
  tell_of_others(row);
  if (row.contains("input_ids"))
    read_ids(row, example);
  else if (row.contains("text"))
    read_text(row, example);
  else if (row.contains("messages"))
    read_messages(line, "messages", example);
  else if (has_messages(row, "prompt") && has_messages(row, "completion"))
    read_messages(line, "prompt", example);
  else if (row.contains("prompt") || row.contains("completion"))
    read_completion(row, example);
  else
    refuse("there is none of \"input_ids\", \"text\", \"messages\", and \"prompt\" with \"completion\"");
  if (task_ == Task::sequence_classification) read_class(row, example);
  if (row.contains("task_ids")) {
    if (!row["task_ids"].is_number_integer() || row["task_ids"] < 0)
      refuse("\"task_ids\" must be the number of the row's task");
    example.task_id = row["task_ids"];
  }
  if (max_length_) {
    const auto cut = [this](std::vector<int64_t>& ids) {
      ids.resize(std::min(ids.size(), static_cast<size_t>(*max_length_)));
    };
    cut(example.input_ids);
    cut(example.token_type_ids);
    if (auto* labels = std::get_if<std::vector<int64_t>>(&example.labels)) cut(*labels);
  }
  check(example);
  return example;
}

}  // namespace graft::train
