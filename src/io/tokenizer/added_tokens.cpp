#include "io/tokenizer/added_tokens.h"

#include <algorithm>
#include <map>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"

namespace graft::io {

// A trie over bytes. The scan asks it at every position of the text, and nearly always the first byte says
// no.
class AddedTokens::Trie {
 public:
  /// False if the pattern is there already.
  bool add(std::string_view pattern, size_t token) {
    size_t node = 0;
    for (const char byte : pattern) {
      const auto [it, is_new] = nodes_[node].next.emplace(byte, nodes_.size());
      node = it->second;
      if (is_new) nodes_.emplace_back();
    }
    if (nodes_[node].token != none) return false;
    nodes_[node].token = token;
    return true;
  }

  struct Match {
    size_t token, start, end;
  };
  /// The leftmost match at or after `from`, the longest one there.
  bool find(std::string_view text, size_t from, Match& match) const {
    for (size_t start = from; start < text.size(); ++start) {
      bool found = false;
      for (size_t node = 0, at = start; at < text.size(); ++at) {
        const auto it = nodes_[node].next.find(text[at]);
        if (it == nodes_[node].next.end()) break;
        node = it->second;
        if (nodes_[node].token == none) continue;
        match = {nodes_[node].token, start, at + 1};
        found = true;
      }
      if (found) return true;
    }
    return false;
  }

 private:
  static constexpr size_t none = static_cast<size_t>(-1);
  struct Node {
    std::map<char, size_t> next;
    size_t token = none;
  };
  std::vector<Node> nodes_{1};
};

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, bool (*is_word)(char32_t))
    : tokens_(std::move(tokens)),
      is_word_(is_word),
      raw_(std::make_unique<Trie>()),
      normalized_(std::make_unique<Trie>()) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    const std::string name = "[tokenizer] the added token " + quote(token.content);
    if (token.pattern.empty()) throw ConfigError(name + " is empty once it is normalized");
    if (!by_content_.emplace(token.content, i).second) throw ConfigError(name + " is listed twice");
    if (!by_id_.emplace(token.id, i).second)
      throw ConfigError(name + " has the id " + std::to_string(token.id) + " of another added token");
    // Python takes whichever its hash table gives it first: there is no right answer to agree with.
    if (!(token.normalized ? normalized_ : raw_)->add(token.pattern, i))
      throw ConfigError(name + " and another one are both " + quote(token.pattern) +
                        " once they are normalized");
    if (token.special) special_.insert(token.content);
  }
}

AddedTokens::~AddedTokens() = default;

bool AddedTokens::stands_alone(std::string_view text, size_t start, size_t end) const {
  if (start > 0) {
    size_t before = previous_code_point(text, start);
    if (is_word_(next_code_point(text, before))) return false;
  }
  return end == text.size() || !is_word_(next_code_point(text, end));
}

std::vector<AddedTokens::Span> AddedTokens::split(std::string_view text, bool normalized) const {
  const Trie& trie = normalized ? *normalized_ : *raw_;
  std::vector<Span> spans;
  size_t done = 0;  // everything before is in spans
  Trie::Match match;
  // The search continues where the bare match ended, also where the match is refused or has swallowed more
  // white space: so does Rust's.
  for (size_t from = 0; trie.find(text, from, match); from = match.end) {
    const AddedToken& token = tokens_[match.token];
    auto [index, start, end] = match;
    if (token.single_word && !stands_alone(text, start, end)) continue;
    if (token.lstrip) start = std::max(trim_end(text.substr(0, start)).size(), done);
    if (token.rstrip) {
      for (size_t next = end; next < text.size(); end = next)
        if (!is_white_space(next_code_point(text, next))) break;
    }
    if (done < start) spans.push_back({-1, text.substr(done, start - done)});
    spans.push_back({token.id, text.substr(start, end - start)});
    done = end;
  }
  if (done != text.size()) spans.push_back({-1, text.substr(done)});
  return spans;
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

}  // namespace graft::io
