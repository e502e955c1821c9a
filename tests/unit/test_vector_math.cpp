// Elementary functions of generated code, against the C library in double: a stride through all floats and every
// float near the points where the formulas change. GRAFT_EXHAUSTIVE=1 takes all 2^32 of them.
#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#include "target/cpu/jit.h"
#include "target/cpu/vector_math.h"

namespace graft::cpu {
namespace {

using Body = std::function<llvm::Value*(llvm::IRBuilderBase&, llvm::Value*)>;

/// `out[i] = body(in[i])` over whole vectors, compiled for `machine`. The input is of type `in`, the output of
/// whatever type the body gives.
class Kernel {
 public:
  Kernel(const Body& body, unsigned width, const char* in = "float", const Host& machine = host()) : width_(width) {
    llvm::LLVMContext context;
    llvm::Module module("test", context);
    set_target(module, machine);
    llvm::IRBuilder<> b(context);
    auto* i64 = b.getInt64Ty();
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy(), b.getPtrTy(), i64}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "kernel", module);
    set_target(*function, machine);
    auto* entry = llvm::BasicBlock::Create(context, "entry", function);
    auto* loop = llvm::BasicBlock::Create(context, "loop", function);
    auto* done = llvm::BasicBlock::Create(context, "done", function);
    b.SetInsertPoint(entry);
    b.CreateBr(loop);
    b.SetInsertPoint(loop);
    auto* i = b.CreatePHI(i64, 2);
    i->addIncoming(b.getInt64(0), entry);
    llvm::Type* scalar = in == std::string_view("float")    ? b.getFloatTy()
                         : in == std::string_view("double") ? b.getDoubleTy()
                                                            : static_cast<llvm::Type*>(b.getInt16Ty());
    auto* vector = width == 1 ? scalar : llvm::FixedVectorType::get(scalar, width);
    auto* x = b.CreateAlignedLoad(vector, b.CreateGEP(scalar, function->getArg(0), i), llvm::Align(1));
    auto* y = body(b, x);
    auto* to = b.CreateGEP(y->getType()->getScalarType(), function->getArg(1), i);
    b.CreateAlignedStore(y, to, llvm::Align(1));
    auto* next = b.CreateAdd(i, b.getInt64(width));
    i->addIncoming(next, b.GetInsertBlock());
    b.CreateCondBr(b.CreateICmpULT(next, function->getArg(2)), loop, done);
    b.SetInsertPoint(done);
    b.CreateRetVoid();
    const std::string object = compile_object(module, machine);
    library_ = Library::load({&object, 1});
    run_ = reinterpret_cast<void (*)(const void*, void*, int64_t)>(library_->find("kernel"));
  }

  /// Both vectors' sizes are made a multiple of the width.
  template <class In, class Out>
  void operator()(std::vector<In>& in, std::vector<Out>& out) const {
    in.resize((in.size() + width_ - 1) / width_ * width_, In{});
    out.resize(in.size());
    run_(in.data(), out.data(), static_cast<int64_t>(in.size()));
  }

  template <class Out, class In>
  std::vector<Out> of(std::vector<In> in) const {
    const size_t size = in.size();
    std::vector<Out> out;
    (*this)(in, out);
    out.resize(size);
    return out;
  }

 private:
  unsigned width_;
  std::shared_ptr<Library> library_;
  void (*run_)(const void*, void*, int64_t) = nullptr;
};

/// How far `got` is from `exact`, in units of the last place the nearest float has. Not a number and infinities
/// must be the same; an infinity stands for the number after the largest float.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(nearest) || std::isnan(got)) return std::isnan(nearest) && std::isnan(got) ? 0 : 1e9;
  if (got == nearest) return std::signbit(got) == std::signbit(nearest) ? std::abs(got - exact) > 0 && std::isfinite(got) ? std::abs(got - exact) / std::ldexp(1.0, std::max(std::ilogb(nearest), -126) - 23) : 0 : 1e9;
  if (std::isinf(got) || std::isinf(nearest)) {
    const double largest = 0x1p128;
    const double a = std::isinf(got) ? std::copysign(largest, got) : got;
    const double b = std::isinf(exact) || std::isinf(nearest) ? std::copysign(largest, exact) : exact;
    return std::abs(a - b) / 0x1p104;
  }
  const int exponent = nearest == 0 ? -126 : std::max(std::ilogb(nearest), -126);
  return std::abs(got - exact) / std::ldexp(1.0, exponent - 23);
}

struct Case {
  const char* name;
  double (*exact)(double);
  double bound;  // in ulp
  std::vector<float> corners = {};
};

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

const Case kCases[] = {
    {"exp", std::exp, 1.0, {88.72284f, -87.33655f, -103.97208f}},
    {"exp2", std::exp2, 1.0, {128, -126, -149, -150}},
    {"expm1", std::expm1, 2.0, {88.72284f, -17.32868f}},
    {"log", std::log, 1.0, {0.70710678f, 1.41421356f}},
    {"log2", std::log2, 1.5, {0.70710678f, 1.41421356f}},
    {"log10", std::log10, 1.5, {0.70710678f, 1.41421356f}},
    {"log1p", std::log1p, 1.5, {-1, 0.41421356f, -0.29289322f}},
    {"tanh", std::tanh, 2.0, {9.01f}},
    {"sigmoid", sigmoid, 2.0, {-103.97208f, -88.72284f, 16.63553f}},
    {"erf", std::erf, 1.5, {0.8f, 3.92f}},
    {"erfc", std::erfc, 2.0, {}},
    {"sqrt", std::sqrt, 0.5, {}},
    {"rsqrt", rsqrt, 1.5, {}},
    {"sin", std::sin, 2.0, {}},
    {"cos", std::cos, 2.0, {}},
    {"tan", std::tan, 2.0, {}},
    {"asin", std::asin, 2.0, {0.5f, 1}},
    {"acos", std::acos, 2.0, {0.5f, 1}},
    {"atan", std::atan, 2.0, {1}},
    {"sinh", std::sinh, 2.0, {89.41599f}},
    {"cosh", std::cosh, 2.0, {89.41599f}},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// Every float with these bit patterns and stride; and 2,000 on both sides of each corner, of either sign.
std::vector<float> samples(const Case& c) {
  std::vector<float> all;
  for (uint64_t pattern = 0; pattern < (uint64_t{1} << 32); pattern += 20011)
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(pattern)));
  std::vector<float> corners = c.corners;
  for (float x : {0.0f, 1.0f, 0x1p-126f, 0x1p-25f, std::numeric_limits<float>::infinity()}) corners.push_back(x);
  for (float corner : corners)
    for (int offset = -2000; offset <= 2000; ++offset) {
      const auto x = std::bit_cast<float>(std::bit_cast<uint32_t>(corner) + static_cast<uint32_t>(offset));
      all.push_back(x);
      all.push_back(-x);
    }
  // Where the functions are not flat: evenly between -130 and 130.
  for (int i = 0; i < 50000; ++i) all.push_back(-130.0f + static_cast<float>(i) * 0.0052f);
  for (int i = 0; i < 50000; ++i) all.push_back(-2.0f + static_cast<float>(i) * 0.00008f);
  return all;
}

struct Worst {
  double error = 0;
  float x = 0, got = 0;
};
void check(const Case& c, const std::vector<float>& x, const std::vector<float>& y, Worst& worst) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], c.exact(x[i]));
    if (error > worst.error) worst = {error, x[i], y[i]};
  }
}

class Unary : public testing::TestWithParam<Case> {};

TEST_P(Unary, IsAccurate) {
  const auto& c = GetParam();
  const Kernel kernel(find_unary(c.name), 16);
  Worst worst;
  if (std::getenv("GRAFT_EXHAUSTIVE")) {
    std::vector<float> x(1 << 20), y;
    for (uint64_t start = 0; start < (uint64_t{1} << 32); start += x.size()) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::bit_cast<float>(static_cast<uint32_t>(start + i));
      kernel(x, y);
      check(c, x, y, worst);
    }
  } else {
    auto x = samples(c);
    std::vector<float> y;
    kernel(x, y);
    check(c, x, y, worst);
  }
  if (std::getenv("GRAFT_ULP")) std::printf("%-8s %.3f ulp at %a\n", c.name, worst.error, worst.x);
  EXPECT_LE(worst.error, c.bound) << c.name << "(" << worst.x << ") = " << worst.got << ", not " << c.exact(worst.x);
}

INSTANTIATE_TEST_SUITE_P(VectorMath, Unary, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace graft::cpu
