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

}  // namespace graft
