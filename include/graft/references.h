// Variables that a function takes by reference: whether two of them are one, and how a compiled call writes
// what the function would have put into them.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace graft::detail {

/// Memory of a variable: the object itself, or what a container keeps elsewhere.
struct Extent {
  const char *begin, *end;
};

template <class T>
void add_extents(const T& value, std::vector<Extent>& all) {
  const auto* begin = reinterpret_cast<const char*>(std::addressof(value));
  all.push_back({begin, begin + sizeof(T)});
  if constexpr (requires { std::tuple_size<T>::value; })
    std::apply([&](const auto&... element) { (add_extents(element, all), ...); }, value);
  else if constexpr (requires { value.begin() != value.end(); })
    for (const auto& element : value) add_extents(element, all);
  else if constexpr (requires { value.has_value(), *value; })
    if (value.has_value()) add_extents(*value, all);
}

template <class T>
std::vector<Extent> extents_of(const T& value) {
  std::vector<Extent> all;
  add_extents(value, all);
  return all;
}

inline bool overlap(const std::vector<Extent>& a, const std::vector<Extent>& b) {
  const std::less<> before;
  return std::any_of(a.begin(), a.end(), [&](const Extent& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Extent& y) { return before(x.begin, y.end) && before(y.begin, x.end); });
  });
}

/// Elements stay where they are, if there are as many: the caller may hold references to them.
template <class T>
void assign(T& from, T& to) {
  to = std::move(from);
}
template <class T>
void assign(std::vector<T>& from, std::vector<T>& to) {
  if (from.size() != to.size() || std::is_same_v<T, bool>) {
    to = std::move(from);
    return;
  }
  if constexpr (!std::is_same_v<T, bool>)
    for (size_t i = 0; i < to.size(); ++i) assign(from[i], to[i]);
}
template <class Map>
void assign_values(Map& from, Map& to) {
  const bool same_keys = from.size() == to.size() && std::all_of(to.begin(), to.end(), [&](const auto& item) {
                           return from.find(item.first) != from.end();
                         });
  if (!same_keys) {
    to = std::move(from);
    return;
  }
  for (auto& [key, value] : to) assign(from.find(key)->second, value);
}
template <class K, class V>
void assign(std::map<K, V>& from, std::map<K, V>& to) {
  assign_values(from, to);
}
template <class K, class V>
void assign(std::unordered_map<K, V>& from, std::unordered_map<K, V>& to) {
  assign_values(from, to);
}

}  // namespace graft::detail
