// Normalizers and pre-tokenizers that need no table of characters, and what puts several of them in a row.
#pragma once
#include <memory>
#include <vector>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> parts)
      : parts_(std::move(parts)) {}
  std::string normalize(std::string_view text) const override;

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<const PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void split(const Word& word, std::vector<Word>& words) const override;

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

// From tokenizer.json, named by their types there.
std::unique_ptr<Normalizer> strip_normalizer(Fields& fields);
std::unique_ptr<Normalizer> replace_normalizer(Fields& fields);
std::unique_ptr<Normalizer> prepend_normalizer(Fields& fields);
std::unique_ptr<Normalizer> nmt_normalizer(Fields& fields);

std::unique_ptr<PreTokenizer> split_pre_tokenizer(Fields& fields);
std::unique_ptr<PreTokenizer> whitespace_split_pre_tokenizer(Fields& fields);
std::unique_ptr<PreTokenizer> char_delimiter_pre_tokenizer(Fields& fields);

}  // namespace graft::io
