// Which tensors a value holds: how compile() sees the arguments and results of a function.
//
// Tensors, numbers, strings, devices, and optionals, vectors, arrays, pairs, tuples, maps and
// torch::data::Example of them are known, c10::IntArrayRef as an argument. For a struct of yours say what it
// holds:
//
//   template <> struct graft::Leaves<Batch> {
//     static void visit(Batch& batch, LeafVisitor& visitor) { visit_leaves(visitor, batch.ids, batch.mask); }
//   };
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::data {
template <typename Data, typename Target>
struct Example;
}  // namespace torch::data

namespace graft {

class LeafVisitor {
 public:
  virtual ~LeafVisitor() = default;
  /// May read the tensor or put another in its place.
  virtual void tensor(at::Tensor& tensor) = 0;
  /// What the function's code can see that is no tensor: a number, a length, whether something is there.
  /// Another value is another program.
  virtual void fixed(int64_t value) = 0;
  /// One of these that operators may take as an operand: a whole number, or the bits of a double. One that
  /// differs from call to call becomes an input of the program where it can.
  virtual void number(int64_t bits) { fixed(bits); }
  /// This value cannot be part of a compiled call; it runs eagerly and says why.
  virtual void refuse(const char* why) = 0;
  /// What the caller's own value must note on the host once the call is done, however it was run: a compiled
  /// call changes tensors, and no counters of the function's code.
  virtual void afterwards(const std::function<void()>& note) { static_cast<void>(note); }
};

/// Specialise it for your own types.
template <class T>
struct Leaves {
  static void visit(T& value, LeafVisitor& visitor) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                  "graft::compile does not know which tensors this type holds: specialise graft::Leaves<T>");
    if constexpr (std::is_floating_point_v<T>) {
      const auto rounded = static_cast<double>(value);
      visitor.number(std::bit_cast<int64_t>(rounded));
      if constexpr (sizeof(T) > sizeof(double))  // what a double does not hold
        visitor.fixed(std::bit_cast<int64_t>(static_cast<double>(value - rounded)));
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      visitor.number(static_cast<int64_t>(value));
    } else {
      visitor.fixed(static_cast<int64_t>(value));
    }
  }
};

template <class... T>
void visit_leaves(LeafVisitor& visitor, T&... values) {
  (Leaves<T>::visit(values, visitor), ...);
}

template <>
struct Leaves<at::Tensor> {
  static void visit(at::Tensor& value, LeafVisitor& visitor) { visitor.tensor(value); }
};

template <>
struct Leaves<std::string> {
  static void visit(std::string& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.size()));
    for (const char c : value) visitor.fixed(c);
  }
};

template <class T>
struct Leaves<std::optional<T>> {
  static void visit(std::optional<T>& value, LeafVisitor& visitor) {
    visitor.fixed(value.has_value());
    if (value) Leaves<T>::visit(*value, visitor);
  }
};

template <class T>
struct Leaves<std::vector<T>> {
  static void visit(std::vector<T>& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.size()));
    if constexpr (std::is_same_v<T, bool>) {
      for (const bool item : value) visitor.fixed(item);
    } else {
      for (auto& item : value) Leaves<T>::visit(item, visitor);
    }
  }
};

template <class T, size_t n>
struct Leaves<std::array<T, n>> {
  static void visit(std::array<T, n>& value, LeafVisitor& visitor) {
    for (auto& item : value) Leaves<T>::visit(item, visitor);
  }
};

template <class A, class B>
struct Leaves<std::pair<A, B>> {
  static void visit(std::pair<A, B>& value, LeafVisitor& visitor) {
    visit_leaves(visitor, value.first, value.second);
  }
};

template <class... T>
struct Leaves<std::tuple<T...>> {
  static void visit(std::tuple<T...>& value, LeafVisitor& visitor) {
    std::apply([&](auto&... items) { visit_leaves(visitor, items...); }, value);
  }
};

template <class K, class T>
struct Leaves<std::map<K, T>> {
  static void visit(std::map<K, T>& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.size()));
    for (auto& [key, item] : value) {
      auto name = key;
      visit_leaves(visitor, name, item);
    }
  }
};

/// In the order of the keys: its own order says nothing.
template <class K, class T>
struct Leaves<std::unordered_map<K, T>> {
  static void visit(std::unordered_map<K, T>& value, LeafVisitor& visitor) {
    std::map<K, T*> ordered;
    for (auto& [key, item] : value) ordered.emplace(key, &item);
    visitor.fixed(static_cast<int64_t>(value.size()));
    for (auto& [key, item] : ordered) {
      auto name = key;
      visit_leaves(visitor, name, *item);
    }
  }
};

template <>
struct Leaves<c10::Device> {
  static void visit(c10::Device& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.type()));
    visitor.fixed(value.index());
  }
};

template <class T>
struct Leaves<c10::ArrayRef<T>> {
  static_assert(
      std::is_arithmetic_v<T>,
      "graft::compile: a c10::ArrayRef of what may hold tensors does not own them; take a std::vector");
  static void visit(c10::ArrayRef<T>& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.size()));
    for (auto item : value) Leaves<T>::visit(item, visitor);
  }
};

template <class Data, class Target>
struct Leaves<torch::data::Example<Data, Target>> {
  static void visit(torch::data::Example<Data, Target>& value, LeafVisitor& visitor) {
    visit_leaves(visitor, value.data);
    if constexpr (!std::is_void_v<Target>) visit_leaves(visitor, value.target);
  }
};

// --- variables that a function takes by reference: whether two of them are one, and how a compiled call
// writes what the function would have put into them

namespace detail {

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
void assign_map(Map& from, Map& to) {
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
  assign_map(from, to);
}
template <class K, class V>
void assign(std::unordered_map<K, V>& from, std::unordered_map<K, V>& to) {
  assign_map(from, to);
}

template <class T>
inline constexpr bool is_array_ref = false;
template <class T>
inline constexpr bool is_array_ref<c10::ArrayRef<T>> = true;

}  // namespace detail

}  // namespace graft
