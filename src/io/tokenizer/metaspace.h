// SentencePiece's way with spaces: each becomes "▁", which starts the word that follows, and the text gets
// one in front.
#pragma once
#include <memory>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(Fields& fields);
std::unique_ptr<Decoder> metaspace_decoder(Fields& fields);

/// A field that must be one character.
char32_t read_character(Fields& fields, std::string_view key);

}  // namespace graft::io
