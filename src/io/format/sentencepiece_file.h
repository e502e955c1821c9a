// What a SentencePiece model file (tokenizer.model, a ModelProto) says, as far as encoding needs it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graft::io {

struct SentencePiece {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text = {};
  float score = 0;
  Kind kind = Kind::normal;
};

struct SentencePieceFile {
  enum class Model { unigram = 1, bpe = 2 };
  std::vector<SentencePiece> pieces;
  Model model = Model::unigram;
  bool byte_fallback = false;
  int64_t unknown = 0;   ///< its id
  std::string charsmap;  ///< NormalizerSpec.precompiled_charsmap
  bool add_dummy_prefix = true, remove_extra_whitespaces = true;
};

/// Throws FormatError for what is malformed and ConfigError for what is not supported (models of words and of
/// characters, white space as a suffix).
SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& label);

}  // namespace graft::io
