// Texts and a number for each, found by walking over bytes.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace graft::io {

class ByteTrie {
 public:
  void add(std::string_view text, int64_t value) {
    uint64_t node = 0;
    for (const char c : text) {
      const auto [edge, is_new] =
          edges_.emplace(node << 8 | static_cast<unsigned char>(c), static_cast<uint32_t>(values_.size()));
      if (is_new) values_.push_back(-1);
      node = edge->second;
    }
    values_[node] = value;
  }

  bool empty() const { return edges_.empty(); }

  /// Calls `use(end, value)` for each text that starts at `start`, from short to long.
  template <class Use>
  void each_at(std::string_view text, size_t start, Use use) const {
    uint64_t node = 0;
    for (size_t end = start; end < text.size();) {
      const auto edge = edges_.find(node << 8 | static_cast<unsigned char>(text[end]));
      if (edge == edges_.end()) return;
      node = edge->second;
      ++end;
      if (values_[node] >= 0) use(end, values_[node]);
    }
  }

  /// Where the longest text that starts at `start` ends; `start` if there is none.
  size_t longest_at(std::string_view text, size_t start) const {
    size_t longest = start;
    each_at(text, start, [&](size_t end, int64_t) { longest = end; });
    return longest;
  }

 private:
  std::unordered_map<uint64_t, uint32_t> edges_;  // (node, byte) -> node
  std::vector<int64_t> values_{-1};               // by node
};

}  // namespace graft::io
