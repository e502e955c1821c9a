#include "bench/op_table.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::cli::bench {
namespace {

ordered_json between(const std::vector<int64_t>& shape, double low, double high) {
  return {{"shape", shape}, {"low", low}, {"high", high}};
}

}  // namespace

OpInput trained(const std::string& name, const std::vector<int64_t>& shape) {
  return {.name = name, .spec = {{"shape", shape}}, .trained = true};
}
OpInput trained(const std::string& name, const std::vector<int64_t>& shape, double low, double high) {
  return {.name = name, .spec = between(shape, low, high), .trained = true};
}
OpInput fixed(const std::string& name, const std::vector<int64_t>& shape) {
  return {.name = name, .spec = {{"shape", shape}}};
}
OpInput fixed(const std::string& name, const std::vector<int64_t>& shape, double low, double high) {
  return {.name = name, .spec = between(shape, low, high)};
}
OpInput whole(const std::string& name, const std::vector<int64_t>& shape, int64_t below) {
  return {.name = name, .spec = whole_numbers(shape, below)};
}
OpInput flags(const std::string& name, const std::vector<int64_t>& shape) {
  return {.name = name, .spec = {{"shape", shape}, {"dtype", "bool"}, {"below", 2}}};
}

const std::vector<Op>& all_ops() {
  static const std::vector<Op> all = [] {
    std::vector<Op> found;
    for (const auto& family :
         {activation_ops(), unary_ops(), binary_ops(), softmax_ops(), norm_ops(), loss_ops(), pooling_ops(),
          padding_ops(), upsampling_ops(), scan_ops(), indexing_ops(), movement_ops(), sorting_ops(),
          reduction_ops(), product_ops(), recurrent_ops(), composite_ops()})
      found.insert(found.end(), family.begin(), family.end());
    return found;
  }();
  return all;
}

const Op& op_named(const std::string& name) {
  const auto found = std::ranges::find(all_ops(), name, &Op::name);
  if (found == all_ops().end()) throw UsageError("[bench] the work \"" + name + "\" is unknown");
  return *found;
}

}  // namespace graft::cli::bench
