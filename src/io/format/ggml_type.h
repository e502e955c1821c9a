// How GGUF files store numbers: plain, or in blocks of quantised values with their scales. A row of a tensor
// is a whole number of blocks, so rows can be moved about without unpacking them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace graft::io {

enum class GgmlType : uint8_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };

std::string_view name_of(GgmlType type);
/// Elements of a block, and its bytes; 1 and the element's size where nothing is quantised.
unsigned block_elements(GgmlType type);
unsigned block_bytes(GgmlType type);

/// By the number that files use; nothing for one that is not read.
std::optional<GgmlType> ggml_type_of(uint32_t number);
/// What a number that is not read stands for, "Q2_K", as far as it is known.
std::string ggml_type_name(uint32_t number);
/// "F32, F16, ...", for messages.
std::string known_ggml_types();

/// The values, bit for bit those of the `gguf` package's dequantize. REQUIRES: `blocks` is a whole number of
/// blocks, `values` has as many elements as they hold.
void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace graft::io
