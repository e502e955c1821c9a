// LLVM as graft uses it: what machine this is, a module in, machine code out, machine code loaded.
//
// Nothing here knows a graph or a kernel. Modules arrive already vectorised (`<16 x float>`, which the
// backend splits into what registers there are), so that the passes are few; arithmetic is IEEE, and only an
// explicit llvm.fmuladd is contracted.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace llvm {
class Function;
class Module;
}  // namespace llvm

namespace graft::cpu {

/// A machine to make code for. Any combination may be given to the functions below, as long as the triple is
/// of the family LLVM was built for; only code for host() can be loaded.
struct Host {
  std::string triple;
  std::string cpu;
  std::string features;   // "+avx2,+fma,-avx512f"
  int vector_bytes = 16;  // of the widest register worth using

  bool has(std::string_view feature) const;  // "avx2"
  bool operator==(const Host&) const = default;
};

/// The machine this runs on, asked once.
const Host& host();

/// Sets the module's triple and data layout. Before anything that asks for sizes is built.
void set_target(llvm::Module& module, const Host& host);

/// Sets the function's CPU, features and preferred vector width. Before its body is built: vector_math.h asks
/// the function what instructions there are.
void set_target(llvm::Function& function, const Host& host);

/// The bytes of a relocatable object. Sets what set_target() would where it was not called. The module is
/// spent afterwards. Threads may compile at once, each with a module in its own LLVMContext. Throws Error
/// with the verifier's text for a module that is not well-formed.
std::string compile_object(llvm::Module& module, const Host& host);

/// The text of the module as it was handed in.
std::string llvm_text(const llvm::Module& module);

/// The text of the module after the passes, and of the machine code made from it. Spends the module as well.
struct Listing {
  std::string llvm, assembly;
};
Listing listing(llvm::Module& module, const Host& host);

/// "19.1.7": part of the key under which objects are cached.
std::string llvm_version();

/// Objects in memory, ready to run for as long as this lives. A library sees the symbols of the process (the
/// C library's functions, callbacks with C linkage that are exported), never another library's.
class Library {
 public:
  /// Links the objects with each other and the process. Throws Error for an object that is malformed or for
  /// another machine, a symbol defined twice and one defined nowhere.
  static std::shared_ptr<Library> load(std::span<const std::string> objects);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// The address of a function of the objects. Throws Error if there is none of that name. Threads may call
  /// it at once.
  void* find(const std::string& symbol) const;

 private:
  struct Linked;
  explicit Library(std::unique_ptr<Linked> linked);
  std::unique_ptr<Linked> linked_;
};

}  // namespace graft::cpu
