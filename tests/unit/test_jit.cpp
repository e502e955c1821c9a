// LLVM modules to running code: what is compiled runs, on several threads at once, and what is malformed (a
// module, an object, a name) is an Error and nothing else.
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/SourceMgr.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "graft/error.h"
#include "targets/cpu/jit.h"

namespace graft::cpu {
namespace {

/// Parses the text of a module and hands it to `use`.
template <class Use>
auto with_module(const std::string& text, Use use) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  auto module = llvm::parseAssemblyString(text, diagnostic, context);
  if (!module) throw std::logic_error(diagnostic.getMessage().str());
  return use(*module);
}

std::string object_of(const std::string& text, const Host& machine = host()) {
  return with_module(text, [&](llvm::Module& module) { return compile_object(module, machine); });
}

std::shared_ptr<Library> load(const std::vector<std::string>& objects) { return Library::load(objects); }

template <class F>
F* function(const Library& library, const std::string& name) {
  return reinterpret_cast<F*>(library.find(name));
}

std::string constant(const std::string& name, int value) {
  return "define i32 @" + name + "() { ret i32 " + std::to_string(value) + " }";
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const char* const kAdd = R"(
define void @add(ptr %a, ptr %b, ptr %c, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %pc = getelementptr float, ptr %c, i64 %i
  %x = load <16 x float>, ptr %pa, align 4
  %y = load <16 x float>, ptr %pb, align 4
  %z = fadd <16 x float> %x, %y
  store <16 x float> %z, ptr %pc, align 4
  %next = add i64 %i, 16
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
})";

TEST(Jit, HostIsKnown) {
  EXPECT_FALSE(host().triple.empty());
  EXPECT_FALSE(host().cpu.empty());
  EXPECT_TRUE(host().vector_bytes == 16 || host().vector_bytes == 32 || host().vector_bytes == 64);
  EXPECT_FALSE(llvm_version().empty());
  const Host made{"x86_64-unknown-linux-gnu", "x", "+avx2,-avx512f,+fma", 32};
  EXPECT_TRUE(made.has("avx2"));
  EXPECT_TRUE(made.has("fma"));
  EXPECT_FALSE(made.has("avx"));
  EXPECT_FALSE(made.has("avx512f"));
}

TEST(Jit, CompilesAndRuns) {
  const auto library = load({object_of(kAdd)});
  std::vector<float> a(64), b(64), c(64);
  for (int i = 0; i < 64; ++i) a[i] = static_cast<float>(i), b[i] = static_cast<float>(2 * i);
  function<void(float*, float*, float*, int64_t)>(*library, "add")(a.data(), b.data(), c.data(), 64);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(c[i], static_cast<float>(3 * i));
}

TEST(Jit, SameModuleSameBytes) { EXPECT_EQ(object_of(kAdd), object_of(kAdd)); }

TEST(Jit, CompilesForALesserHost) {
  Host plain = host();
  plain.cpu = "generic";
  plain.features = "";
  plain.vector_bytes = 16;
  EXPECT_NO_THROW(load({object_of(kAdd, plain)}));
}

TEST(Jit, ContractsNothingByItself) {
  // In one rounding this is 2^-60, in two it is 0.
  const auto library =
      load({object_of("define double @f(double %x, double %y, double %z) {\n %p = fmul double %x, %y\n"
                      " %s = fadd double %p, %z\n ret double %s }")});
  auto* f = function<double(double, double, double)>(*library, "f");
  EXPECT_EQ(f(1 + 0x1p-30, 1 + 0x1p-30, -(1 + 0x1p-29)), 0);
}

TEST(Jit, SeesTheProcessAndItsOtherObjects) {
  const auto library =
      load({object_of("declare i32 @inner()\ndeclare double @cos(double)\ndefine double @outer() {\n"
                      " %i = call i32 @inner()\n %x = sitofp i32 %i to double\n"
                      " %y = call double @cos(double %x)\n ret double %y }"),
            object_of(constant("inner", 2))});
  EXPECT_EQ(function<double()>(*library, "outer")(), std::cos(2.0));
}

TEST(Jit, InlinesInternalFunctions) {
  const std::string text =
      "define internal i32 @inner(i32 %x) {\n %y = mul i32 %x, 3\n ret i32 %y }\n"
      "define i32 @outer(i32 %x) {\n %y = call i32 @inner(i32 %x)\n ret i32 %y }";
  with_module(text, [](llvm::Module& module) {
    EXPECT_EQ(listing(module, host()).llvm.find("call"), std::string::npos);
    return 0;
  });
  EXPECT_EQ(function<int(int)>(*load({object_of(text)}), "outer")(5), 15);
}

TEST(Jit, ListsItsCode) {
  with_module(kAdd, [](llvm::Module& module) {
    EXPECT_NE(llvm_text(module).find("fadd <16 x float>"), std::string::npos);
    const Listing text = listing(module, host());
    EXPECT_NE(text.llvm.find("fadd <16 x float>"), std::string::npos);
    EXPECT_NE(text.assembly.find("add:"), std::string::npos);
    return 0;
  });
}

TEST(Jit, ThreadsCompileAndLoadAtOnce) {
  std::vector<int> results(8);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([t, &results] {
      for (int round = 0; round < 5; ++round) {
        const auto library = load({object_of(constant("f", t)), object_of(kAdd)});
        results[t] = function<int()>(*library, "f")();
      }
    });
  for (auto& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) EXPECT_EQ(results[t], t);
}

TEST(Jit, TwoLibrariesMayUseOneName) {
  const auto one = load({object_of(constant("f", 1))}), two = load({object_of(constant("f", 2))});
  EXPECT_EQ(function<int()>(*one, "f")(), 1);
  EXPECT_EQ(function<int()>(*two, "f")(), 2);
}

TEST(Jit, OneLibraryMayNot) {
  const auto object = object_of(constant("twice", 1));
  EXPECT_NE(message_of([&] { load({object, object}); }).find("twice"), std::string::npos);
}

TEST(Jit, CodeLivesAsLongAsItsLibrary) {
  auto library = load({object_of(constant("f", 7))});
  auto second = library;
  auto* f = function<int()>(*library, "f");
  library.reset();
  EXPECT_EQ(f(), 7);
}

TEST(Jit, MissingSymbolIsNamed) {
  const auto library = load({object_of(constant("f", 1))});
  EXPECT_NE(message_of([&] { library->find("nowhere"); }).find("nowhere"), std::string::npos);
  const auto dangling = object_of(
      "declare i32 @graft_no_such_function()\ndefine i32 @f() {\n"
      " %x = call i32 @graft_no_such_function()\n ret i32 %x }");
  EXPECT_NE(message_of([&] { load({dangling}); }).find("graft_no_such_function"), std::string::npos);
}

TEST(Jit, MalformedModuleIsRefused) {
  llvm::LLVMContext context;
  llvm::Module module("bad", context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", module);
  llvm::BasicBlock::Create(context, "unterminated", f);
  EXPECT_NE(message_of([&] { compile_object(module, host()); }).find("terminator"), std::string::npos);
}

TEST(Jit, UnknownTargetIsRefused) {
  Host other = host();
  other.triple = "nothing-unknown-linux-gnu";
  EXPECT_NE(message_of([&] { object_of(kAdd, other); }).find("nothing-unknown"), std::string::npos);
}

/// Loads what may be broken; an Error is as good as success, everything else is not.
bool loads(const std::string& object) {
  try {
    load({object});
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Jit, MalformedObjectsAreErrors) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(loads(""));
  EXPECT_FALSE(loads("garbage"));
  EXPECT_FALSE(loads(std::string(4096, '\0')));
  EXPECT_FALSE(loads("\177ELF" + std::string(60, '\1')));
  const std::string object = object_of(kAdd);
  for (size_t size = 0; size < object.size(); size += 7) EXPECT_FALSE(loads(object.substr(0, size))) << size;
  EXPECT_TRUE(loads(object));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

/// Found by flipping bits: such an object crashed JITLink.
TEST(Jit, RelocationOutsideItsSectionIsAnError) {
  const std::string object = object_of(
      "declare double @cos(double)\ndefine double @f(double %x) {\n"
      " %y = call double @cos(double %x)\n %z = fadd double %x, %y\n ret double %z }");
  auto field = [&](size_t at, auto type) {
    std::memcpy(&type, object.data() + at, sizeof type);
    return type;
  };
  // The section headers of an ELF file of 64 bits: type at 4, offset at 24, each 64 long.
  const auto headers = field(0x28, uint64_t{});
  int found = 0;
  for (int i = 0; i < field(0x3c, uint16_t{}); ++i)
    if (field(headers + 64 * i + 4, uint32_t{}) == 4) {  // SHT_RELA
      std::string broken = object;
      broken[field(headers + 64 * i + 24, uint64_t{}) + 2] = '\x7f';  // of the first relocation's offset
      EXPECT_FALSE(loads(broken));
      ++found;
    }
  EXPECT_GE(found, 1);
}

TEST(Jit, ObjectOfAnotherMachineIsAnError) {
  std::string object = object_of(kAdd);
  object[18] = '\x08';  // e_machine: MIPS
  object[19] = '\0';
  EXPECT_FALSE(loads(object));
}

}  // namespace
}  // namespace graft::cpu
