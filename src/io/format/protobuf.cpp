#include "io/format/protobuf.h"

#include <bit>
#include <cstring>

#include "graft/error.h"
#include "io/format/utf8.h"

namespace graft::io {

void ProtoReader::fail(const std::string& what) const {
  throw FormatError("[sentencepiece] " + std::string(label_) + ": " + what + ", near byte " +
                    std::to_string(at_));
}

bool ProtoReader::next() {
  if (unread_) skip();
  if (at_ == bytes_.size()) return false;
  const uint64_t tag = read_varint();
  const uint64_t number = tag >> 3;
  if (number == 0 || number > 0x1FFFFFFF) fail("a field has the number " + std::to_string(number));
  field_ = static_cast<uint32_t>(number);
  wire_ = static_cast<Wire>(tag & 7);
  if (wire_ != Wire::varint && wire_ != Wire::fixed64 && wire_ != Wire::bytes && wire_ != Wire::fixed32)
    fail("field " + std::to_string(field_) + " is of the unknown wire type " + std::to_string(tag & 7));
  unread_ = true;
  return true;
}

uint64_t ProtoReader::read_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) fail("the file ends inside a number");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    if (shift == 63 && byte > 1) fail("a number has more than 64 bits");
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail("a number has more than 64 bits");
}

std::string_view ProtoReader::take(uint64_t count) {
  if (count > bytes_.size() - at_)
    fail("field " + std::to_string(field_) + " has " + std::to_string(count) + " bytes, and " +
         std::to_string(bytes_.size() - at_) + " are left");
  const auto part = bytes_.substr(at_, count);
  at_ += count;
  return part;
}

void ProtoReader::skip() {
  unread_ = false;
  if (wire_ == Wire::varint)
    read_varint();
  else if (wire_ == Wire::bytes)
    take(read_varint());
  else
    take(wire_ == Wire::fixed64 ? 8 : 4);
}

void ProtoReader::want(Wire wire, const char* name) {
  if (!unread_ || wire_ != wire) fail("field " + std::to_string(field_) + " is not a " + name);
  unread_ = false;
}

uint64_t ProtoReader::varint() {
  want(Wire::varint, "whole number");
  return read_varint();
}

float ProtoReader::number() {
  want(Wire::fixed32, "number of 32 bits");
  const auto four = take(4);
  uint32_t bits = 0;
  for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<unsigned char>(four[static_cast<size_t>(i)]);
  return std::bit_cast<float>(bits);
}

std::string_view ProtoReader::bytes() {
  want(Wire::bytes, "text");
  return take(read_varint());
}

std::string ProtoReader::text() {
  const auto part = bytes();
  if (find_invalid_utf8(part) != std::string_view::npos)
    fail("field " + std::to_string(field_) + " is not UTF-8");
  return std::string(part);
}

}  // namespace graft::io
