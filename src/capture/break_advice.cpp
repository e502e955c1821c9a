#include "capture/break_advice.h"

#include <unordered_map>

namespace graft {

std::string advice_for(std::string_view op) {
  static const std::unordered_map<std::string_view, const char*> advice = {
      {"aten::_local_scalar_dense",
       "Return the tensor and read it outside of the compiled function; in place of an `if` use "
       "at::where(condition, a, b)"},
      {"aten::is_nonzero", "In place of an `if` use at::where(condition, a, b)"},
      {"aten::equal",
       "Its answer changes: keep it a tensor, (a == b).all(), and use at::where in place of an `if`"},
      {"aten::allclose",
       "Its answer changes: keep it a tensor, at::isclose(a, b).all(), and use at::where in place of an "
       "`if`"},
      {"aten::nonzero", "Keep the mask: at::where(mask, x, 0), x * mask, or x.masked_fill(~mask, 0)"},
      {"aten::masked_select",
       "Keep the shape: at::where(mask, x, 0) or x * mask, and divide sums by mask.sum()"},
      {"aten::index", "A mask as an index: keep the shape with at::where(mask, x, 0) or x * mask"},
      {"aten::bincount", "Give it a minlength that is above all values"},
      {"aten::one_hot", "Give it the number of classes"},
      {"aten::ctc_loss", "Pad the targets: [batch, longest target], with scores [time, batch, classes]"},
      {"aten::repeat_interleave", "Give it output_size"},
  };
  const auto found = advice.find(op);
  return found != advice.end() ? found->second
                               : "Move it out of the compiled function, or compile what is before it and "
                                 "after it by themselves";
}

}  // namespace graft
