// What all our JSON readers have in common: nlohmann's event parser with its leniencies closed.
//
// nlohmann takes a NUL byte for the end of the text and skips a byte order mark; both are errors here. It
// keeps its own stack of open brackets on the heap (so deep nesting cannot overflow ours), and the depth is
// capped all the same. Callbacks report errors by throwing, and know where in the text they are.
#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace graft::io {

class StrictSax : public nlohmann::json::json_sax_t {
 public:
  /// `part` opens every message ("[json]") and must outlive this; `label` names the file. Byte positions in
  /// messages count from `offset`, where the text begins in its file.
  StrictSax(std::string_view part, std::string label, size_t max_depth, size_t offset = 0)
      : part_(part), label_(std::move(label)), max_depth_(max_depth), offset_(offset) {}

  /// Throws FormatError: "[part] label: what", or with fail_here "[part] label: what, near byte N".
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_here(const std::string& what) const;

  bool start_object(size_t) final;
  bool end_object() final;
  bool start_array(size_t) final;
  bool end_array() final;
  bool binary(binary_t&) final { return false; }  // never called for text
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

 protected:
  virtual void open_object() = 0;
  virtual void close_object() = 0;
  virtual void open_array() = 0;
  virtual void close_array() = 0;
  /// How many brackets are open, the one just opened or about to be closed included.
  size_t depth() const { return depth_; }

 private:
  friend void parse_strict(std::string_view text, StrictSax& sax);
  void enter();

  std::string_view part_;
  std::string label_;
  size_t max_depth_, offset_;
  size_t depth_ = 0;
  const char* text_ = nullptr;  // set while parsing
  const char* read_ = nullptr;  // the first character not read yet
};

/// Sends the events of `text` to `sax`; throws FormatError for anything but one JSON value with white space
/// around it.
void parse_strict(std::string_view text, StrictSax& sax);

}  // namespace graft::io
