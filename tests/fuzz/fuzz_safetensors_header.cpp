// Any bytes: either FormatError, or a header whose tensors cover the data exactly and which survives being
// written and read again.
//
// Each input is read twice: as a whole file, and as (4 bytes: size of the data)(JSON text), so that the
// fuzzer need not keep the length field and the file's size in step with the text.
#include <cstdint>
#include <cstring>
#include <set>
#include <string>

#include "fuzz.h"
#include "graft/error.h"
#include "io/format/safetensors_header.h"

namespace {

using namespace graft::io;

void check_accepted(const SafetensorsHeader& header, uint64_t file_size) {
  std::set<std::string> names;
  uint64_t covered = 0;
  for (const auto& entry : header.entries) {
    FUZZ_CHECK(entry.begin == covered && entry.begin <= entry.end);
    covered = entry.end;
    FUZZ_CHECK(names.insert(entry.name).second && entry.name != "__metadata__");
    FUZZ_CHECK(entry.shape.size() <= kMaxDims);
    const auto bits = size_in_bits(entry.dtype, entry.shape);
    FUZZ_CHECK(bits && *bits % 8 == 0 && *bits / 8 == entry.bytes());
  }
  FUZZ_CHECK(header.data_start + covered == file_size);

  const std::string text = serialize_safetensors_header(header.entries, header.metadata);
  FUZZ_CHECK(text.size() % 8 == 0);
  auto again = parse_safetensors_header(std::as_bytes(std::span(text)), text.size() + covered, "again");
  FUZZ_CHECK(again.data_start == text.size());
  again.data_start = header.data_start;
  FUZZ_CHECK(again == header);

  auto entries = header.entries;
  lay_out(entries);
  const std::string sorted = serialize_safetensors_header(entries, header.metadata);
  const auto in_order =
      parse_safetensors_header(std::as_bytes(std::span(sorted)), sorted.size() + covered, "sorted");
  FUZZ_CHECK(in_order.entries.size() == header.entries.size() && in_order.metadata == header.metadata);
}

void read(std::span<const std::byte> head, uint64_t file_size) {
  SafetensorsHeader header;
  try {
    header = parse_safetensors_header(head, file_size, "fuzz");
  } catch (const graft::FormatError& error) {
    const std::string_view what = error.what();
    FUZZ_CHECK(what.starts_with("[safetensors] fuzz: ") && what.size() < 2000);
    FUZZ_CHECK(what.find('\n') == what.npos);
    return;
  }
  check_accepted(header, file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read(std::as_bytes(std::span(data, size)), size);
  if (size < 4) return 0;
  uint32_t data_size;
  std::memcpy(&data_size, data, 4);
  std::string framed(8, '\0');
  const uint64_t length = size - 4;
  std::memcpy(framed.data(), &length, 8);
  framed.append(reinterpret_cast<const char*>(data) + 4, size - 4);
  read(std::as_bytes(std::span(framed)), framed.size() + data_size);
  return 0;
}
