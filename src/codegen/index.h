// Integer expressions over loop variables: where in a buffer an element lies.
//
// An expression is a constant plus terms: coefficient * atom. An atom is a loop variable, or (e / c) or (e %
// c) of another expression with a positive constant. All variables run from 0 to their extent, so ranges are
// known and most divisions vanish: (8*i + j) / 8 is i where j < 8.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace graft::codegen {

struct Atom;

class Index {
 public:
  Index() = default;
  Index(int64_t constant) : constant_(constant) {}  // NOLINT(google-explicit-constructor): a number is one
  static Index variable(int number, int64_t extent);

  bool is_constant() const { return terms_.empty(); }
  int64_t constant() const { return constant_; }
  /// The smallest and the largest value it can have.
  int64_t min() const;
  int64_t max() const;
  /// Only variables, no division left.
  bool is_affine() const;
  /// Of a variable in an affine expression.
  int64_t coefficient(int variable) const;
  bool uses(int variable) const;

  Index operator+(const Index& other) const;
  Index operator-(const Index& other) const { return *this + other * -1; }
  Index operator*(int64_t factor) const;
  /// Rounded down; the divisor is positive.
  Index operator/(int64_t divisor) const;
  Index operator%(int64_t divisor) const;
  bool operator==(const Index& other) const;
  /// Any total order.
  bool operator<(const Index& other) const;

  /// Every variable replaced by what the table has for it.
  Index substitute(const std::vector<Index>& table) const;
  /// For every variable the divisors it meets, as far as they divide its extent or a multiple of it: where a
  /// loop may be split so that the divisions vanish.
  void collect_splits(std::map<int, std::vector<int64_t>>& splits) const;

  struct Term {
    int64_t coefficient;
    std::shared_ptr<const Atom> atom;
  };
  const std::vector<Term>& terms() const { return terms_; }

 private:
  /// The part whose coefficients are multiples of the divisor, and the rest (with what is left of the
  /// constant).
  std::pair<Index, Index> split(int64_t divisor) const;
  /// Divided by what divides all of it.
  Index exact(int64_t divisor) &&;

  int64_t constant_ = 0;
  std::vector<Term> terms_;  // sorted by atom, no zero coefficients
};

struct Atom {
  enum class Kind : uint8_t { variable, quotient, remainder } kind;
  int variable = 0;
  int64_t extent = 0;  // of the variable
  Index inside = {};
  int64_t divisor = 1;
};

/// "8*i0 + i1"
std::string to_string(const Index& index);

/// The place in a row-major numbering of `sizes`, and back.
Index linear(const std::vector<Index>& place, const std::vector<int64_t>& sizes);
std::vector<Index> unravel(const Index& number, const std::vector<int64_t>& sizes);

}  // namespace graft::codegen
