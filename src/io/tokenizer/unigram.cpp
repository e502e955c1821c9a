#include "io/tokenizer/unigram.h"

#include <algorithm>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"

namespace graft::io {
namespace {
constexpr double kUnknownPenalty = 10;  // SentencePiece's
constexpr size_t kNone = static_cast<size_t>(-1);
}  // namespace

std::unique_ptr<UnigramModel> UnigramModel::from_fields(Fields& fields) {
  const auto& list = fields.at("vocab");
  if (!list.is_array()) fields.fail("has a \"vocab\" that is not a list");
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<double> scores;
  vocab.reserve(list.size());
  scores.reserve(list.size());
  for (const auto& entry : list) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      fields.fail("has in its \"vocab\" " + quote(entry.dump(-1, ' ', true)) +
                  ", which is not a piece and a score");
    vocab.emplace_back(entry[0], static_cast<int64_t>(vocab.size()));
    scores.push_back(entry[1]);
  }
  std::unique_ptr<UnigramModel> model(new UnigramModel(Vocabulary(vocab), std::move(scores)));
  if (fields.find("unk_id")) model->unknown_ = fields.number("unk_id");
  if (model->unknown_ && *model->unknown_ >= model->vocab_.size())
    fields.fail("has the unk_id " + std::to_string(*model->unknown_) + ", beyond its vocabulary");
  model->byte_fallback_ = fields.boolean("byte_fallback", false);
  return model;
}

UnigramModel::UnigramModel(Vocabulary vocab, std::vector<double> scores)
    : vocab_(std::move(vocab)), scores_(std::move(scores)), ends_{-1} {
  least_score_ = scores_.empty() ? 0 : *std::min_element(scores_.begin(), scores_.end());
  for (int64_t id = 0; id < vocab_.size(); ++id) {
    uint64_t node = 0;
    for (const char c : *vocab_.token_of(id)) {
      const auto [edge, is_new] =
          edges_.emplace(node << 8 | static_cast<unsigned char>(c), static_cast<uint32_t>(ends_.size()));
      if (is_new) ends_.push_back(-1);
      node = edge->second;
    }
    ends_[node] = id;  // of a piece that comes twice, the last
  }
  ends_[0] = -1;  // the empty piece is none
}

int64_t UnigramModel::unknown() const {
  if (!unknown_)
    throw UsageError("[tokenizer] the text has a character in no piece, and the tokenizer no unknown token");
  return *unknown_;
}

std::vector<UnigramModel::Step> UnigramModel::best_steps(std::string_view word) const {
  std::vector<Step> best(word.size() + 1);
  for (size_t start = 0; start < word.size();) {
    size_t after = start;
    next_code_point(word, after);
    const double score_here = best[start].score;
    bool whole_character = false;
    const auto offer = [&](size_t end, int64_t id, double score) {
      if (best[end].start == kNone || score + score_here > best[end].score)
        best[end] = {id, score + score_here, start};
    };
    uint64_t node = 0;
    for (size_t end = start; end < word.size();) {
      const auto edge = edges_.find(node << 8 | static_cast<unsigned char>(word[end]));
      if (edge == edges_.end()) break;
      node = edge->second;
      ++end;
      if (ends_[node] < 0) continue;
      offer(end, ends_[node], scores_[static_cast<size_t>(ends_[node])]);
      whole_character |= end == after;
    }
    if (!whole_character) offer(after, unknown(), least_score_ - kUnknownPenalty);
    start = after;
  }
  return best;
}

void UnigramModel::add_piece(std::string_view piece, std::vector<int64_t>& ids) const {
  if (const auto id = vocab_.id_of(piece)) return ids.push_back(*id);
  if (byte_fallback_) {
    if (const auto bytes = vocab_.byte_tokens(piece)) {
      ids.insert(ids.end(), bytes->begin(), bytes->end());
      return;
    }
  }
  ids.push_back(unknown());
}

void UnigramModel::tokenize(std::string_view word, std::vector<int64_t>& ids) const {
  const auto best = best_steps(word);
  std::vector<std::string_view> pieces;  // from the last to the first
  bool after_unknown = false;
  for (size_t end = word.size(); end > 0; end = best[end].start) {
    const size_t start = best[end].start;
    const bool is_unknown = unknown_ && best[end].id == *unknown_;
    if (is_unknown && after_unknown)
      pieces.back() = word.substr(start, pieces.back().size() + (end - start));
    else
      pieces.push_back(word.substr(start, end - start));
    after_unknown = is_unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) add_piece(*piece, ids);
}

std::unique_ptr<WordLevelModel> WordLevelModel::from_fields(Fields& fields) {
  Vocabulary vocab = Vocabulary::from_fields(fields);
  const std::string token = fields.string("unk_token");
  const auto unknown = vocab.id_of(token);
  if (!unknown) fields.fail("has the unknown token " + quote(token) + ", not in its vocabulary");
  return std::unique_ptr<WordLevelModel>(new WordLevelModel(std::move(vocab), *unknown));
}

void WordLevelModel::tokenize(std::string_view word, std::vector<int64_t>& ids) const {
  ids.push_back(vocab_.id_of(word).value_or(unknown_));
}

}  // namespace graft::io
