// In the place of targets/cpu where graft is built without LLVM.
#include "graft/error.h"
#include "targets/cpu_facts.h"
#include "targets/cpu_target.h"

namespace graft::cpu {
namespace {

class NoTarget : public Target {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string missing() const override {
    return "this build of graft has no LLVM, so backend=graft cannot compile for the CPU: use "
           "backend=aot_eager, or install llvm-19-dev and build again";
  }
  std::string fingerprint() const override { return "no cpu"; }
  const codegen::Limits& limits() const override { return cpu::limits(); }
  const passes::TargetFacts& facts() const override { return cpu::facts(); }
  CompiledKernels compile(const codegen::Schedule&, const cache::Measuring&) const override { refuse(); }
  const std::vector<std::string>& code_levels() const override {
    static const std::vector<std::string> levels = {"llvm"};
    return levels;
  }
  std::string code(const codegen::Schedule&, const std::string&) const override { refuse(); }
  const runtime::Device& device(const ir::Device&) const override { refuse(); }

 private:
  [[noreturn]] void refuse() const { throw Error("[compile] " + missing()); }
};

}  // namespace

const Target& target() {
  static const NoTarget instance;
  return instance;
}

}  // namespace graft::cpu
