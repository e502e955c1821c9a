// One line of a JSONL file as an example to train on.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graft/chat_template.h"
#include "graft/model.h"
#include "graft/tokenizer.h"
#include "graft/trainer.h"
#include "models/architecture.h"

namespace graft::train {

struct Example {
  std::vector<int64_t> input_ids, token_type_ids;
  std::optional<int64_t> task_id;  ///< "task_ids", of a row one
  /// For each token where the model judges tokens (of an encoder-decoder what the decoder is to write, as
  /// long as that is); for the row a class, a number, or a number per class.
  std::variant<std::vector<int64_t>, int64_t, double, std::vector<double>> labels;
};

/// Reads rows for one model.
class RowReader {
 public:
  /// The tokenizer is looked for in `folder` when the first row with text comes.
  RowReader(const PreTrainedModel& model, std::filesystem::path folder, const JsonlOptions& options);

  /// FormatError with the reason, without the place.
  Example read(std::string_view line);

 private:
  const Tokenizer& tokenizer();
  const ChatTemplate& chat();
  std::vector<int64_t> encode(const std::string& text, bool special);
  void tell_of_others(const nlohmann::json& row);
  void read_ids(const nlohmann::json& row, Example& example) const;
  void read_text(const nlohmann::json& row, Example& example);
  void read_completion(const nlohmann::json& row, Example& example);
  void read_messages(std::string_view line, const char* name, Example& example);
  void read_class(const nlohmann::json& row, Example& example) const;
  void check(const Example& example) const;

  Task task_;
  int64_t num_labels_, vocab_size_;
  std::optional<int64_t> positions_, eos_, max_length_;
  std::filesystem::path folder_;
  bool assistant_only_loss_, told_of_others_ = false;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_;
};

}  // namespace graft::train
