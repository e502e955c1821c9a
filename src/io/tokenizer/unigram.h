// SentencePiece's unigram model: of all ways to cut a text into pieces, the one with the largest sum of
// scores (log probabilities). A character in no piece is unknown; neighbouring unknown ones become one token,
// or their bytes.
#pragma once
#include <memory>
#include <unordered_map>

#include "io/tokenizer/parts.h"
#include "io/tokenizer/vocabulary.h"

namespace graft::io {
class Fields;

class UnigramModel final : public TokenModel {
 public:
  /// From tokenizer.json's `model`.
  static std::unique_ptr<UnigramModel> from_fields(Fields& fields);

  void tokenize(std::string_view word, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> token_to_id(std::string_view token) const override { return vocab_.id_of(token); }
  const std::string* id_to_token(int64_t id) const override { return vocab_.token_of(id); }
  int64_t vocab_size() const override { return vocab_.size(); }

 private:
  /// A piece, by where it ends, on the best way to there.
  struct Step {
    int64_t id = 0;
    double score = 0;
    size_t start = static_cast<size_t>(-1);
  };
  UnigramModel(Vocabulary vocab, std::vector<double> scores);
  std::vector<Step> best_steps(std::string_view word) const;
  void add_piece(std::string_view piece, std::vector<int64_t>& ids) const;
  int64_t unknown() const;

  Vocabulary vocab_;
  std::vector<double> scores_;
  double least_score_ = 0;
  // A trie over bytes: (node, byte) -> node, and which piece ends at a node.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int64_t> ends_;
  std::optional<int64_t> unknown_;
  bool byte_fallback_ = false;
};

/// A word is a token, or unknown.
class WordLevelModel final : public TokenModel {
 public:
  static std::unique_ptr<WordLevelModel> from_fields(Fields& fields);
  void tokenize(std::string_view word, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> token_to_id(std::string_view token) const override { return vocab_.id_of(token); }
  const std::string* id_to_token(int64_t id) const override { return vocab_.token_of(id); }
  int64_t vocab_size() const override { return vocab_.size(); }

 private:
  WordLevelModel(Vocabulary vocab, int64_t unknown) : vocab_(std::move(vocab)), unknown_(unknown) {}
  Vocabulary vocab_;
  int64_t unknown_;
};

}  // namespace graft::io
