// A case that export.py wrote: tensors, and calls of operators, as C++ code would make them.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace graft::opinfo {

using nlohmann::json;
using Tensors = std::vector<at::Tensor>;

inline at::ScalarType dtype_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (dtype != at::ScalarType::Undefined && c10::getDtypeNames(dtype).first == name) return dtype;
  }
  throw std::runtime_error("no dtype " + name);
}

template <class T>
T word_among(const std::string& word, std::initializer_list<std::pair<const char*, T>> known) {
  for (const auto& [name, value] : known)
    if (word == name) return value;
  throw std::runtime_error("unknown word " + word);
}

class Case {
 public:
  Case(const json& text, const char* memory) : text_(text), memory_(memory) {
    for (const auto& call : text_["calls"]) {
      const auto name = call["op"].get<std::string>();
      const auto dot = name.find('.');
      const auto op = c10::Dispatcher::singleton().findSchema(
          {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
      if (!op) throw std::runtime_error("no operator " + name);
      calls_.push_back({*op, &call["args"]});
    }
    const auto all = tensors_of(text_["storages"], text_["tensors"].size());
    constants_.assign(all.begin() + number_of_inputs(), all.end());
  }

  bool has_other_data() const { return !text_["others"].is_null(); }
  /// Its results hold what was in memory before.
  bool has_random_memory() const { return text_["random_memory"].get<bool>(); }

  /// New tensors. With `other`: the same but for what is in them.
  Tensors inputs(bool other) const {
    auto places = text_["storages"];
    if (other && has_other_data())
      for (size_t i = 0; i < text_["others"].size(); ++i) places[i] = text_["others"][i];
    return tensors_of(places, number_of_inputs());
  }

  /// The code. It calls operators through the dispatcher.
  Tensors run(const Tensors& inputs) const {
    Made made;
    for (const auto& [op, arguments] : calls_) {
      torch::jit::Stack stack;
      for (const auto& argument : op.schema().arguments()) {
        const auto given = arguments->find(argument.name());
        if (given != arguments->end())
          stack.push_back(value(*given, *argument.type(), inputs, made));
        else if (argument.default_value())
          stack.push_back(*argument.default_value());
        else
          throw std::runtime_error("no argument " + argument.name());
      }
      op.callBoxed(&stack);
      made.push_back(std::move(stack));
    }
    Tensors outputs;
    for (const auto& output : text_["outputs"]) outputs.push_back(tensor(output, inputs, made));
    return outputs;
  }

 private:
  using Made = std::vector<torch::jit::Stack>;

  size_t number_of_inputs() const { return text_["inputs"].get<size_t>(); }

  Tensors tensors_of(const json& places, size_t count) const {
    std::vector<at::Storage> storages;
    for (const auto& place : places) {
      const auto bytes = place[1].get<int64_t>();
      const auto memory = at::empty({bytes}, at::kByte);
      if (bytes) std::memcpy(memory.data_ptr(), memory_ + place[0].get<int64_t>(), bytes);
      storages.push_back(memory.storage());
    }
    Tensors tensors;
    for (size_t i = 0; i < count; ++i) {
      const auto& described = text_["tensors"][i];
      auto tensor = at::empty({0}, at::dtype(dtype_named(described["dtype"])));
      tensor.set_(storages[described["storage"].get<size_t>()], described["offset"].get<int64_t>(),
                  described["sizes"].get<std::vector<int64_t>>(),
                  described["strides"].get<std::vector<int64_t>>());
      if (described["conj"].get<bool>()) tensor._set_conj(true);
      if (described["neg"].get<bool>()) tensor._set_neg(true);
      if (described["grad"].get<bool>()) tensor.set_requires_grad(true);
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  at::Tensor tensor(const json& text, const Tensors& inputs, const Made& made) const {
    if (text.is_null()) return {};
    if (text.is_object() && text.contains("t")) {
      const auto i = text["t"].get<size_t>();
      return i < inputs.size() ? inputs[i] : constants_[i - inputs.size()];
    }
    if (!text.is_object() || !text.contains("r")) {
      // A number on its way into an operator, as at::Scalar becomes one.
      auto wrapped = at::scalar_to_tensor(scalar(text));
      wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
      return wrapped;
    }
    const auto& place = text.at("r");
    const auto& result = made[place[0].get<size_t>()][place[1].get<size_t>()];
    return place.size() == 2 ? result.toTensor() : result.toListRef()[place[2].get<size_t>()].toTensor();
  }

  static double real(const json& text) { return std::strtod(text.get<std::string>().c_str(), nullptr); }

  static at::Scalar scalar(const json& text) {
    if (text.is_boolean()) return text.get<bool>();
    if (text.is_number_integer()) return text.get<int64_t>();
    if (const auto number = text.find("f"); number != text.end()) return real(*number);
    const auto& parts = text.at("c");
    return c10::complex<double>(real(parts[0]), real(parts[1]));
  }

  c10::IValue value(const json& text, const c10::Type& type, const Tensors& inputs, const Made& made) const {
    using Kind = c10::TypeKind;
    if (type.kind() == Kind::TensorType) return tensor(text, inputs, made);
    if (text.is_null()) return {};
    if (const auto* optional = type.castRaw<c10::OptionalType>())
      return value(text, *optional->getElementType(), inputs, made);
    if (const auto* list = type.castRaw<c10::ListType>()) {
      c10::impl::GenericList items(list->getElementType());
      const auto add = [&](const json& item) {
        items.push_back(value(item, *list->getElementType(), inputs, made));
      };
      if (text.is_array())
        for (const auto& item : text) add(item);
      else  // one number stands for a list
        add(text);
      // Each kind of list is a kind of IValue.
      switch (list->getElementType()->kind()) {
        case Kind::TensorType:
          return c10::impl::toTypedList<at::Tensor>(items);
        case Kind::IntType:
        case Kind::SymIntType:
          return c10::impl::toTypedList<int64_t>(ints(items));
        case Kind::FloatType:
          return c10::impl::toTypedList<double>(items);
        case Kind::BoolType:
          return c10::impl::toTypedList<bool>(items);
        default:
          return items;
      }
    }
    if (text.is_object()) {
      if (const auto word = text.find("s"); word != text.end()) return word->get<std::string>();
      if (const auto word = text.find("dtype"); word != text.end())
        return static_cast<int64_t>(dtype_named(word->get<std::string>()));
      if (const auto word = text.find("device"); word != text.end())
        return at::Device(word->get<std::string>());
      if (const auto word = text.find("layout"); word != text.end())
        return static_cast<int64_t>(
            word_among<at::Layout>(word->get<std::string>(), {{"strided", at::kStrided},
                                                              {"sparse_coo", at::kSparse},
                                                              {"sparse_csr", at::kSparseCsr},
                                                              {"sparse_csc", at::kSparseCsc},
                                                              {"sparse_bsr", at::kSparseBsr},
                                                              {"sparse_bsc", at::kSparseBsc}}));
      if (const auto word = text.find("memory_format"); word != text.end())
        return static_cast<int64_t>(word_among<at::MemoryFormat>(
            word->get<std::string>(), {{"contiguous_format", at::MemoryFormat::Contiguous},
                                       {"preserve_format", at::MemoryFormat::Preserve},
                                       {"channels_last", at::MemoryFormat::ChannelsLast},
                                       {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}}));
    }
    const auto number = scalar(text);
    if (type.kind() == Kind::FloatType) return number.toDouble();
    if (type.kind() == Kind::BoolType) return number.toBool();
    if (type.kind() == Kind::IntType || type.kind() == Kind::SymIntType) return number.toLong();
    return number;
  }

  static c10::impl::GenericList ints(const c10::impl::GenericList& items) {
    c10::impl::GenericList made(c10::IntType::get());
    for (const c10::IValue& item : items) made.push_back(item.toInt());
    return made;
  }

  struct CallOfCase {
    c10::OperatorHandle op;
    const json* arguments;
  };

  const json& text_;
  const char* memory_;
  std::vector<CallOfCase> calls_;
  Tensors constants_;
};

}  // namespace graft::opinfo
