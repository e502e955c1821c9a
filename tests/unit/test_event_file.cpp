// Event files: the checksum by its published values, a file that cannot be written. (TensorBoard itself reads
// them in tests/oracle/test_train.py.)
#include "io/format/event_file.h"

#include <gtest/gtest.h>

#include "graft/error.h"
#include "temp_dir.h"

namespace graft::io {
namespace {

TEST(EventFile, ChecksumIsCastagnolis) {
  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  const TempDir temp;
  std::ofstream(temp.path() / "file") << "x";
  EXPECT_THROW(EventFile(temp.path() / "file" / "runs"), IoError);
}

}  // namespace
}  // namespace graft::io
