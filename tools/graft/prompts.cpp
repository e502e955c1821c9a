#include "prompts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <fstream>
#include <iostream>

#include "graft/error.h"

namespace graft::cli {

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& model) {
  try {
    return Tokenizer::from_pretrained(model);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) +
                "; without a tokenizer, give token ids by --input instead of --prompt");
  }
}

ModelInputs encode_prompts(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int64_t pad,
                           bool special) {
  std::vector<std::vector<int64_t>> rows;
  rows.reserve(texts.size());
  size_t width = 0;
  for (const auto& text : texts) {
    rows.push_back(tokenizer.encode(text, {}, special).ids);
    if (rows.back().empty()) throw UsageError("[generate] the prompt \"" + text + "\" has no tokens");
    width = std::max(width, rows.back().size());
  }
  const auto batch = static_cast<int64_t>(rows.size()), length = static_cast<int64_t>(width);
  auto ids = at::full({batch, length}, pad, at::kLong), mask = at::zeros({batch, length}, at::kLong);
  for (int64_t row = 0; row < batch; ++row) {
    const auto& tokens = rows[static_cast<size_t>(row)];
    const int64_t from = length - static_cast<int64_t>(tokens.size());
    ids[row].slice(0, from).copy_(at::tensor(tokens, at::kLong));
    mask[row].slice(0, from).fill_(1);
  }
  return {.input_ids = ids, .attention_mask = mask};
}

std::string prompt_from(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw IoError("[generate] --prompt-file " + path + " cannot be read");
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty())
    throw IoError("[generate] --prompt-file " +
                  (path == "-" ? "-: the standard input" : path + ": the file") + " has no text");
  return text;
}

std::string GrowingText::add(int64_t token) {
  tokens_.push_back(token);
  const auto text = tokenizer_->decode(tokens_);
  const bool unfinished = text.ends_with("\xEF\xBF\xBD");  // U+FFFD: bytes that are no character yet
  if (unfinished || !text.starts_with(given_)) return "";
  auto fresh = text.substr(given_.size());
  given_ = text;
  return fresh;
}

std::string GrowingText::finish() {
  const auto text = tokenizer_->decode(tokens_);
  return text.starts_with(given_) ? text.substr(given_.size()) : "";
}

}  // namespace graft::cli
