#include "codegen/index.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace graft::codegen {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

int compare(const Index& a, const Index& b);

int compare(const Atom& a, const Atom& b) {
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == Atom::Kind::variable) return a.variable < b.variable ? -1 : a.variable > b.variable;
  if (a.divisor != b.divisor) return a.divisor < b.divisor ? -1 : 1;
  return compare(a.inside, b.inside);
}

int compare(const Index& a, const Index& b) {
  if (a.terms().size() != b.terms().size()) return a.terms().size() < b.terms().size() ? -1 : 1;
  for (size_t i = 0; i < a.terms().size(); ++i) {
    if (const int c = compare(*a.terms()[i].atom, *b.terms()[i].atom)) return c;
    if (a.terms()[i].coefficient != b.terms()[i].coefficient)
      return a.terms()[i].coefficient < b.terms()[i].coefficient ? -1 : 1;
  }
  return a.constant() < b.constant() ? -1 : a.constant() > b.constant();
}

/// Of an atom: it starts at 0 or above.
std::pair<int64_t, int64_t> range(const Atom& atom) {
  switch (atom.kind) {
    case Atom::Kind::variable:
      return {0, std::max<int64_t>(atom.extent - 1, 0)};
    case Atom::Kind::quotient:
      return {floor_divide(atom.inside.min(), atom.divisor), floor_divide(atom.inside.max(), atom.divisor)};
    default:
      return {0, atom.divisor - 1};
  }
}

int64_t common_factor(const Index& index) {
  int64_t factor = std::abs(index.constant());
  for (const auto& term : index.terms()) factor = std::gcd(factor, term.coefficient);
  return factor;
}

}  // namespace

Index Index::variable(int number, int64_t extent) {
  if (extent == 1) return 0;
  Index index;
  index.terms_.push_back({1, std::make_shared<const Atom>(
                                 Atom{.kind = Atom::Kind::variable, .variable = number, .extent = extent})});
  return index;
}

std::pair<Index, Index> Index::split(int64_t divisor) const {
  Index multiple = floor_divide(constant_, divisor) * divisor, rest = constant_ - multiple.constant_;
  for (const auto& term : terms_) (term.coefficient % divisor == 0 ? multiple : rest).terms_.push_back(term);
  return {std::move(multiple), std::move(rest)};
}

Index Index::exact(int64_t divisor) && {
  constant_ /= divisor;
  for (auto& term : terms_) term.coefficient /= divisor;
  return std::move(*this);
}

int64_t Index::min() const {
  int64_t sum = constant_;
  for (const auto& [coefficient, atom] : terms_) {
    const auto [low, high] = range(*atom);
    sum += coefficient * (coefficient > 0 ? low : high);
  }
  return sum;
}

int64_t Index::max() const {
  int64_t sum = constant_;
  for (const auto& [coefficient, atom] : terms_) {
    const auto [low, high] = range(*atom);
    sum += coefficient * (coefficient > 0 ? high : low);
  }
  return sum;
}

bool Index::is_affine() const {
  return std::all_of(terms_.begin(), terms_.end(),
                     [](const Term& t) { return t.atom->kind == Atom::Kind::variable; });
}

int64_t Index::coefficient(int variable) const {
  for (const auto& term : terms_)
    if (term.atom->kind == Atom::Kind::variable && term.atom->variable == variable) return term.coefficient;
  return 0;
}

bool Index::uses(int variable) const {
  return std::any_of(terms_.begin(), terms_.end(), [&](const Term& t) {
    return t.atom->kind == Atom::Kind::variable ? t.atom->variable == variable
                                                : t.atom->inside.uses(variable);
  });
}

Index Index::operator+(const Index& other) const {
  if (other.terms_.empty() || terms_.empty()) {
    Index sum = other.terms_.empty() ? *this : other;
    sum.constant_ = constant_ + other.constant_;
    return sum;
  }
  Index sum = constant_ + other.constant_;
  auto a = terms_.begin(), b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    const int order = a == terms_.end() ? 1 : b == other.terms_.end() ? -1 : compare(*a->atom, *b->atom);
    if (order < 0) {
      sum.terms_.push_back(*a++);
    } else if (order > 0) {
      sum.terms_.push_back(*b++);
    } else {
      if (a->coefficient + b->coefficient != 0)
        sum.terms_.push_back({a->coefficient + b->coefficient, a->atom});
      ++a, ++b;
    }
  }
  return sum;
}

Index Index::operator*(int64_t factor) const {
  if (factor == 0) return 0;
  Index product = *this;
  product.constant_ *= factor;
  for (auto& term : product.terms_) term.coefficient *= factor;
  return product;
}

Index Index::operator/(int64_t divisor) const {
  if (divisor == 1) return *this;
  if (is_constant()) return floor_divide(constant_, divisor);
  auto [multiple, rest] = split(divisor);
  const auto quotient = std::move(multiple).exact(divisor);
  if (floor_divide(rest.min(), divisor) == floor_divide(rest.max(), divisor))
    return quotient + floor_divide(rest.min(), divisor);
  // (6*i + 3) / 4 is no simpler, (6*i + 4) / 4 is (3*i + 2) / 2.
  if (const int64_t factor = std::gcd(common_factor(rest), divisor); factor > 1)
    return quotient + std::move(rest).exact(factor) / (divisor / factor);
  // (e / a) / b is e / (a*b)
  if (rest.terms_.size() == 1 && rest.constant_ == 0 && rest.terms_[0].coefficient == 1 &&
      rest.terms_[0].atom->kind == Atom::Kind::quotient)
    return quotient + rest.terms_[0].atom->inside / (rest.terms_[0].atom->divisor * divisor);
  Index atom;
  atom.terms_.push_back({1, std::make_shared<const Atom>(
                                Atom{.kind = Atom::Kind::quotient, .inside = rest, .divisor = divisor})});
  return quotient + atom;
}

Index Index::operator%(int64_t divisor) const {
  if (divisor == 1) return 0;
  auto [multiple, rest] = split(divisor);
  if (rest.is_constant()) return rest.constant_ - floor_divide(rest.constant_, divisor) * divisor;
  if (const int64_t low = floor_divide(rest.min(), divisor); low == floor_divide(rest.max(), divisor))
    return rest - low * divisor;
  if (const int64_t factor = std::gcd(common_factor(rest), divisor); factor > 1)
    return (std::move(rest).exact(factor) % (divisor / factor)) * factor;
  // (e % (a*b)) % b is e % b
  if (rest.terms_.size() == 1 && rest.constant_ == 0 && rest.terms_[0].coefficient == 1 &&
      rest.terms_[0].atom->kind == Atom::Kind::remainder && rest.terms_[0].atom->divisor % divisor == 0)
    return rest.terms_[0].atom->inside % divisor;
  Index atom;
  atom.terms_.push_back({1, std::make_shared<const Atom>(
                                Atom{.kind = Atom::Kind::remainder, .inside = rest, .divisor = divisor})});
  return atom;
}

bool Index::operator==(const Index& other) const { return compare(*this, other) == 0; }
bool Index::operator<(const Index& other) const { return compare(*this, other) < 0; }

Index Index::substitute(const std::vector<Index>& table) const {
  Index sum = constant_;
  for (const auto& [coefficient, atom] : terms_) {
    switch (atom->kind) {
      case Atom::Kind::variable:
        sum = sum + table[static_cast<size_t>(atom->variable)] * coefficient;
        break;
      case Atom::Kind::quotient:
        sum = sum + (atom->inside.substitute(table) / atom->divisor) * coefficient;
        break;
      default:
        sum = sum + (atom->inside.substitute(table) % atom->divisor) * coefficient;
        break;
    }
  }
  return sum;
}

void Index::collect_splits(std::map<int, std::vector<int64_t>>& splits) const {
  for (const auto& term : terms_) {
    const auto& atom = *term.atom;
    if (atom.kind == Atom::Kind::variable) continue;
    for (const auto& [coefficient, inner] : atom.inside.terms_)
      if (inner->kind == Atom::Kind::variable && coefficient > 0 && atom.divisor % coefficient == 0)
        splits[inner->variable].push_back(atom.divisor / coefficient);
    atom.inside.collect_splits(splits);
  }
}

std::string to_string(const Index& index) {
  std::string text;
  const auto add = [&](int64_t coefficient, const std::string& what) {
    if (!text.empty())
      text += coefficient < 0 ? " - " : " + ";
    else if (coefficient < 0)
      text += "-";
    if (std::abs(coefficient) != 1 || what.empty())
      text += std::to_string(std::abs(coefficient)) + (what.empty() ? "" : "*");
    text += what;
  };
  for (const auto& [coefficient, atom] : index.terms()) {
    if (atom->kind == Atom::Kind::variable)
      add(coefficient, "i" + std::to_string(atom->variable));
    else
      add(coefficient, "(" + to_string(atom->inside) + ")" +
                           (atom->kind == Atom::Kind::quotient ? "/" : "%") + std::to_string(atom->divisor));
  }
  if (index.constant() != 0 || text.empty()) add(index.constant(), "");
  return text;
}

Index linear(const std::vector<Index>& place, const std::vector<int64_t>& sizes) {
  Index number;
  for (size_t i = 0; i < sizes.size(); ++i) number = number * sizes[i] + place[i];
  return number;
}

std::vector<Index> unravel(const Index& number, const std::vector<int64_t>& sizes) {
  std::vector<Index> place(sizes.size());
  int64_t inner = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    place[i] = i == 0 ? number / inner : (number / inner) % std::max<int64_t>(sizes[i], 1);
    inner *= std::max<int64_t>(sizes[i], 1);
  }
  if (!sizes.empty() && sizes[0] == 1) place[0] = 0;
  return place;
}

}  // namespace graft::codegen
