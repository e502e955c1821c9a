#include "targets/cpu/packed_products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "support/host.h"
#include "targets/cpu/device.h"
#include "targets/cpu/products.h"

namespace graft::cpu {
namespace {

using runtime::Epilogue;
using Stack = torch::jit::Stack;

/// An operator that this build of torch may not have.
class Operator {
 public:
  explicit Operator(const char* name) : handle_(c10::Dispatcher::singleton().findSchema({name, ""})) {}
  bool there() const { return handle_ && handle_->hasKernelForDispatchKey(c10::DispatchKey::CPU); }
  at::Tensor operator()(Stack stack) const {
    handle_->callBoxed(&stack);
    return stack[0].toTensor();
  }

 private:
  std::optional<c10::OperatorHandle> handle_;
};

c10::IValue optional_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
}

struct OneDnnName {
  const char* function;
  const char* form;  ///< gelu's; oneDNN looks at it for no other
};
OneDnnName name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      return {"none", ""};
    case Epilogue::relu:
      return {"relu", "none"};
    case Epilogue::gelu:
      return {"gelu", "none"};
    case Epilogue::gelu_tanh:
      return {"gelu", "tanh"};
    case Epilogue::silu:
      return {"swish", "none"};
    case Epilogue::sigmoid:
      return {"sigmoid", "none"};
    case Epilogue::tanh:
      return {"tanh", "none"};
  }
  throw std::logic_error("an epilogue without a name");
}

class OneDnn : public PackedProduct {
 public:
  OneDnn(int64_t rows, int64_t in, int64_t out, Epilogue epilogue = Epilogue::none)
      : PackedProduct(rows, in, out, epilogue) {}
  static bool there() { return reorder().there() && linear().there(); }

 protected:
  bool joins(Epilogue epilogue, const cache::Measuring& how) const override;
  at::Tensor pack(const at::Tensor& weight) const override { return reorder()({weight, rows()}); }
  at::Tensor multiply(const at::Tensor& x, const at::Tensor& packed, const at::Tensor&,
                      const at::Tensor& bias, Epilogue epilogue) const override {
    const auto [function, form] = name_of(epilogue);
    return linear()(
        {x, packed, optional_tensor(bias), function, c10::List<std::optional<at::Scalar>>(), form});
  }

 private:
  static const Operator& reorder() {
    static const Operator op("mkldnn::_reorder_linear_weight");
    return op;
  }
  static const Operator& linear() {
    static const Operator op("mkldnn::_linear_pointwise");
    return op;
  }
};

class Mkl : public PackedProduct {
 public:
  Mkl(int64_t rows, int64_t in, int64_t out) : PackedProduct(rows, in, out, Epilogue::none) {}
  static bool there() { return reorder().there() && linear().there(); }

 protected:
  at::Tensor pack(const at::Tensor& weight) const override { return reorder()({weight, rows()}); }
  at::Tensor multiply(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& weight,
                      const at::Tensor& bias, Epilogue) const override {
    return linear()({x, packed, weight, optional_tensor(bias), rows()});
  }

 private:
  static const Operator& reorder() {
    static const Operator op("mkl::_mkl_reorder_linear_weight");
    return op;
  }
  static const Operator& linear() {
    static const Operator op("mkl::_mkl_linear");
    return op;
  }
};

enum class Form : uint8_t { plain, one_dnn, mkl };

/// Null for the plain form, and for one that is not there (the choice may be another build's).
std::unique_ptr<PackedProduct> make_form(Form form, int64_t rows, int64_t in, int64_t out) {
  if (form == Form::one_dnn && OneDnn::there()) return std::make_unique<OneDnn>(rows, in, out);
  if (form == Form::mkl && Mkl::there()) return std::make_unique<Mkl>(rows, in, out);
  return nullptr;
}

/// On Arm without SVE BLAS takes many rows as fast from a weight as it lies (product.h): nothing to measure,
/// and no copy of the weights.
bool never_pays(int64_t rows) {
  constexpr int64_t kManyRows = 64;
  return is_arm_without_sve() && rows >= kManyRows;
}

Form measure(int64_t rows, int64_t in, int64_t out, bool thorough) {
  const at::NoGradGuard no_grad;
  const auto x = at::full({rows, in}, 0.5), weight = at::full({out, in}, 0.25);
  const auto y = at::empty({rows, out});
  std::vector<Form> forms = {Form::plain};
  std::vector<std::function<void()>> runs = {[&] { multiply_into(y, x, weight.t()); }};
  for (const auto form : {Form::one_dnn, Form::mkl}) {
    try {
      const std::shared_ptr<PackedProduct> product = make_form(form, rows, in, out);
      if (!product) continue;
      product->run(x, weight, {});
      forms.push_back(form);
      runs.emplace_back([&, product] { product->run(x, weight, {}); });
    } catch (const std::exception&) {
      continue;  // not for this machine
    }
  }
  auto times = cache::shortest_times(time_of, runs, thorough ? 16 : 4);
  constexpr double worth_its_memory = 0.95;
  times[0] *= worth_its_memory;
  return forms[static_cast<size_t>(std::min_element(times.begin(), times.end()) - times.begin())];
}

/// Whether the product with the function in it takes less time than the product and a pass over its results.
bool joining_is_faster(int64_t rows, int64_t in, int64_t out, Epilogue epilogue, bool thorough) {
  const at::NoGradGuard no_grad;
  struct Times {
    double joined, product, function;
  };
  const auto measure = [&](int64_t count, int rounds) {
    OneDnn joined(count, in, out, epilogue), product(count, in, out);
    const auto x = at::full({count, in}, 0.5), weight = at::full({out, in}, 0.25);
    const auto y = at::full({count, out}, 0.5);
    const auto times =
        cache::shortest_times(time_of,
                              {[&] { joined.run(x, weight, {}); }, [&] { product.run(x, weight, {}); },
                               [&] { apply(epilogue, y); }},
                              rounds);
    return Times{times[0], times[1], times[2]};
  };
  try {
    // Where oneDNN has no code for a function, its reference takes seconds: one row tells.
    if (const auto row = measure(1, 3); row.joined > 10 * row.product) return false;
    const auto all = measure(rows, thorough ? 16 : 8);
    // A kernel of graft's takes somewhat less than ATen's operator.
    return all.joined < all.product + 0.8 * all.function;
  } catch (const std::exception&) {
    return false;  // not for this machine
  }
}

/// What the answer to a question about a product depends on.
std::string question_of(const std::string& what, int64_t rows, int64_t in, int64_t out,
                        const cache::Measuring& how) {
  return what + " " + std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out) + ", " +
         std::to_string(at::get_num_threads()) + " threads, torch " TORCH_VERSION ", " + cpu_name() +
         (how.thorough ? ", thorough" : "");
}

bool OneDnn::joins(Epilogue epilogue, const cache::Measuring& how) const {
  if (join_always) return true;
  const auto what =
      std::string("whether to join ") + name_of(epilogue).function + " " + name_of(epilogue).form;
  return cache::choose(question_of(what, rows(), in(), out(), how), how.use_cache, [&] {
           return static_cast<int64_t>(joining_is_faster(rows(), in(), out(), epilogue, how.thorough));
         }) == 1;
}

}  // namespace

std::atomic<bool> join_always{false};

std::unique_ptr<PackedProduct> pack_product(int64_t rows, int64_t in, int64_t out,
                                            const cache::Measuring& how) {
  if (never_pays(rows) && !how.thorough) return nullptr;
  const auto form = cache::choose(question_of("which product", rows, in, out, how), how.use_cache,
                                  [&] { return static_cast<int64_t>(measure(rows, in, out, how.thorough)); });
  return make_form(static_cast<Form>(form), rows, in, out);
}

}  // namespace graft::cpu
