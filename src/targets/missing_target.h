// What stands in for a target that this build does not have: its facts are known, it compiles nothing.
#pragma once
#include <string>

#include "graft/error.h"
#include "targets/target.h"

namespace graft {

class MissingTarget : public Target {
 public:
  std::string fingerprint() const override { return "none"; }
  CompiledKernels compile(const codegen::Schedule&, const cache::Measuring&) const override { refuse(); }
  std::string code(const codegen::Schedule&, const std::string&) const override { refuse(); }
  const runtime::Device& device(const ir::Device&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw Error("[compile] " + missing()); }
};

}  // namespace graft
