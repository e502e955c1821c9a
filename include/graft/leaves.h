// Which tensors a value holds: how compile() sees the arguments and results of a function.
//
// Tensors, numbers, strings, and optionals, vectors, arrays, pairs, tuples and maps of them are known. For a
// struct of yours say what it holds:
//
//   template <> struct graft::Leaves<Batch> {
//     static void visit(Batch& batch, LeafVisitor& visitor) { visit_leaves(visitor, batch.ids, batch.mask); }
//   };
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <bit>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace graft {

class LeafVisitor {
 public:
  virtual ~LeafVisitor() = default;
  /// May read the tensor or put another in its place.
  virtual void tensor(at::Tensor& tensor) = 0;
  /// What the function's code can see that is no tensor: a number, a length, whether something is there.
  /// Another value is another program.
  virtual void fixed(int64_t value) = 0;
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
      visitor.fixed(std::bit_cast<int64_t>(rounded));
      if constexpr (sizeof(T) > sizeof(double))  // what a double does not hold
        visitor.fixed(std::bit_cast<int64_t>(static_cast<double>(value - rounded)));
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

template <class T>
struct Leaves<std::map<std::string, T>> {
  static void visit(std::map<std::string, T>& value, LeafVisitor& visitor) {
    visitor.fixed(static_cast<int64_t>(value.size()));
    for (auto& [key, item] : value) {
      auto name = key;
      visit_leaves(visitor, name, item);
    }
  }
};

}  // namespace graft
