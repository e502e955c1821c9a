#include "targets/cpu/trial_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace graft::cpu {
namespace {

using codegen::Op;
using ir::DType;

// Between buffers: a store that goes a little too far lands here.
constexpr int64_t margin = 256, page = 4096;

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// From 0 to 1.
double fraction(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

double smallest_of(DType dtype) {
  return dtype == DType::f64    ? 0x1p-1074
         : dtype == DType::f16  ? 0x1p-24
         : dtype == DType::bf16 ? 0x1p-133
                                : 0x1p-149;
}
double largest_of(DType dtype) {
  return dtype == DType::f64    ? std::numeric_limits<double>::max()
         : dtype == DType::f16  ? 65504
         : dtype == DType::bf16 ? 0x1.fep127
                                : std::numeric_limits<float>::max();
}

/// The kinds take turns: with a step of 7 an element has each of them once in 16 rounds, and either sign in
/// any two that follow each other.
double usual_number(DType dtype, uint64_t bits, int round, const std::vector<double>& constants) {
  const uint64_t kind = (bits + 7 * static_cast<uint64_t>(round)) % 16;
  const double sign = kind % 2 ? -1 : 1, some = fraction(mixed(bits));
  switch (kind / 2) {
    case 0:
    case 1:
    case 2:
      return sign * (0.1 + 3.9 * some);
    case 3:
      return sign * std::floor(1 + 8 * some) / 2;  // where roundings have ties
    case 4:
      return sign * 1e-3 * (0.1 + some);
    case 5:
      return sign * 0;
    case 6:
      return sign * smallest_of(dtype) * std::floor(1 + 100 * some);
    default:  // where comparisons meet
      if (round % 4 == 3) return sign * 1000 * (1 + some);
      return sign > 0 && !constants.empty() ? constants[bits / 16 % constants.size()] : sign;
  }
}

/// NaN every other time.
double special_number(DType dtype, uint64_t bits, uint64_t turn) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if ((bits + turn) % 2 == 0) return std::numeric_limits<double>::quiet_NaN();
  switch (mixed(bits + turn) % 4) {
    case 0:
      return infinity;
    case 1:
      return -infinity;
    case 2:
      return largest_of(dtype);
    default:
      return -largest_of(dtype) / 2;
  }
}

/// Of a number that the type holds.
uint16_t half_bits(double x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double size = std::abs(x);
  if (std::isnan(x)) return 0x7e00;
  if (std::isinf(x)) return static_cast<uint16_t>(sign | 0x7c00);
  if (size < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<int>(size * 0x1p24));
  const int exponent = std::ilogb(size);
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 |
                               static_cast<int>((std::ldexp(size, -exponent) - 1) * 1024));
}

double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  const double size = exponent == 31  ? (digits ? std::numeric_limits<double>::quiet_NaN()
                                                : std::numeric_limits<double>::infinity())
                      : exponent == 0 ? digits * 0x1p-24
                                      : std::ldexp(1024 + digits, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

template <class T>
void put(std::byte* to, T x) {
  std::memcpy(to, &x, sizeof x);
}
template <class T>
T get(const std::byte* from) {
  T x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

/// The instructions that load whole numbers and say, perhaps after some arithmetic, where a table is read.
std::vector<int> indices_in(const codegen::Kernel& kernel, const codegen::Instruction::Indirect& how) {
  std::vector<uint8_t> seen(kernel.code.size());
  std::vector<int> open = {how.value}, found;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (std::exchange(seen[static_cast<size_t>(n)], 1)) continue;
    const auto& i = kernel.code[static_cast<size_t>(n)];
    if (i.op == Op::load && !ir::is_floating(i.dtype) && i.dtype != DType::boolean) found.push_back(n);
    open.insert(open.end(), i.args.begin(), i.args.end());
  }
  return found;
}

bool is_direct(const codegen::Kernel& kernel, int from, int load) {
  const auto& i = kernel.code[static_cast<size_t>(from)];
  return from == load || (i.op == Op::cast && is_direct(kernel, i.args[0], load));
}

}  // namespace

LazyMemory::LazyMemory(size_t bytes) : bytes_(bytes) {
  void* made =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return;
  madvise(made, bytes, MADV_NOHUGEPAGE);  // a page here and there is touched
  data_ = static_cast<std::byte*>(made);
}

LazyMemory::~LazyMemory() {
  if (data_) munmap(data_, bytes_);
}

std::vector<TrialMemory::Place> TrialMemory::layout(const codegen::Kernel& kernel, size_t& bytes) {
  std::vector<Place> places;
  places.reserve(kernel.buffers.size());
  for (const auto& buffer : kernel.buffers) places.push_back({buffer.dtype, 0, 1, 0});
  for (const auto& i : kernel.code) {
    if (i.buffer < 0) continue;
    auto& place = places[static_cast<size_t>(i.buffer)];
    int64_t low = i.index.min(), high = i.index.max();
    for (const auto& x : i.indirect) (x.stride < 0 ? low : high) += x.stride * (x.size - 1);
    // A guard may keep some of an index's values away.
    place.first = std::min(place.first, i.op == Op::load && i.elements > 0 ? 0 : low);
    place.end = std::max(place.end, i.op == Op::load && i.elements > 0 ? i.elements : high + 1);
    place.written |= i.op == Op::store;
    for (const auto& x : i.indirect)
      for (const int load : indices_in(kernel, x)) {
        auto& index = places[static_cast<size_t>(kernel.code[static_cast<size_t>(load)].buffer)];
        const bool first = index.index_below == 0, wraps = x.wraps && is_direct(kernel, x.value, load);
        index.index_wraps = wraps && (first || (index.index_wraps && index.index_below == x.size));
        index.index_below = first ? x.size : std::min(index.index_below, x.size);
      }
  }
  int64_t at = page;
  for (auto& place : places) {
    const int64_t size = ir::size_of(place.dtype);
    at += margin - place.first * size;
    place.offset = (at + 63) / 64 * 64;
    at = (place.offset + place.end * size + margin + page) / page * page;
  }
  bytes = static_cast<size_t>(at + page);
  return places;
}

TrialMemory::TrialMemory(const codegen::Kernel& kernel, int64_t together)
    : places_(layout(kernel, bytes_)), memory_(bytes_) {
  const auto loads = std::count_if(kernel.code.begin(), kernel.code.end(),
                                   [](const auto& i) { return i.op == Op::load || i.adds; });
  one_in_ = 3 + static_cast<uint64_t>(loads * together);
  for (const auto& i : kernel.code)
    if (i.op == Op::constant && ir::is_floating(i.dtype) && std::isfinite(i.number))
      constants_.push_back(i.number);
  if (!available()) return;
  for (const auto& place : places_) starts_.push_back(memory_.data() + place.offset);
}

void TrialMemory::start_round(int round, int64_t largest_index) {
  round_ = round;
  largest_index_ = largest_index;
}

uint64_t TrialMemory::bits_of(int buffer, int64_t element) const {
  const bool alike = round_ % 8 == 4;
  return mixed(static_cast<uint64_t>(element) * 64 + static_cast<uint64_t>(alike ? 0 : buffer));
}

std::byte* TrialMemory::address(int buffer, int64_t element) const {
  const auto& place = places_[static_cast<size_t>(buffer)];
  return memory_.data() + place.offset + element * ir::size_of(place.dtype);
}

bool TrialMemory::has(int buffer, int64_t element) const {
  const auto& place = places_[static_cast<size_t>(buffer)];
  return place.first <= element && element < place.end;
}

double TrialMemory::number(int buffer, int64_t element) {
  const auto dtype = places_[static_cast<size_t>(buffer)].dtype;
  const uint64_t bits = bits_of(buffer, element);
  const uint64_t turn = (bits >> 32) + static_cast<uint64_t>(round_ / 3);  // elements take turns, too
  const bool special = round_ % 3 == 2 && turn % one_in_ == 0;
  const double x = codegen::nearest(dtype, special ? special_number(dtype, bits, turn / one_in_)
                                                   : usual_number(dtype, bits, round_, constants_));
  auto* to = address(buffer, element);
  switch (dtype) {
    case DType::f64:
      put(to, x);
      break;
    case DType::f32:
      put(to, static_cast<float>(x));
      break;
    case DType::f16:
      put(to, half_bits(x));
      break;
    default: {
      const auto wide = static_cast<float>(x);
      put(to, static_cast<uint16_t>(get<uint32_t>(reinterpret_cast<const std::byte*>(&wide)) >> 16));
    }
  }
  return x;
}

int64_t TrialMemory::integer(int buffer, int64_t element) {
  const auto& place = places_[static_cast<size_t>(buffer)];
  const uint64_t bits = mixed(bits_of(buffer, element) + static_cast<uint64_t>(round_));
  const auto all = codegen::Whole::anything(place.dtype);
  int64_t x = 0;
  if (place.index_below > 0) {
    const int64_t below = std::min({place.index_below, largest_index_ + 1, all.high});
    x = static_cast<int64_t>(bits % static_cast<uint64_t>(below));
    if (place.index_wraps && bits >> 62 == 0 && all.low < 0) x = std::max(x - place.index_below, all.low);
  } else if (round_ % 4 == 3 && bits % 4 == 0) {
    x = bits >> 32 & 1 ? all.low : all.high;
  } else {
    x = codegen::wrapped(place.dtype, static_cast<int64_t>(bits % 9) - (all.low < 0 ? 4 : 0));
  }
  auto* to = address(buffer, element);
  std::memcpy(to, &x, static_cast<size_t>(ir::size_of(place.dtype)));  // the low bytes
  return x;
}

double TrialMemory::stored_number(int buffer, int64_t element) const {
  const auto* from = address(buffer, element);
  switch (places_[static_cast<size_t>(buffer)].dtype) {
    case DType::f64:
      return get<double>(from);
    case DType::f32:
      return get<float>(from);
    case DType::f16:
      return half_value(get<uint16_t>(from));
    default: {
      const uint32_t wide = static_cast<uint32_t>(get<uint16_t>(from)) << 16;
      return get<float>(reinterpret_cast<const std::byte*>(&wide));
    }
  }
}

int64_t TrialMemory::stored_integer(int buffer, int64_t element) const {
  const auto* from = address(buffer, element);
  switch (places_[static_cast<size_t>(buffer)].dtype) {
    case DType::i64:
      return get<int64_t>(from);
    case DType::i32:
      return get<int32_t>(from);
    case DType::i16:
      return get<int16_t>(from);
    case DType::i8:
      return get<int8_t>(from);
    default:  // flags, too: anything but 0 and 1 is wrong
      return get<uint8_t>(from);
  }
}

void TrialMemory::spoil(int buffer, int64_t element) {
  constexpr int pattern = 0xa5;
  std::memset(address(buffer, element), pattern,
              static_cast<size_t>(ir::size_of(places_[static_cast<size_t>(buffer)].dtype)));
}

int TrialMemory::overrun() const {
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  for (size_t b = 0; b < places_.size(); ++b) {
    const auto& place = places_[b];
    if (!place.written) continue;
    const auto* first = address(static_cast<int>(b), place.first);
    const auto* end = address(static_cast<int>(b), place.end);
    if (!std::all_of(first - margin, first, is_zero) || !std::all_of(end, end + margin, is_zero))
      return static_cast<int>(b);
  }
  return -1;
}

}  // namespace graft::cpu
