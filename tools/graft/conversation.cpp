#include "conversation.h"

#include <ATen/ATen.h>

#include "graft/error.h"
#include "prompts.h"
#include "support/counted.h"

namespace graft::cli {

Conversation::Conversation(std::shared_ptr<const ChatTemplate> form,
                           std::shared_ptr<const Tokenizer> tokenizer, std::string system)
    : form_(std::move(form)), tokenizer_(std::move(tokenizer)), system_(std::move(system)) {}

ModelInputs Conversation::encoded(size_t first, const std::string& message) const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({"system", system_});
  for (size_t turn = first; turn < turns_.size(); ++turn) {
    messages.push_back({"user", turns_[turn].first});
    messages.push_back({"assistant", turns_[turn].second});
  }
  messages.push_back({"user", message});
  const auto text = form_->render(messages, {.add_generation_prompt = true});
  return encode_prompts(*tokenizer_, {text}, 0, /*special=*/false);
}

Conversation::Prompt Conversation::with(const std::string& message, std::optional<int64_t> limit,
                                        int64_t answer) {
  Prompt prompt{.inputs = encoded(0, message)};
  if (!limit) return prompt;
  const auto tokens = [&] { return prompt.inputs.input_ids.size(1); };
  // Once turns have to leave, a quarter of the room is freed for those that come.
  int64_t room = *limit - answer;
  size_t left = 0;
  for (; tokens() > room && left < turns_.size(); prompt.inputs = encoded(left, message))
    if (left++ == 0) room -= *limit / 4;
  if (tokens() >= *limit)
    throw UsageError("[chat] the message alone is " + counted(tokens(), "token") +
                     ", and the model has room for " + std::to_string(*limit) + ": make it shorter");
  turns_.erase(turns_.begin(), turns_.begin() + static_cast<int64_t>(left));
  prompt.forgotten = static_cast<int64_t>(left);
  prompt.left = *limit - tokens();
  return prompt;
}

void Conversation::add(const std::string& message, const std::string& answer) {
  turns_.emplace_back(message, answer);
}

void Conversation::reset() { turns_.clear(); }

}  // namespace graft::cli
