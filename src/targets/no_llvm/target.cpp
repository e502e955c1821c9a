// In the place of targets/cpu where graft is built without LLVM.
#include "targets/cpu_facts.h"
#include "targets/cpu_settings.h"
#include "targets/cpu_target.h"
#include "targets/missing_target.h"

namespace graft::cpu {
namespace {

class NoTarget : public MissingTarget {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string missing() const override {
    return "this build of graft has no LLVM, so backend=graft cannot compile for the CPU: use "
           "backend=aot_eager, or install llvm-19-dev and build again";
  }
  const codegen::Limits& limits() const override { return cpu::limits(); }
  const passes::TargetFacts& facts() const override { return cpu::facts(); }
  const std::vector<std::string>& code_levels() const override { return cpu::code_levels(); }
  std::string_view library_for(ir::OpKind kind) const override { return cpu::library_for(kind); }
  std::unique_ptr<KeptSettings> keep_settings() const override { return cpu::keep_settings(); }
};

}  // namespace

const Target& target() {
  static const NoTarget instance;
  return instance;
}

}  // namespace graft::cpu
