#include "generation/stop_strings.h"

#include <algorithm>

#include "graft/error.h"
#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/decoders.h"

namespace graft::generation {
namespace {

constexpr std::string_view kBefore = "abcdef", kUnknown = "\xEF\xBF\xBD";

/// The bytes of a token that is no whole character by itself: "<0xE2>", or GPT-2's spelling.
std::optional<std::string> raw_bytes(const std::string& token) {
  if (const int byte = io::byte_of(token); byte >= 0) return std::string(1, static_cast<char>(byte));
  return io::bytes_of_characters(token);
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings, std::shared_ptr<const Tokenizer> tokenizer)
    : strings_(std::move(strings)), tokenizer_(std::move(tokenizer)) {
  if (strings_.empty()) return;
  if (!tokenizer_)
    throw UsageError("[generate] stop_strings need the model's tokenizer: give it to the call");
  for (const auto& each : strings_) {
    if (each.empty()) throw UsageError("[generate] a stop string is empty: every text has it");
    longest_ = std::max(longest_, each.size());
  }
  before_ = tokenizer_->encode(kBefore, {}, /*add_special_tokens=*/false).ids;
}

const std::optional<std::string>& StopStrings::text_of(int64_t id) const {
  const auto [found, fresh] = texts_.try_emplace(id);
  auto& text = found->second;
  const auto token = fresh && id >= 0 ? tokenizer_->id_to_token(id) : std::nullopt;
  if (!token) return text;
  auto ids = before_;
  ids.push_back(id);
  // A token by itself may lose its first space, or get one.
  text = tokenizer_->decode(ids, /*skip_special_tokens=*/false);
  if (const auto start = text->find(kBefore); start != std::string::npos)
    text->erase(0, start + kBefore.size());
  if (text->find(kUnknown) != std::string::npos)
    if (auto bytes = raw_bytes(*token)) text = std::move(bytes);
  return text;
}

bool StopStrings::completed_by(std::span<const int64_t> ids) const {
  if (strings_.empty() || ids.empty()) return false;
  const auto& last = text_of(ids.back());
  if (!last || last->empty()) return false;
  std::string text = *last;
  for (auto at = ids.rbegin() + 1; at != ids.rend() && text.size() < last->size() + longest_ - 1; ++at) {
    const auto& one = text_of(*at);
    if (!one) break;
    text = *one + text;
  }
  const size_t begun = text.size() - last->size();
  return std::any_of(strings_.begin(), strings_.end(), [&](const std::string& each) {
    const size_t from = begun + 1 > each.size() ? begun + 1 - each.size() : 0;
    return text.find(each, from) != std::string::npos;
  });
}

}  // namespace graft::generation
