// Any text: either FormatError, or the value that nlohmann's own parser gives, which survives being written
// and read again. What we refuse and nlohmann takes is one of the leniencies we close on purpose.
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "fuzz.h"
#include "graft/error.h"
#include "io/format/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const graft::io::JsonLimits limits{.max_bytes = 1 << 20, .max_depth = 16};
  nlohmann::json value;
  try {
    value = graft::io::parse_json(text, "fuzz", limits);
  } catch (const graft::FormatError& error) {
    const std::string_view what = error.what();
    FUZZ_CHECK(what.starts_with("[json] fuzz: ") && what.size() < 2000);
    FUZZ_CHECK(what.find('\n') == what.npos);
    bool ours = false;
    for (const char* reason :
         {"appears twice", "NUL byte", "byte order mark", "nested too deeply", "allowed"}) {
      ours = ours || what.find(reason) != what.npos;
    }
    FUZZ_CHECK(ours || !nlohmann::json::accept(text));
    return 0;
  }
  FUZZ_CHECK(value == nlohmann::json::parse(text));
  FUZZ_CHECK(value == graft::io::parse_json(value.dump(), "again", limits));
  return 0;
}
