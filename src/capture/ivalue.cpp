#include "capture/ivalue.h"

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>

#include <charconv>

#include "graft/error.h"

namespace graft {
namespace {

struct DTypePair {
  ir::DType graph;
  at::ScalarType torch;
};
constexpr DTypePair dtypes[] = {
    {ir::DType::f64, at::kDouble},
    {ir::DType::f32, at::kFloat},
    {ir::DType::f16, at::kHalf},
    {ir::DType::bf16, at::kBFloat16},
    {ir::DType::i64, at::kLong},
    {ir::DType::i32, at::kInt},
    {ir::DType::i16, at::kShort},
    {ir::DType::i8, at::kChar},
    {ir::DType::u8, at::kByte},
    {ir::DType::boolean, at::kBool},
    {ir::DType::c64, at::kComplexFloat},
    {ir::DType::c128, at::kComplexDouble},
    {ir::DType::f8_e4m3, at::kFloat8_e4m3fn},
    {ir::DType::f8_e5m2, at::kFloat8_e5m2},
    {ir::DType::u16, at::kUInt16},
    {ir::DType::u32, at::kUInt32},
    {ir::DType::u64, at::kUInt64},
};

constexpr std::pair<std::string_view, at::Layout> layouts[] = {
    {"strided", at::kStrided}, {"sparse_coo", at::kSparse}, {"mkldnn", at::kMkldnn}};
constexpr std::pair<std::string_view, at::MemoryFormat> memory_formats[] = {
    {"contiguous_format", at::MemoryFormat::Contiguous},
    {"preserve_format", at::MemoryFormat::Preserve},
    {"channels_last", at::MemoryFormat::ChannelsLast},
    {"channels_last_3d", at::MemoryFormat::ChannelsLast3d}};

template <class T, size_t n>
std::optional<ir::Attribute> symbol_of(const std::pair<std::string_view, T> (&table)[n], T value) {
  for (const auto& [name, entry] : table)
    if (entry == value) return ir::Symbol{std::string(name)};
  return std::nullopt;
}

template <class T, size_t n>
T symbol_value(const std::pair<std::string_view, T> (&table)[n], const ir::Symbol& symbol) {
  for (const auto& [name, entry] : table)
    if (name == symbol.name) return entry;
  throw Error("[graph] '" + symbol.name + " is not a word known here");
}

const c10::Type& unwrapped(const c10::Type* type) {
  const auto* optional = type->castRaw<c10::OptionalType>();
  return optional ? *optional->getElementType() : *type;
}

std::optional<ir::Attribute> list_attribute(const c10::IValue& value) {
  if (value.isIntList()) return value.toIntVector();
  if (value.isDoubleList()) return value.toDoubleVector();
  if (value.isBoolList()) {
    const auto list = value.toBoolList();
    return std::vector<bool>(list.begin(), list.end());
  }
  // Symbolic sizes that hold plain numbers come as a generic list.
  const auto items = value.toListRef();
  std::vector<int64_t> ints;
  for (const auto& item : items) {
    if (item.isInt())
      ints.push_back(item.toInt());
    else if (item.isSymInt() && item.toSymInt().maybe_as_int())
      ints.push_back(*item.toSymInt().maybe_as_int());
    else
      return std::nullopt;
  }
  return ints;
}

c10::IValue int_value(int64_t value, const c10::Type& type) {
  // A whole number may stand for a double where the schema asks for one.
  if (type.kind() == c10::TypeKind::FloatType) return static_cast<double>(value);
  return value;
}

}  // namespace

ir::DType to_ir(at::ScalarType type) {
  for (const auto& [graph, torch] : dtypes)
    if (torch == type) return graph;
  throw UsageError(std::string("[compile] tensors of dtype ") + c10::toString(type) + " are not supported");
}

at::ScalarType to_torch(ir::DType type) {
  for (const auto& [graph, torch] : dtypes)
    if (graph == type) return torch;
  throw UsageError("[compile] unknown dtype");
}

ir::Device to_ir(const at::Device& device) {
  const int index = device.has_index() ? device.index() : 0;
  if (device.is_cpu()) return {ir::Device::Kind::cpu, 0};
  if (device.is_cuda()) return {ir::Device::Kind::cuda, index};
  if (device.is_meta()) return {ir::Device::Kind::meta, 0};
  throw UsageError("[compile] tensors on " + device.str() + " are not supported; known: cpu, cuda");
}

at::Device to_torch(const ir::Device& device) {
  switch (device.kind) {
    case ir::Device::Kind::cpu:
      return at::kCPU;
    case ir::Device::Kind::meta:
      return at::kMeta;
    case ir::Device::Kind::cuda:
      return {at::kCUDA, static_cast<at::DeviceIndex>(device.index)};
  }
  throw UsageError("[compile] unknown device");
}

ir::TensorType type_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided)
    throw UsageError("[compile] only strided tensors can be compiled, this one is " +
                     std::string(tensor.layout() == at::kSparse ? "sparse" : "of another layout"));
  return {to_ir(tensor.scalar_type()), tensor.sizes().vec(), tensor.strides().vec(), to_ir(tensor.device())};
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

namespace {

ByteRange bytes_of(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset, int64_t element) {
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return {offset * element, offset * element};
    last += (sizes[d] - 1) * strides[d];
  }
  return {offset * element, (last + 1) * element};
}

}  // namespace

ByteRange bytes_of(const at::Tensor& tensor) {
  return bytes_of(tensor.sizes(), tensor.strides(), tensor.storage_offset(),
                  static_cast<int64_t>(tensor.element_size()));
}

ByteRange bytes_of(const ir::TensorType& type, int64_t offset) {
  return bytes_of(type.sizes, type.strides, offset, static_cast<int64_t>(ir::size_of(type.dtype)));
}

bool may_lie_apart(const at::Tensor& a, const at::Tensor& b) {
  if (!a.requires_grad() && !b.requires_grad()) return false;
  const auto mine = bytes_of(a), others = bytes_of(b);
  return !mine.meets(others) && !mine.empty() && !others.empty();
}

bool have_common_elements(const at::Tensor& a, const at::Tensor& b) {
  if (!storage_of(a) || storage_of(a) != storage_of(b)) return false;
  const auto x = bytes_of(a), y = bytes_of(b);
  if (!x.meets(y)) return false;
  if (a.element_size() != b.element_size()) return true;
  const auto size = static_cast<int64_t>(a.element_size());
  const int64_t first = std::min(x.begin, y.begin) / size, end = std::max(x.end, y.end) / size;
  const auto marks = at::zeros({end - first}, at::kBool);
  const auto of = [&](const at::Tensor& t) {
    return marks.as_strided(t.sizes(), t.strides(), t.storage_offset() - first);
  };
  of(a).fill_(true);
  return of(b).any().item<bool>();
}

bool lies_within(const at::Tensor& part, const ir::TensorType& whole, int64_t offset) {
  if (part.numel() == 0) return true;
  const auto mine = bytes_of(part), all = bytes_of(whole, offset);
  if (mine.begin < all.begin || mine.end > all.end) return false;
  if (whole.is_dense()) return true;
  if (part.scalar_type() != to_torch(whole.dtype)) return false;
  const auto marks = at::zeros({whole.span()}, at::kBool);
  marks.as_strided(whole.sizes, whole.strides, 0).fill_(true);
  return marks.as_strided(part.sizes(), part.strides(), part.storage_offset() - offset).all().item<bool>();
}

at::Tensor row_of(const at::Tensor& tensor) {
  return tensor.as_strided({type_of(tensor).span()}, {1}, tensor.storage_offset());
}

at::Tensor copy_as_it_lies(const at::Tensor& tensor, int64_t offset) {
  const at::NoGradGuard no_grad;
  // What is in memory, whatever bits say how to read it.
  auto row = row_of(tensor.detach());
  if (row.is_conj()) row = row.conj();
  if (row.is_neg()) row = at::_neg_view(row);
  const auto memory = at::empty({offset + row.numel()}, row.options());
  memory.slice(0, offset).copy_(row);
  // A tensor of its own: autograd would take it for a view that was made without gradients.
  auto copy = memory.as_strided(tensor.sizes(), tensor.strides(), offset).variable_data();
  copy._set_conj(tensor.is_conj());
  copy._set_neg(tensor.is_neg());
  return copy;
}

std::string name_of(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

c10::OperatorHandle operator_named(const std::string& name) {
  const auto dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  if (!found) throw Error("[graph] torch has no operator " + name);
  return *found;
}

std::optional<ir::Attribute> to_attribute(const c10::IValue& value, const c10::Type& declared,
                                          std::vector<at::Generator>& generators) {
  const auto& type = unwrapped(&declared);
  if (value.isNone()) return ir::None{};
  if (value.isBool()) return value.toBool();
  if (value.isInt() || value.isSymInt()) {
    const auto number = value.isInt() ? std::optional(value.toInt()) : value.toSymInt().maybe_as_int();
    if (!number) return std::nullopt;
    switch (type.kind()) {
      case c10::TypeKind::ScalarTypeType:
        return to_ir(static_cast<at::ScalarType>(*number));
      case c10::TypeKind::LayoutType:
        return symbol_of(layouts, static_cast<at::Layout>(*number));
      case c10::TypeKind::MemoryFormatType:
        return symbol_of(memory_formats, static_cast<at::MemoryFormat>(*number));
      default:
        return *number;
    }
  }
  if (value.isDouble()) return value.toDouble();
  if (value.isComplexDouble()) return std::complex<double>(value.toComplexDouble());
  if (value.isString()) return value.toStringRef();
  if (value.isDevice()) return to_ir(value.toDevice());
  if (value.isGenerator()) {
    generators.push_back(value.toGenerator());
    return ir::Symbol{std::string(generator_symbol) + std::to_string(generators.size() - 1)};
  }
  if (value.isList()) return list_attribute(value);
  return std::nullopt;
}

c10::IValue to_ivalue(const ir::Attribute& attribute, const c10::Type& declared,
                      const std::vector<at::Generator>& generators) {
  const auto& type = unwrapped(&declared);
  struct Convert {
    const c10::Type& type;
    const std::vector<at::Generator>& generators;
    c10::IValue operator()(const ir::None&) const { return {}; }
    c10::IValue operator()(const ir::Undefined&) const { return at::Tensor(); }
    c10::IValue operator()(bool v) const { return v; }
    c10::IValue operator()(int64_t v) const { return int_value(v, type); }
    c10::IValue operator()(double v) const { return v; }
    c10::IValue operator()(const std::complex<double>& v) const { return c10::complex<double>(v); }
    c10::IValue operator()(const std::string& v) const { return v; }
    c10::IValue operator()(ir::DType v) const { return static_cast<int64_t>(to_torch(v)); }
    c10::IValue operator()(const ir::Device& v) const { return to_torch(v); }
    c10::IValue operator()(const std::vector<int64_t>& v) const {
      const auto* list = type.castRaw<c10::ListType>();
      if (list && list->getElementType()->kind() == c10::TypeKind::FloatType)
        return std::vector<double>(v.begin(), v.end());
      // An empty list is written alike for every kind of list.
      if (list && v.empty() && list->getElementType()->kind() == c10::TypeKind::TensorType)
        return std::vector<at::Tensor>();
      return v;
    }
    c10::IValue operator()(const std::vector<double>& v) const { return v; }
    c10::IValue operator()(const std::vector<bool>& v) const {
      c10::List<bool> list;
      for (const bool b : v) list.push_back(b);
      return list;
    }
    c10::IValue operator()(const ir::Symbol& v) const {
      if (v.name.starts_with(generator_symbol)) {
        const auto digits = std::string_view(v.name).substr(generator_symbol.size());
        size_t number = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
        if (number >= generators.size()) throw Error("[graph] there is no '" + v.name);
        return generators[number];
      }
      if (type.kind() == c10::TypeKind::LayoutType) return static_cast<int64_t>(symbol_value(layouts, v));
      return static_cast<int64_t>(symbol_value(memory_formats, v));
    }
  };
  return std::visit(Convert{type, generators}, attribute);
}

}  // namespace graft
