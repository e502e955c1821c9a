// Protocol Buffers' wire format, read field by field: as much as SentencePiece's files need.
//
// Strict where the official readers are lenient: groups, field numbers of 0 and varints of more than 64 bits
// are errors, and so is a field of another wire type than the reader asks for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace graft::io {

class ProtoReader {
 public:
  /// REQUIRES: `bytes` outlives this. `label` names the file in messages.
  ProtoReader(std::string_view bytes, std::string_view label) : bytes_(bytes), label_(label) {}

  /// Goes to the next field; false at the end. A field that nobody asked for is passed over.
  bool next();
  uint32_t field() const { return field_; }

  // The value of the field, once. FormatError where it is of another kind.
  uint64_t varint();
  bool boolean() { return varint() != 0; }
  float number();
  std::string_view bytes();
  /// FormatError for what is not UTF-8.
  std::string text();

  [[noreturn]] void fail(const std::string& what) const;

 private:
  enum class Wire : uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  void want(Wire wire, const char* name);
  uint64_t read_varint();
  std::string_view take(uint64_t count);
  void skip();

  std::string_view bytes_, label_;
  size_t at_ = 0;
  uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  bool unread_ = false;
};

}  // namespace graft::io
