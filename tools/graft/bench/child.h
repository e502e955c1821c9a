// A child process that measures, spoken to in lines of JSON over pipes: one request, one reply.
//
//   {"do": "prepare"}                                          Python only: what torch.compile keeps for all
//   programs
//   {"do": "make", "folder": F, "config": C, "inputs": I, "adapter": A, "adapters": N}
//                                                              writes F/model, F/inputs.safetensors and
//                                                              F/adapters/0 to N-1
//   {"do": "load", "folder": F, "work": W, "how": H, ...}      gets ready; nothing is run yet
//   {"do": "first_call"}                                       -> {"seconds": s[, "counters": ...]}
//   {"do": "outputs", "path": P}                               one call, its results into a safetensors file
//   {"do": "nudge"}                                            moves the parameters by a few roundings
//   {"do": "run", "calls": N}                                  one call to warm up, then -> {"times_ms": [N]}
//   {"do": "facts"}                                            what a piece of work knows of itself:
//                                                              -> {["peak_bytes": b][, "host_share": s]
//                                                              [, "recompiles": n, since it started]}
//   {"do": "quit"}
//
// The child says {"versions": {...}} when it starts. A reply {"error": text} is a failed request.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graft/error.h"
#include "support/file_descriptor.h"

namespace graft::cli::bench {

using nlohmann::ordered_json;

/// The person pressed Ctrl-C.
class Interrupted : public Error {
 public:
  Interrupted() : Error("[bench] interrupted") {}
};

/// While one lives, SIGINT and SIGTERM make whoever waits for a child throw Interrupted.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

class Child {
 public:
  /// `environment` is added to ours; what the child writes on standard error goes to `log`. Error when it
  /// cannot be started.
  Child(std::string name, const std::vector<std::string>& command,
        const std::map<std::string, std::string>& environment, std::filesystem::path log);
  /// Ends the child and everything it started.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Error when the child says so, or dies; it names the child and has the end of its log.
  ordered_json ask(const ordered_json& request);
  const ordered_json& versions() const { return versions_; }
  /// Lets the child end by itself, so that it can put its files in order.
  void quit();

 private:
  std::string read_line();
  ordered_json read_reply();
  [[noreturn]] void fail(const std::string& what);

  std::string name_;
  std::filesystem::path log_;
  FileDescriptor to_, from_;
  pid_t pid_ = -1;
  std::string buffered_;
  ordered_json versions_;
};

}  // namespace graft::cli::bench
