#include "io/format/strict_sax.h"

#include <iterator>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {
namespace {

/// A pointer that tells how far it got: nlohmann's events carry no position.
struct TrackedPointer {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  const char** read;

  const char& operator*() const { return *at; }
  TrackedPointer& operator++() {
    *read = ++at;
    return *this;
  }
  bool operator==(const TrackedPointer& other) const { return at == other.at; }
  bool operator!=(const TrackedPointer& other) const { return at != other.at; }
};

}  // namespace

void StrictSax::fail(const std::string& what) const {
  throw FormatError(std::string(part_) + " " + label_ + ": " + what);
}

void StrictSax::fail_here(const std::string& what) const {
  fail(what + ", near byte " + std::to_string(offset_ + static_cast<size_t>(read_ - text_)));
}

void StrictSax::enter() {
  if (depth_ == max_depth_) {
    fail_here("the JSON is nested too deeply, more than " + std::to_string(max_depth_) + " levels");
  }
  ++depth_;
}

bool StrictSax::start_object(size_t) {
  enter();
  open_object();
  return true;
}

bool StrictSax::end_object() {
  close_object();
  --depth_;
  return true;
}

bool StrictSax::start_array(size_t) {
  enter();
  open_array();
  return true;
}

bool StrictSax::end_array() {
  close_array();
  --depth_;
  return true;
}

bool StrictSax::parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 3, column 7: ..." without the library's own prefix,
  // and not at full length: it repeats the token, which may be the whole file.
  std::string_view what = error.what();
  if (const auto end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
  std::string shown = quote(what, 300);
  // The quotes are dropped, the escapes stay.
  shown = shown.substr(1, shown.rfind('"') - 1) + (what.size() > 300 ? "..." : "");
  fail_here("invalid JSON: " + shown);
}

void parse_strict(std::string_view text, StrictSax& sax) {
  sax.text_ = sax.read_ = text.data();
  if (text.starts_with("\xEF\xBB\xBF")) {
    sax.fail("the text starts with a byte order mark, which JSON forbids; save it as plain UTF-8");
  }
  if (const auto nul = text.find('\0'); nul != text.npos) {
    sax.read_ += nul;
    sax.fail_here("invalid JSON: a NUL byte");
  }
  const TrackedPointer begin{sax.text_, &sax.read_}, end{sax.text_ + text.size(), &sax.read_};
  nlohmann::json::sax_parse(begin, end, &sax);
}

}  // namespace graft::io
