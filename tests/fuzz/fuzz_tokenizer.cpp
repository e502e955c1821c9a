// A tokenizer.json (what starts with "{") or a SentencePiece model file (anything else): either a
// graft::Error that says what is wrong, or a tokenizer that takes any text, with the same result each time,
// and ids that it can decode.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "fuzz.h"
#include "graft/error.h"
#include "io/format/json.h"
#include "io/format/utf8.h"
#include "io/tokenizer/document.h"

namespace {
using graft::io::TokenizerPipeline;

constexpr std::string_view kTexts[] = {
    "",
    " ",
    "a",
    "hello  world",
    "ab ab\n\tabc 123 x=1",
    "<s>a</s> <unk>[MASK]",
    "n\xC3\xA4\xC3\xAF e\xCC\x81 \xE2\x96\x81x",
    "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80",
    {"\0\x01\x7F", 3}};

TokenizerPipeline build(std::string_view text) {
  if (!text.starts_with('{')) return graft::io::build_sentencepiece(text, "fuzz", nullptr, "fuzz");
  return graft::io::build_tokenizer(
      graft::io::parse_json(text, "fuzz", {.max_bytes = 1 << 20, .max_depth = 32}), "fuzz");
}

void use(const TokenizerPipeline& tokenizer, std::string_view text) {
  std::vector<int64_t> ids;
  try {
    ids = tokenizer.encode(text, {}, true, {}).ids;
  } catch (const graft::Error&) {  // no unknown token, a regular expression that needs too much
    return;
  }
  FUZZ_CHECK(ids == tokenizer.encode(text, {}, true, {}).ids);
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    FUZZ_CHECK(id >= 0);
    if (const auto* token = tokenizer.token_of(id)) tokens.push_back(*token);
  }
  if (tokenizer.decoder) tokenizer.decoder->decode(tokens);
  for (const auto& token : tokens) FUZZ_CHECK(graft::io::find_invalid_utf8(token) == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tokenizer = build({reinterpret_cast<const char*>(data), size});
    for (const auto text : kTexts) use(tokenizer, text);
  } catch (const graft::Error& error) {
    const std::string_view what = error.what();
    FUZZ_CHECK(what.starts_with("[") && what.size() < 4000);
  }
  return 0;
}
