#include "io/tokenizer/wordpiece.h"

#include <algorithm>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"

namespace graft::io {

void WordPieceModel::Pieces::add(std::string_view piece, int64_t id) {
  ids.emplace(piece, id);
  longest = std::max(longest, piece.size());
}

WordPieceModel::WordPieceModel(const std::vector<std::pair<std::string, int64_t>>& vocab,
                               const Options& options)
    : max_chars_(static_cast<size_t>(options.max_input_chars_per_word)) {
  tokens_.reserve(vocab.size());
  initial_.ids.reserve(vocab.size());
  const std::string& prefix = options.continuing_subword_prefix;
  for (const auto& [token, id] : vocab) {
    const auto [it, is_new] = tokens_.emplace(id, token);
    if (!is_new)
      throw ConfigError("[tokenizer] the vocabulary gives id " + std::to_string(id) + " to both " +
                        quote(it->second) + " and " + quote(token));
    const std::string_view kept = it->second;
    initial_.add(kept, id);
    if (kept.starts_with(prefix)) continuations_.add(kept.substr(prefix.size()), id);
  }
  const auto unknown = token_to_id(options.unk_token);
  if (!unknown)
    throw ConfigError("[tokenizer] the unknown token " + quote(options.unk_token) +
                      " is not in the vocabulary");
  unknown_ = *unknown;
}

std::unique_ptr<WordPieceModel> WordPieceModel::from_fields(Fields& fields) {
  const Options options = {.unk_token = fields.string("unk_token"),
                           .continuing_subword_prefix = fields.string("continuing_subword_prefix"),
                           .max_input_chars_per_word = fields.number("max_input_chars_per_word")};
  const auto& entries = fields.at("vocab");
  if (!entries.is_object()) fields.fail("has a \"vocab\" that is not an object");
  std::vector<std::pair<std::string, int64_t>> vocab;
  vocab.reserve(entries.size());
  for (const auto& [token, id] : entries.items())
    vocab.emplace_back(token, as_number(id, fields.label() + ", vocab, " + quote(token)));
  return std::make_unique<WordPieceModel>(vocab, options);
}

void WordPieceModel::tokenize(std::string_view word, std::vector<int64_t>& ids) const {
  const size_t before = ids.size();
  const auto give_up = [&] {
    ids.resize(before);
    ids.push_back(unknown_);
  };
  if (count_code_points(word) > max_chars_) return give_up();

  for (size_t start = 0; start < word.size();) {
    const Pieces& pieces = start == 0 ? initial_ : continuations_;
    size_t end = std::min(word.size(), start + pieces.longest);
    // Cutting at the longest token's length may land inside a code point.
    while (end < word.size() && (word[end] & 0xC0) == 0x80) --end;
    auto found = pieces.ids.end();
    while (end > start) {
      found = pieces.ids.find(word.substr(start, end - start));
      if (found != pieces.ids.end()) break;
      end = previous_code_point(word, end);
    }
    if (found == pieces.ids.end()) return give_up();
    ids.push_back(found->second);
    start = end;
  }
}

std::optional<int64_t> WordPieceModel::token_to_id(std::string_view token) const {
  const auto it = initial_.ids.find(token);
  return it == initial_.ids.end() ? std::nullopt : std::optional(it->second);
}

const std::string* WordPieceModel::id_to_token(int64_t id) const {
  const auto it = tokens_.find(id);
  return it == tokens_.end() ? nullptr : &it->second;
}

std::unique_ptr<WordPieceDecoder> WordPieceDecoder::from_fields(Fields& fields) {
  return std::make_unique<WordPieceDecoder>(fields.string("prefix"), fields.boolean("cleanup"));
}

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// One after the other and in this order, as the Rust library does: an earlier replacement can make room for a
// later one.
constexpr std::pair<std::string_view, std::string_view> cleanups[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

}  // namespace

void WordPieceDecoder::decode(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      if (tokens[i].starts_with(prefix_))
        tokens[i].erase(0, prefix_.size());
      else
        tokens[i].insert(0, " ");
    }
    if (cleanup_)
      for (const auto& [from, to] : cleanups) replace_all(tokens[i], from, to);
  }
}

}  // namespace graft::io
