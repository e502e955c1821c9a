#include "io/format/safetensors_dtype.h"

#include <iterator>

namespace graft::io {
namespace {

struct Row {
  std::string_view name;
  unsigned bits;
};

constexpr Row kRows[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};
static_assert(std::size(kRows) == static_cast<size_t>(SafetensorsDtype::U64) + 1);

}  // namespace

std::string_view name_of(SafetensorsDtype dtype) { return kRows[static_cast<size_t>(dtype)].name; }

unsigned bits_of(SafetensorsDtype dtype) { return kRows[static_cast<size_t>(dtype)].bits; }

std::optional<SafetensorsDtype> dtype_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].name == name) return static_cast<SafetensorsDtype>(i);
  }
  return std::nullopt;
}

std::string known_dtypes() {
  std::string list;
  for (const Row& row : kRows) list.append(list.empty() ? "" : ", ").append(row.name);
  return list;
}

}  // namespace graft::io
