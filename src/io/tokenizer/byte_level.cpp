#include "io/tokenizer/byte_level.h"

#include <algorithm>
#include <array>

#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/token_regex.h"

namespace graft::io {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;  // of bytes
  std::array<int, 324> bytes;               // of characters; -1 where one stands for none

  Alphabet() {
    bytes.fill(-1);
    // Bytes that are printed are themselves in Latin-1, the others follow from U+0100 on.
    char32_t other = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t c = printed ? static_cast<char32_t>(byte) : other++;
      append_utf8(characters[static_cast<size_t>(byte)], c);
      bytes[c] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class ByteLevelNormalizer final : public Normalizer {
 public:
  std::string normalize(std::string_view text) const override { return byte_characters(text); }
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex, const std::string& label)
      : add_prefix_space_(add_prefix_space) {
    if (use_regex) regex_.emplace(kGpt2Words, label);
  }

  void split(const Word& word, std::vector<Word>& words) const override {
    Word spaced = word;
    if (add_prefix_space_ && !word.text.starts_with(' ')) spaced.text.insert(0, " ");
    const size_t before = words.size();
    if (regex_)
      split_word(spaced, regex_->stretches(spaced.text), Behavior::isolated, words);
    else
      words.push_back(std::move(spaced));
    for (size_t i = before; i < words.size(); ++i) words[i].text = byte_characters(words[i].text);
  }

 private:
  bool add_prefix_space_;
  std::optional<TokenRegex> regex_;
};

class ByteLevelDecoder final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens)
      bytes += bytes_of_characters(token).value_or(token);  // an added token stands for itself
    tokens = {lossy_utf8(bytes)};
  }
};

}  // namespace

std::string byte_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += alphabet().characters[static_cast<unsigned char>(c)];
  return text;
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  const auto& known = alphabet().bytes;
  std::string bytes;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    if (c >= known.size() || known[c] < 0) return {};
    bytes += static_cast<char>(known[c]);
  }
  return bytes;
}

bool is_byte_characters(std::string_view text) { return bytes_of_characters(text).has_value(); }

std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t bad = std::min(find_invalid_utf8(bytes), bytes.size());
    text += bytes.substr(0, bad);
    bytes.remove_prefix(bad);
    if (bytes.empty()) break;
    size_t length = 1;
    while (length < bytes.size() && starts_character(bytes.substr(0, length + 1))) ++length;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(length);
  }
  return text;
}

std::unique_ptr<Normalizer> byte_level_normalizer(Fields&) { return std::make_unique<ByteLevelNormalizer>(); }

std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(Fields& fields) {
  fields.ignore({"trim_offsets"});
  return std::make_unique<ByteLevelPreTokenizer>(fields.boolean("add_prefix_space"),
                                                 fields.boolean("use_regex", true), fields.label());
}

std::unique_ptr<Decoder> byte_level_decoder(Fields& fields) {
  fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});  // they say how to encode
  return std::make_unique<ByteLevelDecoder>();
}

}  // namespace graft::io
