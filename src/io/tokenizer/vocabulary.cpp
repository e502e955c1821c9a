#include "io/tokenizer/vocabulary.h"

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/tokenizer/fields.h"

namespace graft::io {

Vocabulary::Vocabulary(const std::vector<std::pair<std::string, int64_t>>& entries) {
  tokens_.reserve(entries.size());
  ids_.reserve(entries.size());
  for (const auto& [token, id] : entries) {
    const auto [it, is_new] = tokens_.emplace(id, token);
    if (!is_new)
      throw ConfigError("[tokenizer] the vocabulary gives id " + std::to_string(id) + " to both " +
                        quote(it->second) + " and " + quote(token));
    ids_.insert_or_assign(it->second, id);  // of a token that comes twice, the last
  }
}

Vocabulary Vocabulary::from_fields(Fields& fields) {
  const auto& entries = fields.at("vocab");
  if (!entries.is_object()) fields.fail("has a \"vocab\" that is not an object");
  std::vector<std::pair<std::string, int64_t>> vocab;
  vocab.reserve(entries.size());
  for (const auto& [token, id] : entries.items())
    vocab.emplace_back(token, as_number(id, fields.label() + ", vocab, " + quote(token)));
  return Vocabulary(vocab);
}

std::optional<int64_t> Vocabulary::id_of(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

const std::string* Vocabulary::token_of(int64_t id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second;
}

std::optional<std::vector<int64_t>> Vocabulary::byte_tokens(std::string_view text) const {
  constexpr char digits[] = "0123456789ABCDEF";
  std::vector<int64_t> ids;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const char token[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    const auto id = id_of(std::string_view(token, sizeof token));
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace graft::io
