// Text for generation: prompts to a batch of token ids, and new tokens to text as they come.
#pragma once
#include <string>
#include <vector>

#include "graft/model.h"
#include "graft/tokenizer.h"

namespace graft::cli {

/// The checkpoint's tokenizer; an error that says what to do where it has none that can be read.
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& model);

/// One row each, padded on the left. `special` adds special tokens; a chat template has put them in already.
ModelInputs encode_prompts(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int64_t pad,
                           bool special = true);

/// The whole text of a file, or of the standard input where `path` is "-", without the end of its last line.
std::string prompt_from(const std::string& path);

/// Text that grows with its tokens: gives what is new, and holds back what the next token may still change
/// (an unfinished character, a space that is taken back).
class GrowingText {
 public:
  explicit GrowingText(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::string add(int64_t token);
  /// What was held back.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int64_t> tokens_;
  std::string given_;
};

}  // namespace graft::cli
