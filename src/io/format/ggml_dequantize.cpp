// Blocks to values. The layouts are ggml's; the arithmetic is in the order of the `gguf` package, one
// rounding per product and sum (this file is compiled without contraction into fused multiply-adds), so that
// results agree to the bit.
#include <bit>
#include <cstring>

#include "io/format/ggml_type.h"

namespace graft::io {
namespace {

using Byte = uint8_t;

uint16_t half_bits(const Byte* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }

float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, exponent = half >> 10 & 0x1F;
  uint32_t mantissa = half & 0x3FF;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;  // exact: a subnormal, or zero
  return sign ? -value : value;
}
float half_at(const Byte* at) { return from_half(half_bits(at)); }

float low(Byte b) { return static_cast<float>(b & 0xF); }
float high(Byte b) { return static_cast<float>(b >> 4); }
/// Bit i of 32 that lie in four bytes.
unsigned bit_of(const Byte* bits, unsigned i) { return bits[i / 8] >> (i % 8) & 1; }

// One function per type, for one block. Blocks of 32: the first half of the values lies in the low halves of
// the bytes, the second in the high ones.

void q8_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

void q4_0(const Byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * (low(block[2 + i]) - 8);
    out[16 + i] = d * (high(block[2 + i]) - 8);
  }
}

void q4_1(const Byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * low(block[4 + i]) + m;
    out[16 + i] = d * high(block[4 + i]) + m;
  }
}

void q5_0(const Byte* block, float* out) {
  const float d = half_at(block);
  const Byte *bits = block + 2, *rest = block + 6;
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned four = i < 16 ? rest[i] & 0xF : rest[i - 16] >> 4;
    out[i] = d * (static_cast<float>(four | bit_of(bits, i) << 4) - 16);
  }
}

void q5_1(const Byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  const Byte *bits = block + 4, *rest = block + 8;
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned four = i < 16 ? rest[i] & 0xF : rest[i - 16] >> 4;
    out[i] = d * static_cast<float>(four | bit_of(bits, i) << 4) + m;
  }
}

// A block of 256 has eight groups of 32, each with a scale and a minimum of six bits: those of the first four
// lie in the low six bits of bytes 0 to 7, those of the others in bytes 8 to 11 and the two bits left over.
struct Group {
  float scale, minimum;
};
Group group_of(const Byte* scales, int group) {
  if (group < 4) return {static_cast<float>(scales[group] & 63), static_cast<float>(scales[group + 4] & 63)};
  const Byte shared = scales[group + 4];
  return {static_cast<float>((shared & 0xF) | (scales[group - 4] >> 2 & 0x30)),
          static_cast<float>(shared >> 4 | (scales[group] >> 2 & 0x30))};
}

void q4_k(const Byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const Byte *scales = block + 4, *quants = block + 16;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = group_of(scales, g);
    const float step = d * scale, base = dmin * minimum;
    const Byte* q = quants + g / 2 * 32;
    for (int i = 0; i < 32; ++i) out[g * 32 + i] = step * (g % 2 ? high(q[i]) : low(q[i])) - base;
  }
}

void q5_k(const Byte* block, float* out) {
  const float d = half_at(block), dmin = half_at(block + 2);
  const Byte *scales = block + 4, *fifth = block + 16, *quants = block + 48;
  for (int g = 0; g < 8; ++g) {
    const auto [scale, minimum] = group_of(scales, g);
    const float step = d * scale, base = dmin * minimum;
    const Byte* q = quants + g / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int four = g % 2 ? q[i] >> 4 : q[i] & 0xF;
      out[g * 32 + i] = step * static_cast<float>(four | (fifth[i] >> g & 1) << 4) - base;
    }
  }
}

void q6_k(const Byte* block, float* out) {
  const Byte *lows = block, *highs = block + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, place = i % 32;
    const Byte four = lows[half * 64 + quarter % 2 * 32 + place], two = highs[half * 32 + place];
    const int value = (quarter < 2 ? four & 0xF : four >> 4) | (two >> (2 * quarter) & 3) << 4;
    const int group = i / 16;
    out[i] = d * static_cast<float>(scales[group]) * static_cast<float>(value - 32);
  }
}

void f32(const Byte* element, float* out) { std::memcpy(out, element, sizeof *out); }
void f16(const Byte* element, float* out) { *out = half_at(element); }
void bf16(const Byte* element, float* out) {
  *out = std::bit_cast<float>(static_cast<uint32_t>(half_bits(element)) << 16);
}

using BlockFunction = void (*)(const Byte*, float*);
// In the order of the enum.
constexpr BlockFunction kBlocks[] = {f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k};

}  // namespace

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const BlockFunction unpack = kBlocks[static_cast<size_t>(type)];
  const size_t bytes = block_bytes(type), elements = block_elements(type);
  const auto* from = reinterpret_cast<const Byte*>(blocks.data());
  for (size_t block = 0; block < blocks.size() / bytes; ++block)
    unpack(from + block * bytes, values.data() + block * elements);
}

}  // namespace graft::io
