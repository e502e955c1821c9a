// Event files as TensorBoard reads them: scalars by name and step.
//
// A file is a sequence of records (length, checksum of the length, data, checksum of the data), each an Event
// in protobuf's wire format. The little of it that scalars need is written here.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/format/append_file.h"

namespace graft::io {

/// CRC-32C (Castagnoli), not yet masked as records have it.
uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  /// Creates DIR/events.out.tfevents.TIME.graft.PID; IoError where it cannot.
  explicit EventFile(const std::filesystem::path& dir);
  /// One event with all of them; it is on disk when the call returns. IoError where it cannot be written.
  void add(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void write(const std::string& event);

  AppendFile file_;
};

}  // namespace graft::io
