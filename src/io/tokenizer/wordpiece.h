// BERT's WordPiece: a word becomes the longest token it starts with, then the longest continuation ("##ing")
// of what is left, and so on; a word that cannot be finished, or is too long, is the unknown token as a
// whole.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

class WordPieceModel final : public TokenModel {
 public:
  struct Options {
    std::string unk_token = "[UNK]";
    std::string continuing_subword_prefix = "##";
    int64_t max_input_chars_per_word = 100;  ///< in code points
  };
  /// Throws ConfigError when two tokens share an id or the unknown token is not in the vocabulary.
  WordPieceModel(const std::vector<std::pair<std::string, int64_t>>& vocab, const Options& options);
  /// From tokenizer.json's `model`.
  static std::unique_ptr<WordPieceModel> from_fields(Fields& fields);

  void tokenize(std::string_view word, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> token_to_id(std::string_view token) const override;
  const std::string* id_to_token(int64_t id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }

 private:
  // Keys point into tokens_, whose nodes never move.
  struct Pieces {
    std::unordered_map<std::string_view, int64_t> ids;
    size_t longest = 0;  // in bytes: no longer stretch of a word needs to be looked up
    void add(std::string_view piece, int64_t id);
  };

  std::unordered_map<int64_t, std::string> tokens_;
  Pieces initial_;        // every token: the first piece of a word
  Pieces continuations_;  // those that start with the prefix, without it: all pieces after the first
  int64_t unknown_ = 0;
  size_t max_chars_ = 0;
};

/// Puts spaces between words and takes the prefix off continuations; `cleanup` undoes the spaces that English
/// does not want.
class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  static std::unique_ptr<WordPieceDecoder> from_fields(Fields& fields);
  void decode(std::vector<std::string>& tokens) const override;

 private:
  std::string prefix_;
  bool cleanup_;
};

}  // namespace graft::io
