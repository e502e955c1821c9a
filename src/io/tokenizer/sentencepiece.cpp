#include "io/tokenizer/sentencepiece.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "io/format/utf8.h"
#include "io/tokenizer/byte_trie.h"
#include "io/tokenizer/charsmap.h"
#include "io/tokenizer/vocabulary.h"

namespace graft::io {
namespace {
using Kind = SentencePiece::Kind;

constexpr std::string_view kSpace = "▁";
constexpr float kUnknownPenalty = 10;
constexpr size_t kNone = static_cast<size_t>(-1);

ByteTrie user_defined(const SentencePieceFile& file) {
  ByteTrie trie;
  for (size_t id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].kind == Kind::user_defined) trie.add(file.pieces[id].text, static_cast<int64_t>(id));
  return trie;
}

class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& file, const std::string& label)
      : map_(file.charsmap, label), symbols_(user_defined(file)), tidy_(file.remove_extra_whitespaces) {}

  std::string normalize(std::string_view text) const override {
    std::string result;
    bool after_space = tidy_;
    for (size_t pos = 0; pos < text.size();) {
      auto [size, part] = piece_at(text, pos);
      pos += size;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      for (const char c : part) {
        if (c == ' ')
          result += kSpace;
        else
          result += c;
      }
      if (!part.empty()) after_space = tidy_ && part.ends_with(' ');
    }
    while (tidy_ && result.ends_with(kSpace)) result.resize(result.size() - kSpace.size());
    return result;
  }

 private:
  /// How much of the text comes next, and what becomes of it.
  std::pair<size_t, std::string_view> piece_at(std::string_view text, size_t pos) const {
    if (const size_t end = symbols_.longest_at(text, pos); end > pos)
      return {end - pos, text.substr(pos, end - pos)};
    if (const auto found = map_.find(text, pos)) return *found;
    size_t end = pos;
    next_code_point(text, end);
    return {end - pos, text.substr(pos, end - pos)};
  }

  Charsmap map_;
  ByteTrie symbols_;
  bool tidy_;
};

class DummyPrefix final : public PreTokenizer {
 public:
  DummyPrefix(bool prepends, bool as_transformers) : prepends_(prepends), as_transformers_(as_transformers) {}
  void split(const Word& word, std::vector<Word>& words) const override {
    const bool has_one = as_transformers_ && word.text.starts_with(kSpace);
    words.push_back(
        {(prepends_ && word.first && !has_one ? std::string(kSpace) : "") + word.text, word.first});
  }

 private:
  bool prepends_, as_transformers_;
};

std::vector<std::pair<std::string, int64_t>> entries_of(const SentencePieceFile& file) {
  std::vector<std::pair<std::string, int64_t>> entries;
  entries.reserve(file.pieces.size());
  for (const auto& piece : file.pieces)
    entries.emplace_back(piece.text, static_cast<int64_t>(entries.size()));
  return entries;
}

class SentencePieceModel final : public TokenModel {
 public:
  explicit SentencePieceModel(const SentencePieceFile& file)
      : file_(file), vocab_(entries_of(file)), symbols_(user_defined(file)) {
    bool first = true;
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      const auto& piece = file.pieces[id];
      if (piece.kind == Kind::normal || piece.kind == Kind::user_defined || piece.kind == Kind::unused)
        pieces_.add(piece.text, static_cast<int64_t>(id));
      if (piece.kind != Kind::normal) continue;
      least_ = first ? piece.score : std::min(least_, piece.score);
      first = false;
    }
  }

  void tokenize(std::string_view word, std::vector<int64_t>& ids) const override {
    bool after_unknown = false;
    for (const auto piece : file_.model == SentencePieceFile::Model::bpe ? bpe(word) : unigram(word)) {
      const int64_t id = vocab_.id_of(piece).value_or(file_.unknown);
      const bool unknown = id == file_.unknown;
      const auto bytes = unknown && file_.byte_fallback ? vocab_.byte_tokens(piece) : std::nullopt;
      if (bytes)
        ids.insert(ids.end(), bytes->begin(), bytes->end());
      else if (!unknown || !after_unknown)
        ids.push_back(id);
      after_unknown = unknown && !bytes;
    }
  }
  std::optional<int64_t> token_to_id(std::string_view token) const override { return vocab_.id_of(token); }
  const std::string* id_to_token(int64_t id) const override { return vocab_.token_of(id); }
  int64_t vocab_size() const override { return vocab_.size(); }

 private:
  using Pieces = std::vector<std::string_view>;

  const SentencePiece& piece(int64_t id) const { return file_.pieces[static_cast<size_t>(id)]; }

  /// A symbol of the user's is better than anything else of its length, whatever score its file gives it.
  static float symbol_score(size_t bytes) { return 0.1F * static_cast<float>(bytes) - 0.1F; }

  /// The pieces with the largest sum of scores. Sums are of 32 bits, as SentencePiece has them: they decide
  /// ties.
  Pieces unigram(std::string_view text) const {
    struct Best {
      float score = 0;
      size_t start = kNone;
    };
    std::vector<Best> best(text.size() + 1);
    for (size_t start = 0; start < text.size();) {
      size_t after = start;
      next_code_point(text, after);
      const float so_far = best[start].score;
      bool has_character = false;
      const auto offer = [&](size_t end, float score) {
        const float sum = score + so_far;
        if (best[end].start == kNone || sum > best[end].score) best[end] = {sum, start};
      };
      pieces_.each_at(text, start, [&](size_t end, int64_t id) {
        if (piece(id).kind == Kind::unused) return;
        const bool symbol = piece(id).kind == Kind::user_defined;
        offer(end, symbol ? symbol_score(end - start) : piece(id).score);
        has_character |= end == after;
      });
      if (!has_character) offer(after, least_ - kUnknownPenalty);
      start = after;
    }
    Pieces pieces;
    for (size_t end = text.size(); end > 0; end = best[end].start)
      pieces.push_back(text.substr(best[end].start, end - best[end].start));
    std::reverse(pieces.begin(), pieces.end());
    return pieces;
  }

  /// Neighbours are joined, the pair whose piece has the best score first, until no pair is a piece.
  Pieces bpe(std::string_view text) const {
    struct Symbol {
      std::string_view text;
      size_t previous, next;
      bool whole;  // defined by the user: never joined
    };
    struct Pair {
      float score;
      size_t left, right, size;
      bool operator<(const Pair& other) const {  // the queue gives the largest first
        return score != other.score ? score < other.score : left > other.left;
      }
    };
    std::vector<Symbol> symbols;
    symbols.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      size_t end = symbols_.longest_at(text, pos);
      const bool whole = end > pos;
      if (!whole) next_code_point(text, end = pos);
      symbols.push_back({text.substr(pos, end - pos), symbols.empty() ? kNone : symbols.size() - 1,
                         symbols.size() + 1, whole});
      pos = end;
    }
    if (!symbols.empty()) symbols.back().next = kNone;
    std::priority_queue<Pair> queue;
    // Pieces that are not used are joined all the same, and taken apart again in the end.
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> unused;
    const auto consider = [&](size_t left, size_t right) {
      if (left == kNone || right == kNone || symbols[left].whole || symbols[right].whole) return;
      const std::string_view joined(symbols[left].text.data(),
                                    symbols[left].text.size() + symbols[right].text.size());
      const auto id = vocab_.id_of(joined);
      if (!id || !joinable(piece(*id).kind)) return;
      queue.push({piece(*id).score, left, right, joined.size()});
      if (piece(*id).kind == Kind::unused) unused[joined] = {symbols[left].text, symbols[right].text};
    };
    for (size_t i = 1; i < symbols.size(); ++i) consider(i - 1, i);
    while (!queue.empty()) {
      const Pair pair = queue.top();
      queue.pop();
      Symbol &left = symbols[pair.left], &right = symbols[pair.right];
      if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != pair.size)
        continue;
      left.text = std::string_view(
          left.text.data(), pair.size);  // NOLINT(bugprone-suspicious-stringview-data-usage): neighbours
      left.next = right.next;
      if (right.next != kNone) symbols[right.next].previous = pair.left;
      right.text = {};
      consider(left.previous, pair.left);
      consider(pair.left, left.next);
    }
    Pieces pieces;
    const std::function<void(std::string_view)> give = [&](std::string_view part) {
      const auto id = vocab_.id_of(part);
      const auto parts = id && piece(*id).kind == Kind::unused ? unused.find(part) : unused.end();
      if (parts == unused.end()) return pieces.push_back(part);
      give(parts->second.first);
      give(parts->second.second);
    };
    for (size_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) give(symbols[i].text);
    return pieces;
  }

  static bool joinable(Kind kind) {
    return kind == Kind::normal || kind == Kind::user_defined || kind == Kind::unused;
  }

  SentencePieceFile file_;
  Vocabulary vocab_;
  ByteTrie pieces_, symbols_;
  float least_ = 0;  // score of a normal piece
};

}  // namespace

SentencePieceParts make_sentencepiece(const SentencePieceFile& file, const std::string& label,
                                      bool as_transformers) {
  return {std::make_unique<SentencePieceNormalizer>(file, label),
          std::make_unique<DummyPrefix>(file.add_dummy_prefix, as_transformers),
          std::make_unique<SentencePieceModel>(file)};
}

}  // namespace graft::io
