// Any bytes: either FormatError, or a header whose tensors follow each other inside the file; and its
// metadata give a config and a tokenizer, or an error of ours.
//
// Each input is read as it is and with a "GGUF" header for as many entries and tensors as its first two bytes
// say, so that the fuzzer need not keep the counts in step.
#include <cstdint>
#include <set>
#include <string>

#include "fuzz.h"
#include "graft/error.h"
#include "io/format/gguf_config.h"

namespace {

using namespace graft::io;

void check_message(const std::string_view what) {
  FUZZ_CHECK(what.starts_with("[gguf] fuzz") && what.size() < 2000 && what.find('\n') == what.npos);
}

void check_accepted(const GgufHeader& header, uint64_t file_size) {
  std::set<std::string> names;
  uint64_t next = 0;
  for (const auto& tensor : header.tensors) {
    FUZZ_CHECK(names.insert(tensor.name).second);
    FUZZ_CHECK(tensor.offset == next && tensor.offset % header.alignment == 0);
    FUZZ_CHECK(tensor.bytes % block_bytes(tensor.type) == 0);
    FUZZ_CHECK(header.data_start + tensor.offset + tensor.bytes <= file_size || tensor.bytes == 0);
    next = (tensor.offset + tensor.bytes + header.alignment - 1) / header.alignment * header.alignment;
  }
  FUZZ_CHECK(header.data_start <= file_size && file_size <= header.data_start + next);
}

void read(std::span<const std::byte> file) {
  GgufHeader header;
  try {
    header = parse_gguf_header(file, "fuzz");
  } catch (const graft::FormatError& error) {
    return check_message(error.what());
  }
  check_accepted(header, file.size());
  try {
    FUZZ_CHECK(gguf_config(header, "fuzz").contains("model_type"));
  } catch (const graft::Error& error) {
    check_message(error.what());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read(std::as_bytes(std::span(data, size)));
  if (size < 2) return 0;
  std::string framed = "GGUF";
  const auto append = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) framed += static_cast<char>(value >> (8 * i));
  };
  append(3, 4);
  append(data[0] % 8, 8);
  append(data[1] % 32, 8);
  framed.append(reinterpret_cast<const char*>(data) + 2, size - 2);
  read(std::as_bytes(std::span(framed)));
  return 0;
}
