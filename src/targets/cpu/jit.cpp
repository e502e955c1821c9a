// The host, the passes over a module, and the object made from it.
#include "targets/cpu/jit.h"

#include <llvm/ADT/ScopeExit.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetLoweringObjectFile.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/IPO/ModuleInliner.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <algorithm>
#include <mutex>

#include "graft/error.h"

namespace graft::cpu {
namespace {

Host detect() {
  Host host;
  host.triple = llvm::sys::getProcessTriple();
  host.cpu = llvm::sys::getHostCPUName().str();
  std::vector<std::string> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(features.begin(), features.end());  // they come from a hash table, and go into cache keys
  for (const auto& feature : features) host.features += (host.features.empty() ? "" : ",") + feature;
  host.vector_bytes = host.has("avx512f") ? 64 : host.has("avx2") ? 32 : 16;
  return host;
}

std::unique_ptr<llvm::TargetMachine> make_machine(const Host& host) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  std::string error;
  const auto* target = llvm::TargetRegistry::lookupTarget(host.triple, error);
  if (!target) throw Error("[cpu] LLVM has no target " + host.triple + ": " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(host.triple, host.cpu, host.features, options, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/true));
  if (!machine) throw Error("[cpu] LLVM cannot make code for " + host.triple);
  return machine;
}

/// The calling thread's machine for `host`. Kept, because its tables take half a millisecond to build.
llvm::LLVMTargetMachine& machine_for(const Host& host) {
  struct Kept {
    Host host;
    std::unique_ptr<llvm::TargetMachine> machine;
  };
  thread_local Kept kept;
  if (!kept.machine || kept.host != host) kept = {host, make_machine(host)};
  return static_cast<llvm::LLVMTargetMachine&>(*kept.machine);
}

/// Keeps what the backend complains about; without it LLVM prints to stderr and exits the process.
struct Complaints : llvm::DiagnosticHandler {
  explicit Complaints(std::string& sink) : text(sink) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(text);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }
  std::string& text;
};

void verify(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (llvm::verifyModule(module, &stream))
    throw Error("[cpu] the generated module is malformed; this is a bug in graft: " + text);
}

bool has_something_to_inline(const llvm::Module& module) {
  return std::any_of(module.begin(), module.end(), [](const llvm::Function& f) {
    return !f.isDeclaration() && f.hasLocalLinkage() && !f.hasFnAttribute(llvm::Attribute::NoInline);
  });
}

/// Cleans up what a generator of straightforward code leaves behind. No unrolling and no vectorisers: the
/// loops come in the shape they are to have. (-O1 would take eight times as long over them, for the same
/// code.)
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);

  llvm::FunctionPassManager scalar;
  scalar.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  scalar.addPass(llvm::EarlyCSEPass());
  scalar.addPass(llvm::InstCombinePass());
  scalar.addPass(llvm::SimplifyCFGPass());
  scalar.addPass(
      llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*MemorySSA=*/true));
  scalar.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));

  llvm::ModulePassManager passes;
  if (has_something_to_inline(module)) passes.addPass(llvm::ModuleInlinerPass());
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(scalar)));
  passes.run(module, modules);
}

/// What TargetMachine::addPassesToEmitFile() does, less the scheduler before register allocation: its time
/// and that of the allocator after it grow with the square of a block's length, to more than half of all, and
/// out-of-order machines run code in the order it was written in as fast.
std::string emit(llvm::Module& module, llvm::LLVMTargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallString<0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  auto* info = new llvm::MachineModuleInfoWrapperPass(&machine);
  auto* config = machine.createPassConfig(passes);
  passes.add(config);  // owns both
  passes.add(info);
  config->setDisableVerify(true);
  config->disablePass(&llvm::MachineSchedulerID);
  auto& context = info->getMMI().getContext();
  if (config->addISelPasses())
    throw Error("[cpu] LLVM cannot select instructions for " + machine.getTargetTriple().str());
  config->addMachinePasses();
  config->setInitialized();
  machine.getObjFileLowering()->Initialize(context, machine);
  if (machine.addAsmPrinter(passes, stream, nullptr, type, context))
    throw Error("[cpu] LLVM cannot write objects for " + machine.getTargetTriple().str());
  passes.add(llvm::createFreeMachineFunctionPass());
  passes.run(module);
  return std::string(bytes.str());
}

/// Runs `body(machine)` on a module that was made ready and verified; complaints become an Error.
template <class Body>
auto with_machine(llvm::Module& module, const Host& host, Body body) {
  auto& machine = machine_for(host);
  set_target(module, host);
  for (auto& function : module)
    if (!function.isDeclaration()) set_target(function, host);
  verify(module);

  std::string complaints;
  auto& context = module.getContext();
  auto previous = context.getDiagnosticHandler();
  context.setDiagnosticHandler(std::make_unique<Complaints>(complaints));
  const auto restore = llvm::make_scope_exit([&] { context.setDiagnosticHandler(std::move(previous)); });
  auto result = body(machine);
  if (!complaints.empty()) throw Error("[cpu] LLVM cannot compile the module: " + complaints);
  return result;
}

}  // namespace

bool Host::has(std::string_view feature) const {
  for (size_t at = features.find(feature); at != std::string::npos; at = features.find(feature, at + 1)) {
    const size_t end = at + feature.size();
    if (at > 0 && features[at - 1] == '+' && (end == features.size() || features[end] == ',')) return true;
  }
  return false;
}

const Host& host() {
  static const Host detected = detect();
  return detected;
}

void set_target(llvm::Module& module, const Host& host) {
  if (module.getTargetTriple() == host.triple && !module.getDataLayout().isDefault()) return;
  module.setTargetTriple(host.triple);
  module.setDataLayout(machine_for(host).createDataLayout());
}

void set_target(llvm::Function& function, const Host& host) {
  function.addFnAttr("target-cpu", host.cpu);
  function.addFnAttr("target-features", host.features);
  // Without it x86 backends split 64-byte vectors in two, for fear of lower clocks that newer machines do not
  // have.
  if (host.vector_bytes >= 32)
    function.addFnAttr("prefer-vector-width", std::to_string(host.vector_bytes * 8));
  // It is the caller's to choose (at::globalContext().setFlushDenormal). And it keeps LLVM from a wrong step:
  // where denormals are known to count, InstCombine (of LLVM 19, fcmpImpliesClass) takes `fabs(x) > 0` for
  // `x > 0` when it joins it with another test of x, which makes relu(x) of relu(abs(x)).
  function.addFnAttr("denormal-fp-math", "dynamic,dynamic");
  function.addFnAttr(llvm::Attribute::NoUnwind);
}

std::string compile_object(llvm::Module& module, const Host& host) {
  return with_machine(module, host, [&](llvm::LLVMTargetMachine& machine) {
    optimise(module, machine);
    return emit(module, machine, llvm::CodeGenFileType::ObjectFile);
  });
}

std::string llvm_text(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

Listing listing(llvm::Module& module, const Host& host) {
  return with_machine(module, host, [&](llvm::LLVMTargetMachine& machine) {
    optimise(module, machine);
    std::string llvm = llvm_text(module);
    return Listing{std::move(llvm), emit(module, machine, llvm::CodeGenFileType::AssemblyFile)};
  });
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace graft::cpu
