#include "ir/upsampling.h"

#include <algorithm>
#include <cmath>

#include "ir/arguments.h"

namespace graft::ir {
namespace {

/// What one step in the output is in the input: from the factor that the call names, or from the sizes.
template <class T>
T upsampling_step(const Node& node, size_t dim, int64_t from, int64_t to) {
  const auto factor = upsampling_factor(node, dim);
  return factor && *factor > 0 ? static_cast<T>(1 / *factor) : static_cast<T>(from) / static_cast<T>(to);
}

template <class T>
bool takes_quotients_in(const Node& node, bool exact, size_t dim, int64_t from, int64_t to) {
  const T step = upsampling_step<T>(node, dim, from, to), half = static_cast<T>(0.5);
  for (int64_t i = 0; i < to; ++i) {
    const int64_t quotient = exact ? (2 * i + 1) * from / (2 * to) : i * from / to;
    const auto at = static_cast<T>(i);
    const T place = exact ? (at + half) * step : at * step;
    const T other = exact ? std::max(step * (at + half) - half, T(0)) + half : place;
    for (const T x : {place, other})
      if (std::min(static_cast<int64_t>(std::floor(static_cast<float>(x))), from - 1) != quotient)
        return false;
  }
  return true;
}

}  // namespace

std::optional<double> upsampling_factor(const Node& node, size_t dim) {
  constexpr const char* names[] = {"scales_d", "scales_h", "scales_w"};
  const size_t dims = ints_of(node, "output_size")->size();
  return number_of(node, dims == 1 ? "scales" : names[3 - dims + dim - 2]);
}

bool takes_quotients(const Node& node, bool exact, size_t dim, int64_t from, int64_t to) {
  return takes_quotients_in<float>(node, exact, dim, from, to) &&
         takes_quotients_in<double>(node, exact, dim, from, to);
}

}  // namespace graft::ir
