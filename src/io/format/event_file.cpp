#include "io/format/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <system_error>

namespace graft::io {
namespace {

std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
    table[i] = value;
  }
  return table;
}

/// So that a checksum of data that hold checksums is none of them.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8U; }

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

// --- protobuf: a key says the field's number and how its value is written

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string number_field(uint32_t field, int64_t value) {
  return varint(field << 3 | 0) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint32_t field, double value) {
  return varint(field << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(uint32_t field, float value) {
  return varint(field << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string bytes_field(uint32_t field, const std::string& value) {
  return varint(field << 3 | 2) + varint(value.size()) + value;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The numbers of the fields, from tensorboard/compat/proto/event.proto and summary.proto.
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5;
constexpr uint32_t kValue = 1, kTag = 1, kSimpleValue = 2;

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const auto table = crc_table();
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);  // opening the file says what is wrong
  file_ = AppendFile(dir / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(now())) + ".graft." +
                            std::to_string(::getpid())));
  write(double_field(kWallTime, now()) + bytes_field(kFileVersion, "brain.Event:2"));
}

void EventFile::add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars)
    summary +=
        bytes_field(kValue, bytes_field(kTag, name) + float_field(kSimpleValue, static_cast<float>(value)));
  write(double_field(kWallTime, now()) + number_field(kStep, step) + bytes_field(kSummary, summary));
}

void EventFile::write(const std::string& event) {
  const auto length = little_endian(static_cast<uint64_t>(event.size()));
  file_.add(length + little_endian(masked(crc32c(length))) + event + little_endian(masked(crc32c(event))));
}

}  // namespace graft::io
