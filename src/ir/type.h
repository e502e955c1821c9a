// What a value of a graph is: a tensor of known dtype, shape, strides and device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft::ir {

/// A size, stride or other length. One name for all of them, so that a symbolic one can take its place.
using Dim = int64_t;

// clang-format off
enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u8, boolean, c64, c128, f8_e4m3, f8_e5m2, u16, u32, u64 };
// clang-format on

/// As graphs spell it: "f32", "bool".
std::string_view name_of(DType dtype);
std::optional<DType> dtype_named(std::string_view name);
bool is_floating(DType dtype);
/// float16 and bfloat16: sums, and what kernels hold in registers, are wider.
bool is_half(DType dtype);
/// float32 for a half type, else the type itself.
DType wide(DType dtype);
int64_t size_of(DType dtype);

struct Device {
  enum class Kind : uint8_t { cpu, cuda, meta } kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

struct TensorType {
  DType dtype = DType::f32;
  std::vector<Dim> sizes, strides;  // of one length
  Device device = {};

  bool operator==(const TensorType&) const = default;
  Dim numel() const;
  /// Elements from the first in memory to the last, both counted; 0 for a tensor with none.
  Dim span() const;
  /// The same in bytes.
  int64_t bytes() const;
  bool is_contiguous() const;
  /// No gaps, no element twice: a clone keeps the strides.
  bool is_dense() const;
};

/// Row-major strides, where a dimension of size 0 or 1 counts as 1, as torch has them.
std::vector<Dim> contiguous_strides(const std::vector<Dim>& sizes);
TensorType contiguous(DType dtype, std::vector<Dim> sizes, Device device = {});

/// "f32[2, 3]", strides only where they are not row-major: "f32[2, 3]{1, 2}", the device only where it is not
/// the CPU: "f32[2]@cuda:0".
std::string to_string(const TensorType& type);
std::string_view name_of(Device::Kind kind);
std::string to_string(const Device& device);

}  // namespace graft::ir
