// Decoders that are small rules over tokens, and what puts several of them in a row.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

class DecoderSequence final : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<const Decoder>> parts) : parts_(std::move(parts)) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->decode(tokens);
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> parts_;
};

/// The byte that "<0x0A>" stands for; -1 for any other token.
int byte_of(const std::string& token);

/// Runs of "<0xE2>" become the characters that their bytes are.
std::unique_ptr<Decoder> byte_fallback_decoder(Fields& fields);
/// All tokens become one, so that what follows sees the text.
std::unique_ptr<Decoder> fuse_decoder(Fields& fields);
/// Takes some characters off both ends of each token.
std::unique_ptr<Decoder> strip_decoder(Fields& fields);
std::unique_ptr<Decoder> replace_decoder(Fields& fields);
std::unique_ptr<Decoder> bpe_decoder(Fields& fields);

}  // namespace graft::io
