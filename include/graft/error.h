// The errors graft throws. Catch graft::Error for all of them; a message starts with the part that failed,
// "[safetensors] ...", and says what to do where something can be done.
#pragma once
#include <stdexcept>
#include <string>

namespace graft {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file is not what it should be: malformed, truncated, of an unknown kind.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// A configuration asks for something unknown or unsupported, or contradicts itself.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// The caller asked for something that makes no sense: a wrong argument, a wrong combination.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// The operating system refused: a file cannot be opened, the disk is full.
class IoError : public Error {
 public:
  using Error::Error;
};

/// Compilation met code that no graph can hold: a value read on the host, a shape that depends on data.
/// Thrown with `fullgraph`; else the function runs eagerly.
class GraphBreak : public Error {
 public:
  explicit GraphBreak(const std::string& reason, std::string backtrace = "")
      : Error(backtrace.empty() ? reason : reason + "\n" + backtrace),
        reason_(reason),
        backtrace_(std::move(backtrace)) {}
  const std::string& reason() const { return reason_; }
  /// The C++ stack at the call, where the platform can give one.
  const std::string& backtrace() const { return backtrace_; }

 private:
  std::string reason_, backtrace_;
};

/// Compiled code gave another result than the eager function.
class Mismatch : public Error {
 public:
  using Error::Error;
};

}  // namespace graft
