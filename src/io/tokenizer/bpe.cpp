#include "io/tokenizer/bpe.h"

#include <queue>

#include "io/format/quote.h"
#include "io/format/utf8.h"
#include "io/tokenizer/fields.h"

namespace graft::io {
namespace {

uint64_t pair_key(int64_t left, int64_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint64_t>(right);
}

}  // namespace

std::unique_ptr<BpeModel> BpeModel::from_fields(Fields& fields) {
  std::unique_ptr<BpeModel> model(new BpeModel(Vocabulary::from_fields(fields)));
  if (const auto* dropout = fields.find("dropout"); dropout && *dropout != 0)
    fields.fail("has a dropout, with which a text has no one encoding; it is not supported");
  model->prefix_ = fields.string("continuing_subword_prefix", "");
  model->suffix_ = fields.string("end_of_word_suffix", "");
  model->fuse_unk_ = fields.boolean("fuse_unk", false);
  model->byte_fallback_ = fields.boolean("byte_fallback", false);
  model->ignore_merges_ = fields.boolean("ignore_merges", false);
  if (fields.find("unk_token")) {
    const std::string unknown = fields.string("unk_token");
    model->unknown_ = model->vocab_.id_of(unknown);
    if (!model->unknown_) fields.fail("has the unknown token " + quote(unknown) + ", not in its vocabulary");
  }
  model->read_merges(fields);
  return model;
}

// "a b", or since 2024 ["a", "b"], which can have spaces in tokens.
void BpeModel::read_merges(Fields& fields) {
  const auto& list = fields.at("merges");
  if (!list.is_array()) fields.fail("has \"merges\" that are not a list");
  merges_.reserve(list.size());
  int64_t rank = 0;
  for (const auto& entry : list) {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      add_merge(fields, entry[0], entry[1], rank++);
      continue;
    }
    const std::string text = entry.is_string() ? entry.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos)
      fields.fail("has the merge " + entry.dump(-1, ' ', true) + ", which is not two tokens");
    add_merge(fields, text.substr(0, space), text.substr(space + 1), rank++);
  }
}

void BpeModel::add_merge(Fields& fields, const std::string& left, const std::string& right, int64_t rank) {
  const bool continues = right.size() >= prefix_.size();
  const std::string joined = left + (continues ? right.substr(prefix_.size()) : "");
  const auto need = [&](const std::string& token) {
    const auto id = vocab_.id_of(token);
    if (!id)
      fields.fail("has a merge of " + quote(left) + " and " + quote(right) + ", but no token " +
                  quote(token));
    return *id;
  };
  if (!continues)
    fields.fail("has a merge with " + quote(right) + ", shorter than the prefix of such tokens");
  merges_[pair_key(need(left), need(right))] = {rank, need(joined)};
}

const BpeModel::Merge* BpeModel::merge_of(int64_t left, int64_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int64_t> BpeModel::characters(std::string_view word) const {
  std::vector<int64_t> symbols;
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) symbols.push_back(*unknown_);
    unknown_waits = false;
  };
  for (size_t pos = 0; pos < word.size();) {
    const size_t start = pos;
    next_code_point(word, pos);
    std::string character(word.substr(start, pos - start));
    if (start > 0) character = prefix_ + character;
    if (pos == word.size()) character += suffix_;
    if (const auto id = vocab_.id_of(character)) {
      flush();
      symbols.push_back(*id);
      continue;
    }
    if (byte_fallback_) {
      // An unknown character before this one is still waiting, and comes after the bytes: so it does in the
      // Rust library.
      if (const auto bytes = vocab_.byte_tokens(character)) {
        symbols.insert(symbols.end(), bytes->begin(), bytes->end());
        continue;
      }
    }
    if (!unknown_) continue;
    if (!fuse_unk_) flush();
    unknown_waits = true;
  }
  flush();
  return symbols;
}

void BpeModel::merge_all(std::vector<int64_t>& symbols) const {
  struct Candidate {
    int64_t rank;
    size_t place;
    int64_t id;
    bool operator<(const Candidate& other) const {  // the queue gives the largest first
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  constexpr size_t none = static_cast<size_t>(-1);
  std::priority_queue<Candidate> queue;
  std::vector<size_t> previous(symbols.size()), next(symbols.size());
  const auto consider = [&](size_t left) {
    if (left == none || next[left] == none) return;
    if (const Merge* merge = merge_of(symbols[left], symbols[next[left]]))
      queue.push({merge->rank, left, merge->id});
  };
  constexpr int64_t gone = -1;
  for (size_t i = 0; i < symbols.size(); ++i) {
    previous[i] = i == 0 ? none : i - 1;
    next[i] = i + 1 == symbols.size() ? none : i + 1;
  }
  for (size_t i = 0; i < symbols.size(); ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, place, id] = queue.top();
    queue.pop();
    const size_t right = symbols[place] == gone ? none : next[place];
    if (right == none) continue;
    const Merge* merge = merge_of(symbols[place], symbols[right]);
    if (!merge || merge->id != id) continue;  // what was queued has changed since
    symbols[place] = id;
    symbols[right] = gone;
    next[place] = next[right];
    if (next[right] != none) previous[next[right]] = place;
    consider(previous[place]);
    consider(place);
  }
  std::erase(symbols, gone);
}

void BpeModel::tokenize(std::string_view word, std::vector<int64_t>& ids) const {
  if (ignore_merges_) {
    if (const auto id = vocab_.id_of(word)) return ids.push_back(*id);
  }
  auto symbols = characters(word);
  merge_all(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void BpeDecoder::decode(std::vector<std::string>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view space = i + 1 == tokens.size() ? "" : " ";
    for (size_t at = tokens[i].find(suffix_); at != std::string::npos && !suffix_.empty();
         at = tokens[i].find(suffix_, at + space.size()))
      tokens[i].replace(at, suffix_.size(), space);
  }
}

}  // namespace graft::io
