// A conversation as an example to train on: the model is judged by what the assistant says.
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

}  // namespace graft::train
