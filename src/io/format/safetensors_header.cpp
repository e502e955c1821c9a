// Reading a header: events of the JSON parser become entries, each checked when it is complete, and at the
// end all of them together. No tree of the JSON is built, so a hostile header costs no more memory than its
// own length allows.
#include "io/format/safetensors_header.h"

#include <algorithm>
#include <limits>

#include "io/format/quote.h"
#include "io/format/strict_sax.h"

namespace graft::io {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

class HeaderSax final : public StrictSax {
 public:
  HeaderSax(std::string_view label, uint64_t data_size)
      : StrictSax("[safetensors]", std::string(label), /*max_depth=*/3, kLengthBytes),
        data_size_(data_size) {}

  SafetensorsHeader header;

  bool key(std::string& name) override {
    if (depth() == 1) {
      start_member(name);
    } else if (in_metadata_) {
      auto [slot, fresh] = header.metadata.emplace(name, "");
      if (!fresh) fail_here("the metadata key " + quote(name) + " appears twice");
      metadata_value_ = &slot->second;
    } else {
      start_field(name);
    }
    return true;
  }

  bool string(std::string& value) override {
    if (depth() == 2 && in_metadata_) {
      *metadata_value_ = std::move(value);
    } else if (depth() == 2 && field_ == kDtype) {
      const auto dtype = dtype_named(value);
      if (!dtype) fail_here(of_tensor() + "unknown dtype " + quote(value) + "; known are " + known_dtypes());
      entry_.dtype = *dtype;
    } else {
      mistyped("a string");
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth() != 3) mistyped("a number");
    if (field_ == kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail_here(of_tensor() + "the dimension " + std::to_string(value) +
                  " is too large for 64 bits with sign");
      }
      if (entry_.shape.size() == kMaxDims) {
        fail_here(of_tensor() + "the shape has more than " + std::to_string(kMaxDims) + " dimensions");
      }
      entry_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_ == 2)
        fail_here(of_tensor() + "data_offsets must have two numbers, begin and end, and has more");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    }
    return true;
  }

  bool number_integer(number_integer_t value) override {  // nlohmann sends only what has a minus sign here
    if (depth() != 3) mistyped("a number");
    fail_here(of_tensor() + field_name() + " has the negative number " + std::to_string(value));
  }
  bool number_float(number_float_t, const std::string& text) override {
    if (depth() != 3) mistyped("a number");
    fail_here(of_tensor() + field_name() + " has " + quote(text, 40) +
              ", which is not an integer or is too large for 64 bits");
  }
  bool boolean(bool) override { mistyped("true or false"); }
  bool null() override {
    if (depth() != 1 || !in_metadata_) mistyped("null");
    return true;  // the reference implementation reads it as no metadata
  }

  void finish();

 protected:
  void open_object() override {
    if (depth() > 2) mistyped("an object");
  }
  void open_array() override {
    if (depth() != 3 || in_metadata_ || field_ == kDtype) mistyped("a list");
  }
  void close_array() override {
    if (field_ == kOffsets && offsets_ != 2) {
      fail_here(of_tensor() + "data_offsets must have two numbers, begin and end");
    }
  }
  void close_object() override {
    if (depth() == 2 && !in_metadata_) finish_entry();
  }

 private:
  enum Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4 };

  void start_member(const std::string& name) {
    in_metadata_ = name == kMetadataKey;
    if (in_metadata_) {
      if (had_metadata_) fail_here("__metadata__ appears twice");
      had_metadata_ = true;
    } else {
      entry_ = {.name = name};
      field_ = kNone;
      seen_ = 0;
      offsets_ = 0;
    }
  }

  void start_field(const std::string& name) {
    field_ = name == "dtype" ? kDtype : name == "shape" ? kShape : name == "data_offsets" ? kOffsets : kNone;
    if (field_ == kNone) {
      fail_here(of_tensor() + "unknown field " + quote(name) + "; known are dtype, shape, data_offsets");
    }
    if (seen_ & field_) fail_here(of_tensor() + "the field " + field_name() + " appears twice");
    seen_ |= field_;
  }

  void finish_entry();
  void check_tiling();
  void check_names();

  std::string of_tensor() const { return "tensor " + quote(entry_.name) + ": "; }
  std::string field_name() const {
    return field_ == kDtype ? "dtype" : field_ == kShape ? "shape" : "data_offsets";
  }

  /// A value of the wrong kind: says what should stand in the innermost open place.
  [[noreturn]] void mistyped(const std::string& got) const {
    // A bracket just opened counts itself; the place it stands in is one further out.
    const bool bracket = got == "an object" || got == "a list";
    const size_t place = depth() - (bracket ? 1 : 0);
    if (in_metadata_) {
      fail_here("__metadata__ must map strings to strings, and has " + got +
                (place == 1 ? " instead" : " as a value"));
    }
    if (place == 1)
      fail_here(of_tensor() + "must be an object with dtype, shape and data_offsets, not " + got);
    if (place == 2 && field_ == kDtype) fail_here(of_tensor() + "dtype must be a string, not " + got);
    fail_here(of_tensor() + field_name() + " must be a list of non-negative integers, " +
              (place == 2 ? "not " : "and has ") + got);
  }

  uint64_t data_size_;
  bool had_metadata_ = false;
  bool in_metadata_ = false;  // the member being read is __metadata__
  std::string* metadata_value_ = nullptr;
  SafetensorsEntry entry_;  // the member being read, if it is a tensor
  Field field_ = kNone;
  unsigned seen_ = 0;     // fields of entry_ that were there
  unsigned offsets_ = 0;  // numbers read of its data_offsets
};

void HeaderSax::finish_entry() {
  for (const Field field : {kDtype, kShape, kOffsets}) {
    field_ = field;
    if (!(seen_ & field)) fail_here(of_tensor() + "the field " + field_name() + " is missing");
  }
  const auto& [name, dtype, shape, begin, end] = entry_;
  const auto offsets = [&] {
    return "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  };
  if (begin > end) fail_here(of_tensor() + offsets() + " end before they begin");
  if (end > data_size_) {
    fail_here(of_tensor() + offsets() + " reach beyond the data, which have " + std::to_string(data_size_) +
              " bytes: the file is truncated or damaged; fetch it again");
  }
  const auto bits = size_in_bits(dtype, shape);
  if (!bits) fail_here(of_tensor() + "the size of the shape overflows 64 bits");
  if (*bits % 8 != 0) {
    fail_here(of_tensor() + "a shape of " + std::to_string(*bits) + " bits as " +
              std::string(name_of(dtype)) + " does not fill whole bytes");
  }
  if (*bits / 8 != end - begin) {
    fail_here(of_tensor() + offsets() + " hold " + std::to_string(end - begin) + " bytes, but dtype " +
              std::string(name_of(dtype)) + " and shape need " + std::to_string(*bits / 8));
  }
  header.entries.push_back(std::move(entry_));
}

/// Names are compared by sorting: a hash table could be made slow by names chosen to collide.
void HeaderSax::check_names() {
  std::vector<const std::string*> names;
  names.reserve(header.entries.size());
  for (const auto& entry : header.entries) names.push_back(&entry.name);
  std::sort(names.begin(), names.end(), [](auto* a, auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](auto* a, auto* b) { return *a == *b; });
  if (twice != names.end()) fail("the tensor name " + quote(**twice) + " appears twice");
}

void HeaderSax::check_tiling() {
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t covered = 0;
  const SafetensorsEntry* last = nullptr;
  for (const auto& entry : header.entries) {
    if (entry.begin < covered) {
      fail("the tensor " + quote(entry.name) + " overlaps " + quote(last->name) + " from byte " +
           std::to_string(entry.begin) + " of the data on");
    }
    if (entry.begin > covered) {
      fail("there is a hole before the tensor " + quote(entry.name) + ": bytes " + std::to_string(covered) +
           " to " + std::to_string(entry.begin) + " of the data belong to no tensor");
    }
    covered = entry.end;
    last = &entry;
  }
  if (covered != data_size_) {
    fail("the file has " + std::to_string(data_size_ - covered) +
         " trailing bytes after the last tensor, which belong to none");
  }
}

void HeaderSax::finish() {
  check_names();
  check_tiling();
}

/// What people take for a safetensors file, from its first bytes.
std::string hint(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("version ")) return " (it is a Git LFS pointer: run `git lfs pull`)";
  if (text.starts_with("PK\x03\x04") || text.starts_with("\x80\x02")) {
    return " (it looks like a PyTorch pickle file, which graft does not read)";
  }
  if (text.starts_with("GGUF")) return " (it is a GGUF file: give it the extension .gguf)";
  if (text.starts_with("<")) return " (it looks like a web page: fetch the file again)";
  if (text.starts_with("{")) return " (it looks like a JSON file)";
  return "";
}

}  // namespace

std::optional<uint64_t> size_in_bits(SafetensorsDtype dtype, const std::vector<int64_t>& shape) {
  // In the reference implementation's order, in which [0, huge, huge] has a size and [huge, huge, 0] has
  // none.
  uint64_t size = 1;
  for (const int64_t dim : shape) {
    if (__builtin_mul_overflow(size, static_cast<uint64_t>(dim), &size)) return std::nullopt;
  }
  if (__builtin_mul_overflow(size, uint64_t{bits_of(dtype)}, &size)) return std::nullopt;
  return size;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, uint64_t file_size,
                                           std::string_view label) {
  HeaderSax sax(label, 0);
  if (file_size < kLengthBytes || head.size() < kLengthBytes) {
    sax.fail("the file has " + std::to_string(file_size) +
             " bytes, too few to be a safetensors file, which starts with 8 bytes of header length");
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(head[i]);
  const std::string said = "the header length is given as " + std::to_string(length) + " bytes";
  if (length > kMaxSafetensorsHeader) {
    sax.fail(said + ", over the limit of " + std::to_string(kMaxSafetensorsHeader) +
             ": not a safetensors file" + hint(head));
  }
  if (length > file_size - kLengthBytes || length > head.size() - kLengthBytes) {
    sax.fail(said + ", beyond the end of the file of " + std::to_string(file_size) +
             " bytes: the file is truncated; fetch it again");
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) {
    sax.fail(text.empty() ? "the header is empty; it must be a JSON object"
                          : "the header does not start with '{': not a safetensors file");
  }
  HeaderSax reader(label, file_size - kLengthBytes - length);
  parse_strict(text, reader);
  reader.finish();
  reader.header.data_start = kLengthBytes + length;
  return std::move(reader.header);
}

}  // namespace graft::io
