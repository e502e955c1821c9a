#include "runtime/epilogue.h"

#include <ATen/ATen.h>

#include <unordered_map>

#include "ir/arguments.h"

namespace graft::runtime {

std::optional<Epilogue> epilogue_of(const ir::Node& node) {
  static const std::unordered_map<std::string, Epilogue> known{{"aten::relu", Epilogue::relu},
                                                               {"aten::silu", Epilogue::silu},
                                                               {"aten::sigmoid", Epilogue::sigmoid},
                                                               {"aten::tanh", Epilogue::tanh}};
  if (node.op() == "aten::gelu") {
    const auto form = ir::string_of(node, "approximate").value_or("none");
    if (form == "none") return Epilogue::gelu;
    if (form == "tanh") return Epilogue::gelu_tanh;
    return std::nullopt;
  }
  const auto found = known.find(node.op());
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

OneDnnName one_dnn_name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::relu:
      return {"relu", ""};
    case Epilogue::gelu:
      return {"gelu", "none"};
    case Epilogue::gelu_tanh:
      return {"gelu", "tanh"};
    case Epilogue::silu:
      return {"swish", ""};
    case Epilogue::sigmoid:
      return {"sigmoid", ""};
    case Epilogue::tanh:
      return {"tanh", ""};
    case Epilogue::none:
      break;
  }
  return {"none", ""};
}

at::Tensor apply(Epilogue epilogue, const at::Tensor& x) {
  switch (epilogue) {
    case Epilogue::relu:
      return at::relu(x);
    case Epilogue::gelu:
      return at::gelu(x);
    case Epilogue::gelu_tanh:
      return at::gelu(x, "tanh");
    case Epilogue::silu:
      return at::silu(x);
    case Epilogue::sigmoid:
      return at::sigmoid(x);
    case Epilogue::tanh:
      return at::tanh(x);
    case Epilogue::none:
      break;
  }
  return x;
}

}  // namespace graft::runtime
