#include "io/format/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/format/utf8.h"

namespace graft::io {
namespace {

constexpr size_t kMaxKey = 65535, kMaxName = 64, kMaxGgufDims = 4;
// The fewest bytes an entry, a tensor and a string can have: what counts are checked against.
constexpr uint64_t kLeastEntry = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 4 + 8, kLeastString = 8;

enum Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64, kinds };

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, std::string_view label) : file_(file), label_(label) {}

  GgufHeader read() {
    read_magic();
    const uint64_t tensors = read_count("tensors", kLeastTensor);
    const uint64_t entries = read_count("metadata entries", kLeastEntry);
    for (uint64_t i = 0; i < entries; ++i) read_entry();
    read_alignment();
    for (uint64_t i = 0; i < tensors; ++i) read_tensor();
    check_names();
    check_data();
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, size_t place) const {
    throw FormatError("[gguf] " + label_ + ": at byte " + std::to_string(place) + ": " + what);
  }
  [[noreturn]] void fail(const std::string& what) const { fail(what, position_); }

  uint64_t left() const { return file_.size() - position_; }

  const std::byte* take(uint64_t bytes, const std::string& what) {
    if (bytes > left())
      fail(what + " needs " + std::to_string(bytes) + " bytes, and the file has " + std::to_string(left()) +
           " more: it is truncated or damaged; fetch it again");
    const std::byte* at = file_.data() + position_;
    position_ += bytes;
    return at;
  }

  template <class T>
  T number(const std::string& what) {
    T value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }

  std::string string(const std::string& what) {
    const auto length = number<uint64_t>("the length of " + what);
    const size_t start = position_;
    const std::string_view bytes(reinterpret_cast<const char*>(take(length, what)), length);
    const size_t bad = find_invalid_utf8(bytes);
    if (bad != std::string_view::npos) fail(what + " is not UTF-8", start + bad);
    return std::string(bytes);
  }

  void read_magic();
  /// A number of things of at least `least` bytes each: more than the file can hold is an error at once.
  uint64_t read_count(const std::string& what, uint64_t least) {
    const size_t place = position_;
    const auto count = number<uint64_t>("the number of " + what);
    check_count(count, least, what, place);
    return count;
  }
  void check_count(uint64_t count, uint64_t least, const std::string& what, size_t place) const {
    if (count > left() / least)
      fail("there should be " + std::to_string(count) + " " + what + ", more than the " +
               std::to_string(left()) + " bytes that follow can hold",
           place);
  }

  void read_entry();
  GgufValue read_value(uint32_t kind, const std::string& what);
  GgufValue read_list(const std::string& what);
  int64_t read_integer(uint32_t kind, const std::string& what);
  bool read_boolean(const std::string& what);
  template <class T, class Read>
  std::vector<T> elements(uint64_t count, Read read);
  void read_alignment();
  void read_tensor();
  void check_names() const;
  void check_data();
  uint64_t aligned(uint64_t size, const std::string& what) const;

  std::span<const std::byte> file_;
  std::string label_;
  size_t position_ = 0;
  GgufHeader header_;
};

void HeaderReader::read_magic() {
  const std::string_view start(reinterpret_cast<const char*>(file_.data()),
                               std::min<size_t>(file_.size(), 8));
  if (!start.starts_with("GGUF"))
    fail(std::string("not a GGUF file, which starts with \"GGUF\"") +
         (start.starts_with("version ") ? " (it is a Git LFS pointer: run `git lfs pull`)" : ""));
  position_ = 4;
  header_.version = number<uint32_t>("the version");
  if (header_.version == 2 || header_.version == 3) return;
  const bool swapped = (header_.version & 0xFFFF) == 0;
  fail(swapped ? "the file is big-endian, which graft does not read"
               : "GGUF version " + std::to_string(header_.version) + "; known are 2 and 3",
       4);
}

void HeaderReader::read_entry() {
  const size_t place = position_;
  std::string key = string("a metadata key");
  if (key.empty() || key.size() > kMaxKey)
    fail("a metadata key of " + std::to_string(key.size()) + " bytes; from 1 to 65535 are allowed", place);
  const std::string what = "the metadata " + quote(key);
  const auto kind = number<uint32_t>("the kind of " + what);
  GgufValue value = kind == list ? read_list(what) : read_value(kind, what);
  if (!header_.metadata.emplace(std::move(key), std::move(value)).second)
    fail(what + " appears twice", place);
}

int64_t HeaderReader::read_integer(uint32_t kind, const std::string& what) {
  switch (kind) {
    case u8:
      return number<uint8_t>(what);
    case i8:
      return number<int8_t>(what);
    case u16:
      return number<uint16_t>(what);
    case i16:
      return number<int16_t>(what);
    case u32:
      return number<uint32_t>(what);
    case i32:
      return number<int32_t>(what);
    case i64:
      return number<int64_t>(what);
    default: {
      const size_t place = position_;
      const auto value = number<uint64_t>(what);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail(what + " is " + std::to_string(value) + ", too large for 64 bits with sign", place);
      return static_cast<int64_t>(value);
    }
  }
}

bool HeaderReader::read_boolean(const std::string& what) {
  const auto value = number<uint8_t>(what);
  if (value > 1) fail(what + " is true or false, and has the byte " + std::to_string(value), position_ - 1);
  return value == 1;
}

GgufValue HeaderReader::read_value(uint32_t kind, const std::string& what) {
  if (kind >= kinds) fail(what + " is of the unknown kind " + std::to_string(kind), position_ - 4);
  if (kind == text) return string(what);
  if (kind == boolean) return read_boolean(what);
  if (kind == f32) return static_cast<double>(number<float>(what));
  if (kind == f64) return number<double>(what);
  return read_integer(kind, what);
}

template <class T, class Read>
std::vector<T> HeaderReader::elements(uint64_t count, Read read) {
  std::vector<T> values;
  values.reserve(count);  // checked: not more than the file has bytes
  for (uint64_t i = 0; i < count; ++i) values.push_back(read());
  return values;
}

GgufValue HeaderReader::read_list(const std::string& what) {
  const auto kind = number<uint32_t>("the kind of " + what);
  if (kind == list) fail(what + " is a list of lists, which graft does not read", position_ - 4);
  if (kind >= kinds) fail(what + " is a list of the unknown kind " + std::to_string(kind), position_ - 4);
  constexpr uint64_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, kLeastString, 0, 8, 8, 8};
  const size_t place = position_;
  const auto count = number<uint64_t>("the length of " + what);
  check_count(count, sizes[kind], "values of " + what, place);
  if (kind == text) return elements<std::string>(count, [&] { return string(what); });
  if (kind == boolean) return elements<bool>(count, [&] { return read_boolean(what); });
  if (kind == f32) return elements<double>(count, [&] { return static_cast<double>(number<float>(what)); });
  if (kind == f64) return elements<double>(count, [&] { return number<double>(what); });
  return elements<int64_t>(count, [&] { return read_integer(kind, what); });
}

void HeaderReader::read_alignment() {
  const int64_t* alignment = header_.integer("general.alignment", label_);
  if (!alignment) return;
  if (*alignment < 1 || *alignment > (int64_t{1} << 30) ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment)))
    fail("general.alignment is " + std::to_string(*alignment) + ", and must be a power of two up to 2^30");
  header_.alignment = static_cast<uint64_t>(*alignment);
}

void HeaderReader::read_tensor() {
  const size_t place = position_;
  GgufTensor tensor{.name = string("a tensor's name")};
  if (tensor.name.empty() || tensor.name.size() > kMaxName)
    fail("a tensor's name of " + std::to_string(tensor.name.size()) + " bytes; from 1 to 64 are allowed",
         place);
  const std::string what = "the tensor " + quote(tensor.name);
  const auto dims = number<uint32_t>(what);
  if (dims > kMaxGgufDims)
    fail(what + " has " + std::to_string(dims) + " dimensions; 4 are the most", position_ - 4);
  uint64_t count = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const int64_t size = read_integer(u64, "a dimension of " + what);
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(size), &count))
      fail(what + " has a size that overflows 64 bits", position_ - 8);
    tensor.shape.insert(tensor.shape.begin(), size);
  }
  const auto number_of_type = number<uint32_t>("the type of " + what);
  const auto type = ggml_type_of(number_of_type);
  if (!type)
    fail(what + " has type " + std::to_string(number_of_type) + " (" + ggml_type_name(number_of_type) +
             "), which graft does not read; known are " + known_ggml_types(),
         position_ - 4);
  tensor.type = *type;
  const unsigned block = block_elements(*type);
  if (block > 1 && (tensor.shape.empty() || tensor.shape.back() % block != 0))
    fail(what + " has rows of " + std::to_string(tensor.shape.empty() ? 1 : tensor.shape.back()) +
         " elements, not whole blocks of " + std::to_string(block) + ", which " +
         std::string(name_of(*type)) + " needs");
  if (__builtin_mul_overflow(count / block, uint64_t{block_bytes(*type)}, &tensor.bytes))
    fail(what + " has a size that overflows 64 bits");
  tensor.offset = number<uint64_t>("the offset of " + what);
  header_.tensors.push_back(std::move(tensor));
}

/// By sorting, as for safetensors: a hash table could be made slow by names chosen to collide.
void HeaderReader::check_names() const {
  std::vector<std::string_view> names;
  names.reserve(header_.tensors.size());
  for (const auto& tensor : header_.tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail("the tensor name " + quote(*twice) + " appears twice");
}

uint64_t HeaderReader::aligned(uint64_t size, const std::string& what) const {
  uint64_t sum = 0;
  if (__builtin_add_overflow(size, header_.alignment - 1, &sum)) fail(what + " lies beyond 64 bits");
  return sum & ~(header_.alignment - 1);
}

void HeaderReader::check_data() {
  header_.data_start = aligned(position_, "the data");
  if (header_.tensors.empty()) {
    if (file_.size() > header_.data_start) fail("there are data, but no tensors");
    header_.data_start = std::min<uint64_t>(header_.data_start, file_.size());
    return;
  }
  // Without data (all tensors empty) the padding before them may be left out.
  const uint64_t size = file_.size() > header_.data_start ? file_.size() - header_.data_start : 0;
  uint64_t end = 0, next = 0;  // of the last tensor; where the following one must start
  for (const auto& tensor : header_.tensors) {
    const std::string what = "the tensor " + quote(tensor.name);
    if (tensor.offset != next)
      fail(what + " has offset " + std::to_string(tensor.offset) + " where " + std::to_string(next) +
           " is next: the tensors must follow each other, each aligned to " +
           std::to_string(header_.alignment) + " bytes");
    if (__builtin_add_overflow(tensor.offset, tensor.bytes, &end) || end > size)
      fail(what + " has " + std::to_string(tensor.bytes) + " bytes from " + std::to_string(tensor.offset) +
           " on, beyond the data, which have " + std::to_string(size) +
           ": the file is truncated or damaged; fetch it again");
    next = aligned(end, what);
  }
  if (size > next)
    fail("the file has " + std::to_string(size - next) +
         " bytes after the last tensor, which belong to none");
  header_.data_start = std::min<uint64_t>(header_.data_start, file_.size());
}

template <class T>
const T* metadata_as(const GgufHeader& header, std::string_view key, std::string_view label,
                     const char* wanted) {
  const auto found = header.metadata.find(key);
  if (found == header.metadata.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (!value)
    throw FormatError("[gguf] " + std::string(label) + ": the metadata " + quote(key) + " must be " + wanted);
  return value;
}

}  // namespace

const std::string* GgufHeader::string(std::string_view key, std::string_view label) const {
  return metadata_as<std::string>(*this, key, label, "a string");
}
const int64_t* GgufHeader::integer(std::string_view key, std::string_view label) const {
  return metadata_as<int64_t>(*this, key, label, "an integer");
}
const bool* GgufHeader::boolean(std::string_view key, std::string_view label) const {
  return metadata_as<bool>(*this, key, label, "true or false");
}
const std::vector<std::string>* GgufHeader::strings(std::string_view key, std::string_view label) const {
  return metadata_as<std::vector<std::string>>(*this, key, label, "a list of strings");
}
const std::vector<int64_t>* GgufHeader::integers(std::string_view key, std::string_view label) const {
  return metadata_as<std::vector<int64_t>>(*this, key, label, "a list of integers");
}
const std::vector<double>* GgufHeader::numbers(std::string_view key, std::string_view label) const {
  return metadata_as<std::vector<double>>(*this, key, label, "a list of numbers");
}

GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view label) {
  return HeaderReader(file, label).read();
}

}  // namespace graft::io
