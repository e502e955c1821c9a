// Foresees what is used next, from what was used so far. Nobody has to say in which order a model runs its
// parts, forward or backward.
#pragma once
#include <deque>
#include <map>
#include <vector>

namespace graft::train {

/// What comes next is what came the last time after the same items, as many of them as are known: after block
/// 3 comes block 4 going forward and block 2 going back, after an embedding that is the head as well the
/// first block or the last. A default Item stands for nothing.
template <class Item>
class UseOrder {
 public:
  UseOrder() { begin(); }

  /// `item` is used now. Gives what will be next, or nothing where that is not known.
  Item used(const Item& item) {
    learn(item);
    recent_.pop_front();
    recent_.push_back(numbers_.try_emplace(item, static_cast<int>(numbers_.size()) + 1).first->second);
    for (size_t length = kMost; length >= kFewest; --length)
      if (const auto found = after_.find(last(length)); found != after_.end()) return found->second;
    return Item();
  }

  /// What comes now does not follow from what was: a step begins.
  void begin() {
    if (!recent_.empty()) learn(Item());
    recent_.assign(kMost, kStart);
  }

 private:
  /// One would not tell forward from backward; regions of a backward pass take turns, but not for long.
  static constexpr size_t kFewest = 2, kMost = 8;
  static constexpr int kStart = 0;

  void learn(const Item& next) {
    if (recent_.back() == kStart) return;
    for (size_t length = kFewest; length <= kMost; ++length) after_[last(length)] = next;
  }
  std::vector<int> last(size_t length) const { return {recent_.end() - length, recent_.end()}; }

  std::map<Item, int> numbers_;
  std::deque<int> recent_;
  std::map<std::vector<int>, Item> after_;
};

}  // namespace graft::train
