// A conversation as an example to train on: the model is judged by what the assistant says, or by what
// completes it.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "graft/chat_template.h"
#include "train/jsonl_row.h"

namespace graft::train {

/// `row` has "messages" and perhaps "tools". What the assistant says is what the template marks with
/// {% generation %}; where it marks nothing, what each assistant message adds to the conversation before it
/// with a generation prompt. FormatError for a row without such. Without `assistant_only` all tokens are
/// judged.
Example chat_example(const nlohmann::ordered_json& row, const ChatTemplate& chat, const Tokenizer& tokenizer,
                     bool assistant_only);

/// `row` has "prompt" and "completion", both lists of messages, and perhaps "tools": all that the template
/// writes after the prompt, with its beginning of an answer, is judged, as TRL does it.
Example completion_example(const nlohmann::ordered_json& row, const ChatTemplate& chat,
                           const Tokenizer& tokenizer);

}  // namespace graft::train
