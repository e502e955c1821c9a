// SentencePiece's own way with text, from its model files: normalisation by a compiled map of characters,
// spaces as "▁", then unigram or BPE segmentation by the pieces' scores. What no piece covers is the unknown
// token, or its bytes. Symbols that the user defined are always whole.
#pragma once
#include <memory>

#include "io/format/sentencepiece_file.h"
#include "io/tokenizer/parts.h"

namespace graft::io {

struct SentencePieceParts {
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // the "▁" at the start of the text
  std::unique_ptr<const TokenModel> model;
};

/// `label` names the file in messages. transformers puts no "▁" before a text that starts with a space;
/// SentencePiece itself does.
SentencePieceParts make_sentencepiece(const SentencePieceFile& file, const std::string& label,
                                      bool as_transformers = false);

}  // namespace graft::io
