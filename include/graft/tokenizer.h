// Text to token ids and back, as the Hugging Face `tokenizers` library does it.
//
//   auto tokenizer = graft::Tokenizer::from_pretrained("all-MiniLM-L6-v2");
//   auto batch = tokenizer->encode_batch({"a sentence", "another"}, {.max_length = 256});
//   std::string text = tokenizer->decode(batch[0].ids);
//
// A tokenizer never changes after it is loaded, so one may be used from many threads at once.
// docs/tokenizers.md lists the kinds that are known; another one is a ConfigError that names what was found
// and what is known.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

/// How a batch is brought to one shape. What is *not* said here is not done: the lengths that a
/// tokenizer.json may carry in its `truncation` and `padding` sections (MiniLM's says 128, while
/// sentence-transformers uses 256) are leftovers of the program that saved it, so they are never applied.
/// What those sections say about *how* (side, strategy, pad token) is followed.
struct BatchEncodeOptions {
  /// Pads every row to the longest one, with attention_mask 0 there.
  bool padding = true;
  /// Cuts every row to this many tokens, special tokens included.
  std::optional<int64_t> max_length = std::nullopt;
  /// With padding: rounds the length of the rows up to a multiple of this.
  int64_t pad_to_multiple_of = 1;
  bool add_special_tokens = true;
};

class Tokenizer {
 public:
  struct Encoding {
    std::vector<int64_t> ids;
    std::vector<int64_t> type_ids;  ///< 0 for the text, 1 for its pair, unless the tokenizer says otherwise
    std::vector<int64_t> attention_mask;  ///< 1 for a token, 0 for padding
    bool operator==(const Encoding&) const = default;
  };

  /// Reads a tokenizer.json, SentencePiece's tokenizer.model, a GGUF file, or a model folder: its
  /// tokenizer.json, else its GGUF file, tokenizer.model or BERT vocab.txt (with tokenizer_config.json where
  /// there is one). Throws IoError when there is neither, FormatError for what is
  /// malformed, ConfigError for what is not supported.
  static std::shared_ptr<const Tokenizer> from_pretrained(const std::filesystem::path& folder_or_file);

  /// One text, or a text and its pair, neither cut nor padded. Throws FormatError for text that is not UTF-8.
  Encoding encode(std::string_view text, std::optional<std::string_view> pair = {},
                  bool add_special_tokens = true) const;
  std::vector<Encoding> encode_batch(const std::vector<std::string>& texts,
                                     const BatchEncodeOptions& options = {}) const;
  /// The same for pairs: row i is texts[i] with pairs[i].
  std::vector<Encoding> encode_pairs(const std::vector<std::string>& texts,
                                     const std::vector<std::string>& pairs,
                                     const BatchEncodeOptions& options = {}) const;

  /// Ids that stand for no token are left out, as in Python; a negative id is a UsageError.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens = true) const;

  /// The number of different tokens, added ones included. Ids may have holes: this is no bound on them.
  int64_t vocab_size() const;
  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  /// The id used for padding, if this tokenizer has one.
  std::optional<int64_t> pad_token_id() const;

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace graft
