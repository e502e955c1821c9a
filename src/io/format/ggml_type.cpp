#include "io/format/ggml_type.h"

namespace graft::io {
namespace {

struct Row {
  GgmlType type;
  std::string_view name;
  uint32_t number;
  unsigned elements, bytes;
};

// In the order of the enum.
constexpr Row kRead[] = {{GgmlType::F32, "F32", 0, 1, 4},        {GgmlType::F16, "F16", 1, 1, 2},
                         {GgmlType::BF16, "BF16", 30, 1, 2},     {GgmlType::Q8_0, "Q8_0", 8, 32, 34},
                         {GgmlType::Q4_0, "Q4_0", 2, 32, 18},    {GgmlType::Q4_1, "Q4_1", 3, 32, 20},
                         {GgmlType::Q5_0, "Q5_0", 6, 32, 22},    {GgmlType::Q5_1, "Q5_1", 7, 32, 24},
                         {GgmlType::Q4_K, "Q4_K", 12, 256, 144}, {GgmlType::Q5_K, "Q5_K", 13, 256, 176},
                         {GgmlType::Q6_K, "Q6_K", 14, 256, 210}};

struct Other {
  uint32_t number;
  std::string_view name;
};
constexpr Other kNotRead[] = {{9, "Q8_1"},    {10, "Q2_K"},    {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"},
                              {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},
                              {22, "IQ2_S"},  {23, "IQ4_XS"},  {24, "I8"},    {25, "I16"},    {26, "I32"},
                              {27, "I64"},    {28, "F64"},     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},
                              {39, "MXFP4"}};

const Row& row_of(GgmlType type) { return kRead[static_cast<size_t>(type)]; }

}  // namespace

std::string_view name_of(GgmlType type) { return row_of(type).name; }
unsigned block_elements(GgmlType type) { return row_of(type).elements; }
unsigned block_bytes(GgmlType type) { return row_of(type).bytes; }

std::optional<GgmlType> ggml_type_of(uint32_t number) {
  for (const Row& row : kRead)
    if (row.number == number) return row.type;
  return std::nullopt;
}

std::string ggml_type_name(uint32_t number) {
  for (const Other& other : kNotRead)
    if (other.number == number) return std::string(other.name);
  return "of an unknown kind";
}

std::string known_ggml_types() {
  std::string names;
  for (const Row& row : kRead) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace graft::io
