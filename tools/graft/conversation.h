// The messages of a conversation, and the prompt they make: as many of the last turns as the model has room
// for.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graft/chat_template.h"
#include "graft/model.h"
#include "graft/tokenizer.h"

namespace graft::cli {

class Conversation {
 public:
  Conversation(std::shared_ptr<const ChatTemplate> form, std::shared_ptr<const Tokenizer> tokenizer,
               std::string system);

  /// What a message makes of the conversation.
  struct Prompt {
    ModelInputs inputs;                ///< one row of token ids
    int64_t forgotten = 0;             ///< turns that had to leave for it
    std::optional<int64_t> left = {};  ///< tokens there is room for after it
  };
  /// The conversation with this message at its end. `limit`: the tokens that the model has room for;
  /// `answer`: how many of them are for the answer. Where they do not suffice the oldest turns leave, and
  /// some more, so that the next messages find room: after that all the rest has to be read again. UsageError
  /// where the message does not fit even alone.
  Prompt with(const std::string& message, std::optional<int64_t> limit, int64_t answer);
  /// The message and its answer are the last turn now.
  void add(const std::string& message, const std::string& answer);
  void reset();

 private:
  /// With the turns from `first` on.
  ModelInputs encoded(size_t first, const std::string& message) const;

  std::shared_ptr<const ChatTemplate> form_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string system_;
  std::vector<std::pair<std::string, std::string>> turns_;  ///< what was said, and the answer
};

}  // namespace graft::cli
