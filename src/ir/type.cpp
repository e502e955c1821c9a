#include "ir/type.h"

#include <algorithm>
#include <array>

namespace graft::ir {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int64_t size;
  bool floating;
};

constexpr std::array<Row, 17> kTable{{{DType::f64, "f64", 8, true},
                                      {DType::f32, "f32", 4, true},
                                      {DType::f16, "f16", 2, true},
                                      {DType::bf16, "bf16", 2, true},
                                      {DType::i64, "i64", 8, false},
                                      {DType::i32, "i32", 4, false},
                                      {DType::i16, "i16", 2, false},
                                      {DType::i8, "i8", 1, false},
                                      {DType::u8, "u8", 1, false},
                                      {DType::boolean, "bool", 1, false},
                                      {DType::c64, "c64", 8, false},
                                      {DType::c128, "c128", 16, false},
                                      {DType::f8_e4m3, "f8_e4m3", 1, true},
                                      {DType::f8_e5m2, "f8_e5m2", 1, true},
                                      {DType::u16, "u16", 2, false},
                                      {DType::u32, "u32", 4, false},
                                      {DType::u64, "u64", 8, false}}};

const Row& row(DType dtype) { return kTable[static_cast<size_t>(dtype)]; }

std::string joined(const std::vector<Dim>& values) {
  std::string text;
  for (const auto value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

}  // namespace

std::string_view name_of(DType dtype) { return row(dtype).name; }
bool is_floating(DType dtype) { return row(dtype).floating; }
bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }
DType wide(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }
int64_t size_of(DType dtype) { return row(dtype).size; }

std::optional<DType> dtype_named(std::string_view name) {
  const auto* found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Row& r) { return r.name == name; });
  if (found == kTable.end()) return {};
  return found->dtype;
}

Dim TensorType::numel() const {
  Dim count = 1;
  for (const auto size : sizes) count *= size;
  return count;
}

Dim TensorType::span() const {
  if (numel() == 0) return 0;
  Dim last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return last + 1;
}

int64_t TensorType::bytes() const { return span() * size_of(dtype); }

bool TensorType::is_contiguous() const {
  if (numel() == 0) return true;
  Dim expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;  // its stride is never used
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

bool TensorType::is_dense() const {
  if (numel() == 0) return true;
  std::vector<std::pair<Dim, Dim>> steps;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1) steps.emplace_back(strides[i], sizes[i]);
  std::sort(steps.begin(), steps.end());
  Dim expected = 1;
  for (const auto& [stride, size] : steps) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

std::vector<Dim> contiguous_strides(const std::vector<Dim>& sizes) {
  std::vector<Dim> strides(sizes.size());
  Dim step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<Dim>(sizes[i], 1);
  }
  return strides;
}

TensorType contiguous(DType dtype, std::vector<Dim> sizes, Device device) {
  auto strides = contiguous_strides(sizes);
  return {dtype, std::move(sizes), std::move(strides), device};
}

std::string_view name_of(Device::Kind kind) {
  switch (kind) {
    case Device::Kind::cpu:
      return "cpu";
    case Device::Kind::meta:
      return "meta";
    case Device::Kind::cuda:
      return "cuda";
  }
  return "?";
}

std::string to_string(const Device& device) {
  const std::string name(name_of(device.kind));
  return device.kind == Device::Kind::cuda ? name + ":" + std::to_string(device.index) : name;
}

std::string to_string(const TensorType& type) {
  std::string text = std::string(name_of(type.dtype)) + "[" + joined(type.sizes) + "]";
  if (type.strides != contiguous_strides(type.sizes)) text += "{" + joined(type.strides) + "}";
  if (type.device != Device{}) text += "@" + to_string(type.device);
  return text;
}

}  // namespace graft::ir
