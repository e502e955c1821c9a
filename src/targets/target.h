// All that the compiler asks of a target: the machine that code is made for. targets.h has the list of them.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/choices.h"
#include "codegen/fusion.h"
#include "codegen/limits.h"
#include "ir/op_traits.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "runtime/launcher.h"

namespace graft {

/// Settings of the process as they were when this was made: its destructor puts them back.
class KeptSettings {
 public:
  KeptSettings() = default;
  virtual ~KeptSettings() = default;
  KeptSettings(const KeptSettings&) = delete;
  KeptSettings& operator=(const KeptSettings&) = delete;
};

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

  /// Small kernels with the same answer are launched as one (codegen/side_by_side.h); 0: never.
  virtual int64_t launch_kind(const codegen::Kernel& /*kernel*/) const { return 0; }

  /// The launcher of kernels that are launched as one stands at the first of them, and takes the buffers of
  /// all; the others have none.
  virtual CompiledKernels compile(const codegen::Schedule& schedule, const cache::Measuring& how) const = 0;
  /// The levels of `--emit` below the loops, and the text of one of them.
  virtual const std::vector<std::string>& code_levels() const = 0;
  virtual std::string code(const codegen::Schedule& schedule, const std::string& level) const = 0;

  virtual const runtime::Device& device(const ir::Device& which) const = 0;

  /// The library that computes such calls on this target, for people.
  virtual std::string_view library_for(ir::OpKind /*kind*/) const { return "ATen"; }
  /// Held while the eager function runs: what that may change for the whole process and programs of this
  /// target need. Null where there is nothing.
  virtual std::unique_ptr<KeptSettings> keep_settings() const { return nullptr; }
};

}  // namespace graft
