// GPT-2's way to have any text without an unknown token: every byte is a character of its own ("Ġ" for a
// space), and tokens are spelled in those.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

std::string byte_characters(std::string_view bytes);
/// Whether all characters stand for bytes.
bool is_byte_characters(std::string_view text);
/// The way back; none where a character stands for no byte.
std::optional<std::string> bytes_of_characters(std::string_view text);
/// Well-formed UTF-8: what is not becomes U+FFFD, one for each maximal piece that could have started a
/// character.
std::string lossy_utf8(std::string_view bytes);

// From tokenizer.json's parts of the type ByteLevel.
std::unique_ptr<Normalizer> byte_level_normalizer(Fields& fields);
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(Fields& fields);
std::unique_ptr<Decoder> byte_level_decoder(Fields& fields);

}  // namespace graft::io
