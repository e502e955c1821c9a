// The five parts of a tokenizer.json, in the order in which text flows through them:
//
//   text -> added tokens are cut out -> Normalizer -> PreTokenizer -> TokenModel -> PostProcessor -> ids
//   ids -> tokens -> Decoder -> text
//
// A new kind of tokenizer is new classes behind these, and a line for each in registry.cpp.
// All text is valid UTF-8 (the tokenizer checks it once, at the door), and all methods are const and safe to
// call from many threads.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graft/tokenizer.h"

namespace graft::io {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string normalize(std::string_view text) const = 0;
};

/// A stretch of text on its way to the model.
struct Word {
  std::string text;
  bool first = false;  ///< the whole text starts here
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Appends what `word` is split into, nothing empty.
  virtual void split(const Word& word, std::vector<Word>& words) const = 0;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of one word.
  virtual void tokenize(std::string_view word, std::vector<int64_t>& ids) const = 0;
  virtual std::optional<int64_t> token_to_id(std::string_view token) const = 0;
  /// Null for an id without a token; valid as long as the model.
  virtual const std::string* id_to_token(int64_t id) const = 0;
  virtual int64_t vocab_size() const = 0;
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// How many special tokens process() adds when it is asked to.
  virtual int64_t added_tokens(bool pair) const = 0;
  virtual Tokenizer::Encoding process(const std::vector<int64_t>& text, const std::vector<int64_t>* pair,
                                      bool add_special_tokens) const = 0;
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Turns tokens into pieces of text, whose concatenation is the text.
  virtual void decode(std::vector<std::string>& tokens) const = 0;
};

}  // namespace graft::io
