#include "io/tokenizer/decoders.h"

#include <charconv>

#include "io/format/utf8.h"
#include "io/tokenizer/bpe.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/metaspace.h"
#include "io/tokenizer/token_regex.h"

namespace graft::io {
namespace {

class ByteFallbackDecoder final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == std::string::npos)
        out.push_back(bytes);
      else
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      bytes.clear();
    };
    for (auto& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

class FuseDecoder final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const auto& token : tokens) all += token;
    tokens = {std::move(all)};
  }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(char32_t content, int64_t start, int64_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) {
      std::string_view text = token;
      for (int64_t i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
      token = std::string(text);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(TokenRegex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (auto& token : tokens) token = pattern_.replaced(token, content_);
  }

 private:
  TokenRegex pattern_;
  std::string content_;
};

}  // namespace

int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  int byte = -1;
  const bool plus = token[3] == '+';  // a number to Rust, which reads it
  const char *from = token.data() + (plus ? 4 : 3), *to = token.data() + 5;
  const auto [end, error] = std::from_chars(from, to, byte, 16);
  return error == std::errc() && end == to && byte >= 0 ? byte : -1;
}

std::unique_ptr<Decoder> byte_fallback_decoder(Fields&) { return std::make_unique<ByteFallbackDecoder>(); }
std::unique_ptr<Decoder> fuse_decoder(Fields&) { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<Decoder> strip_decoder(Fields& fields) {
  return std::make_unique<StripDecoder>(read_character(fields, "content"), fields.number("start"),
                                        fields.number("stop"));
}
std::unique_ptr<Decoder> replace_decoder(Fields& fields) {
  return std::make_unique<ReplaceDecoder>(read_pattern(fields, "pattern"), fields.string("content"));
}
std::unique_ptr<Decoder> bpe_decoder(Fields& fields) {
  return std::make_unique<BpeDecoder>(fields.string("suffix"));
}

}  // namespace graft::io
