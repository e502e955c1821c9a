// Objects in memory: ORC's linking layer (JITLink) with one session for each library.
#include <llvm/ExecutionEngine/JITLink/JITLink.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectFileInterface.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/ExecutionEngine/Orc/TaskDispatch.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Triple.h>

#include <unordered_map>

#include "graft/error.h"
#include "targets/cpu/jit.h"

namespace graft::cpu {
namespace orc = llvm::orc;

struct Library::Linked {
  std::unique_ptr<orc::ExecutionSession> session;
  std::unique_ptr<orc::ObjectLinkingLayer> layer;
  std::string report;  // what the session says while it links: the reason behind a failed lookup
  std::unordered_map<std::string, void*> addresses;

  ~Linked() {
    if (!session) return;
    llvm::consumeError(session->endSession());  // frees the code; before the layer goes
  }
};

namespace {

[[noreturn]] void fail(llvm::Error error, const std::string& report = {}) {
  const std::string reason = llvm::toString(std::move(error));
  throw Error("[cpu] cannot link compiled code: " + (report.empty() ? reason : report));
}

template <class T>
T take(llvm::Expected<T> value) {
  if (!value) fail(value.takeError());
  return std::move(*value);
}

/// JITLink patches where an object's relocations say, also outside of the section they are for.
llvm::Error check_relocations(llvm::jitlink::LinkGraph& graph) {
  for (const auto* block : graph.blocks())
    for (const auto& edge : block->edges())
      if (edge.isRelocation() && edge.getOffset() + 4 > block->getSize())
        return llvm::createStringError("a relocation lies outside of its section");
  return llvm::Error::success();
}

class CheckRelocations : public orc::ObjectLinkingLayer::Plugin {
 public:
  void modifyPassConfig(orc::MaterializationResponsibility& unit, llvm::jitlink::LinkGraph& graph,
                        llvm::jitlink::PassConfiguration& passes) override {
    passes.PrePrunePasses.emplace_back(&check_relocations);
  }
  llvm::Error notifyFailed(orc::MaterializationResponsibility& unit) override {
    return llvm::Error::success();
  }
  llvm::Error notifyRemovingResources(orc::JITDylib& dylib, orc::ResourceKey key) override {
    return llvm::Error::success();
  }
  void notifyTransferringResources(orc::JITDylib& dylib, orc::ResourceKey to,
                                   orc::ResourceKey from) override {}
};

/// LLVM reads objects of other systems and machines as well, down to a page of zeros.
void check_machine(llvm::MemoryBufferRef buffer) {
  const auto object = take(llvm::object::ObjectFile::createObjectFile(buffer));
  const llvm::Triple own(host().triple);
  if (!object->isRelocatableObject() || object->getArch() != own.getArch() ||
      object->getTripleObjectFormat() != own.getObjectFormat())
    throw Error("[cpu] cannot link compiled code: not an object for " + own.str());
}

}  // namespace

Library::Library(std::unique_ptr<Linked> linked) : linked_(std::move(linked)) {}
Library::~Library() = default;

std::shared_ptr<Library> Library::load(std::span<const std::string> objects) {
  auto linked = std::make_unique<Linked>();
  // The default dispatcher would start threads.
  linked->session = std::make_unique<orc::ExecutionSession>(
      take(orc::SelfExecutorProcessControl::Create(nullptr, std::make_unique<orc::InPlaceTaskDispatcher>())));
  auto& session = *linked->session;
  session.setErrorReporter([&report = linked->report](llvm::Error error) {
    report += (report.empty() ? "" : "; ") + llvm::toString(std::move(error));
  });
  linked->layer = std::make_unique<orc::ObjectLinkingLayer>(session);
  linked->layer->addPlugin(std::make_shared<CheckRelocations>());
  auto& dylib = session.createBareJITDylib("kernels");
  dylib.addGenerator(take(orc::DynamicLibrarySearchGenerator::GetForCurrentProcess('\0')));

  orc::SymbolLookupSet wanted;
  for (const auto& object : objects) {
    // Copied, because a string's bytes may lie at an odd address and the ELF reader wants them aligned.
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, "object");
    check_machine(buffer->getMemBufferRef());
    auto interface = take(orc::getObjectFileInterface(session, buffer->getMemBufferRef()));
    for (const auto& [name, flags] : interface.SymbolFlags) wanted.add(name);
    if (auto error =
            linked->layer->add(dylib.getDefaultResourceTracker(), std::move(buffer), std::move(interface)))
      fail(std::move(error));
  }
  auto symbols = session.lookup({{&dylib, orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(wanted));
  if (!symbols) fail(symbols.takeError(), linked->report);
  for (const auto& [name, symbol] : *symbols)
    linked->addresses.emplace((*name).str(), symbol.getAddress().toPtr<void*>());
  return std::shared_ptr<Library>(new Library(std::move(linked)));
}

void* Library::find(const std::string& symbol) const {
  const auto at = linked_->addresses.find(symbol);
  if (at == linked_->addresses.end()) throw Error("[cpu] compiled code has no symbol " + symbol);
  return at->second;
}

}  // namespace graft::cpu
