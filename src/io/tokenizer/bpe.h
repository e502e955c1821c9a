// Byte pair encoding: a word is cut into characters, and the pair that was learned first is joined, again and
// again, until no known pair is left. What is not in the vocabulary becomes its bytes ("<0xE2>"), where the
// vocabulary has those, or the unknown token.
#pragma once
#include <memory>
#include <unordered_map>

#include "io/tokenizer/parts.h"
#include "io/tokenizer/vocabulary.h"

namespace graft::io {
class Fields;

class BpeModel final : public TokenModel {
 public:
  /// From tokenizer.json's `model`.
  static std::unique_ptr<BpeModel> from_fields(Fields& fields);

  void tokenize(std::string_view word, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> token_to_id(std::string_view token) const override { return vocab_.id_of(token); }
  const std::string* id_to_token(int64_t id) const override { return vocab_.token_of(id); }
  int64_t vocab_size() const override { return vocab_.size(); }

 private:
  struct Merge {
    int64_t rank, id;  // how early it was learned; the token it makes
  };
  explicit BpeModel(Vocabulary vocab) : vocab_(std::move(vocab)) {}
  void read_merges(Fields& fields);
  void add_merge(Fields& fields, const std::string& left, const std::string& right, int64_t rank);
  const Merge* merge_of(int64_t left, int64_t right) const;
  std::vector<int64_t> characters(std::string_view word) const;
  void merge_all(std::vector<int64_t>& symbols) const;

  Vocabulary vocab_;
  std::unordered_map<uint64_t, Merge> merges_;  // by both ids, which are below 2^32
  std::optional<int64_t> unknown_;
  std::string prefix_, suffix_;  // of characters that continue a word, and of the last one
  bool fuse_unk_ = false, byte_fallback_ = false, ignore_merges_ = false;
};

/// Takes the suffix that marks a word's end for the space after it.
class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void decode(std::vector<std::string>& tokens) const override;

 private:
  std::string suffix_;
};

}  // namespace graft::io
