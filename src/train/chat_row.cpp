#include "train/chat_row.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graft/error.h"
#include "nn/loss.h"

namespace graft::train {
using nlohmann::ordered_json;

namespace {
using Spans = std::vector<std::pair<size_t, size_t>>;

/// A template may write earlier turns otherwise than the last one (thoughts are left out, say), or refuse a
/// part of a conversation: turns that are not found again in the whole text are not judged.
Spans added_by_assistant(const ordered_json& messages, const std::string& text, const ChatTemplate& chat,
                         const ChatTemplateCall& call) {
  Spans spans;
  auto before = ordered_json::array();
  const auto part = [&](const ordered_json& some, bool prompt) -> std::optional<size_t> {
    auto asked = call;
    asked.add_generation_prompt = prompt;
    try {
      const auto rendered = chat.render_json(some.dump(), asked).text;
      return text.starts_with(rendered) ? std::optional(rendered.size()) : std::nullopt;
    } catch (const UsageError&) {
      return {};  // refused
    }
  };
  for (const auto& message : messages) {
    auto with = before;
    with.push_back(message);
    if (message.value("role", "") == "assistant" && !before.empty()) {
      const auto begin = part(before, true), end = part(with, false);
      if (begin && end && *begin < *end) spans.emplace_back(*begin, *end);
    }
    before = std::move(with);
  }
  return spans;
}

/// How many tokens of `ids` cover the first `end` bytes; one that reaches beyond counts only if `whole`.
size_t tokens_before(const std::vector<int64_t>& ids, const std::string& text, size_t end,
                     const Tokenizer& tokenizer, bool whole) {
  const auto part = tokenizer.encode(text.substr(0, end), {}, false).ids;
  const auto same = static_cast<size_t>(
      std::mismatch(part.begin(), part.end(), ids.begin(), ids.end()).first - part.begin());
  return same < part.size() && whole ? std::min(same + 1, ids.size()) : same;
}

ChatTemplateCall call_of(const ordered_json& row) {
  ChatTemplateCall call;
  if (row.contains("tools") && !row["tools"].is_null()) call.tools = row["tools"].dump();
  return call;
}

ChatTemplate::Rendered render(const ordered_json& messages, const ChatTemplate& chat,
                              const ChatTemplateCall& call) {
  try {
    return chat.render_json(messages.dump(), call);
  } catch (const UsageError& error) {  // the row's fault
    throw FormatError(error.what());
  }
}

const ordered_json& messages_of(const ordered_json& row, const char* name) {
  const auto& messages = row.at(name);
  if (!messages.is_array() || messages.empty())
    throw FormatError("\"" + std::string(name) + "\" must be a list of messages, and not empty");
  for (const auto& message : messages) {
    // Where tools are called instead, templates look for it.
    const bool lacks = message.is_object() && message.contains("content") && message["content"].is_null();
    if (lacks && !message.contains("tool_calls"))
      throw FormatError("a message in \"" + std::string(name) +
                        "\" has a \"content\" of null, which a template writes as the word None: give it a "
                        "text, \"\" for none");
  }
  return messages;
}

}  // namespace

Example completion_example(const ordered_json& row, const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const auto& prompt = messages_of(row, "prompt");
  auto all = prompt;
  for (const auto& message : messages_of(row, "completion")) all.push_back(message);
  auto call = call_of(row);
  const auto text = render(all, chat, call).text;
  // A template may begin an answer otherwise when it is to be written (with a thought, say).
  call.add_generation_prompt = true;
  auto begin = render(prompt, chat, call).text;
  if (!text.starts_with(begin)) {
    call.add_generation_prompt = false;
    begin = render(prompt, chat, call).text;
  }
  if (!text.starts_with(begin))
    throw FormatError(
        "the chat template writes the prompt otherwise when the completion follows it, so that nobody can "
        "say where that begins; give the row as \"messages\"");
  Example example{.input_ids = tokenizer.encode(text, {}, false).ids};
  auto labels = example.input_ids;
  const auto judged_from = tokens_before(example.input_ids, text, begin.size(), tokenizer, false);
  std::fill_n(labels.begin(), judged_from, nn::kIgnoredLabel);
  example.labels = std::move(labels);
  return example;
}

Example chat_example(const ordered_json& row, const ChatTemplate& chat, const Tokenizer& tokenizer,
                     bool assistant_only) {
  const auto& messages = messages_of(row, "messages");
  const auto call = call_of(row);
  const auto rendered = render(messages, chat, call);
  Example example{.input_ids = tokenizer.encode(rendered.text, {}, false).ids};
  if (!assistant_only) {
    example.labels = example.input_ids;
    return example;
  }
  const auto spans =
      chat.marks_generation() ? rendered.generated : added_by_assistant(messages, rendered.text, chat, call);
  std::vector<int64_t> labels(example.input_ids.size(), nn::kIgnoredLabel);
  for (const auto& [begin, end] : spans) {
    const auto from = tokens_before(example.input_ids, rendered.text, begin, tokenizer, false),
               to = tokens_before(example.input_ids, rendered.text, end, tokenizer, true);
    for (size_t i = from; i < to; ++i) labels[i] = example.input_ids[i];
  }
  if (spans.empty())
    throw FormatError(
        "nothing in it is said by the assistant, as far as the chat template shows; "
        "--no-assistant-only-loss judges the whole text");
  example.labels = std::move(labels);
  return example;
}

}  // namespace graft::train
