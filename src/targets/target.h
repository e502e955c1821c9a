// All that the compiler asks of a target: the machine that code is made for. targets.h has the list of them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cache/choices.h"
#include "codegen/fusion.h"
#include "codegen/limits.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/launcher.h"

namespace graft {

class Target {
 public:
  Target() = default;
  virtual ~Target() = default;
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  /// As in `--device`.
  virtual std::string_view name() const = 0;
  /// Why it cannot compile in this build or on this machine, and what to do; empty if it can.
  virtual std::string missing() const { return {}; }
  /// Tells what is made by this target, on this machine, from what others make: part of every key of the disk
  /// cache.
  virtual std::string fingerprint() const = 0;

  virtual const codegen::Limits& limits() const = 0;
  virtual const passes::TargetFacts& facts() const = 0;

  virtual CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring& how) const = 0;
  /// The levels of `--emit` below the loops, and the text of one of them.
  virtual const std::vector<std::string>& code_levels() const = 0;
  virtual std::string code(const codegen::Schedule& schedule, const std::string& level) const = 0;

  virtual const runtime::Device& device(const ir::Device& which) const = 0;
};

}  // namespace graft
