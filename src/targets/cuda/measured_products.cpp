#include "targets/cuda/measured_products.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "capture/ivalue.h"
#include "graft/error.h"
#include "targets/cuda/matrices.h"
#include "targets/cuda/module.h"

namespace graft::cuda {
namespace {

// cuBLASLt's matrices lie along columns. Of matrices that lie along rows these are the transposes: what is
// computed is the transpose of the result, b^T a^T.

constexpr uint32_t alignment = 16;  // of all matrices, in bytes
constexpr size_t most_workspace = size_t{32} << 20;
constexpr int most_algorithms = 16;
constexpr int64_t aten = -1;  // the answer where no algorithm is better than what ATen takes

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(std::string("[cuda] a matrix product by cuBLASLt failed: ") +
                cublasLtGetStatusString(status));
}

/// Something of cuBLASLt's that is made by one function and destroyed by another.
template <class T, cublasStatus_t (*destroy)(T)>
struct Owned {
  T it = nullptr;
  Owned() = default;
  ~Owned() {
    if (it) destroy(it);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(ir::DType dtype) { return dtype == ir::DType::f16 ? CUDA_R_16F : CUDA_R_16BF; }

/// How a matrix lies: along its rows or along its columns, with `step` elements from one to the next.
struct Lying {
  bool along_rows;
  int64_t step;
};

std::optional<Lying> lying(const ir::TensorType& matrix) {
  if (matrix.sizes.size() != 2) return std::nullopt;
  const int64_t rows = matrix.sizes[0], columns = matrix.sizes[1];
  if (matrix.strides[1] == 1 && matrix.strides[0] >= columns) return Lying{true, matrix.strides[0]};
  if (matrix.strides[0] == 1 && matrix.strides[1] >= rows) return Lying{false, matrix.strides[1]};
  return std::nullopt;
}

void make_layout(MatrixLayout& layout, const ir::TensorType& matrix, const Lying& how) {
  const auto rows = static_cast<uint64_t>(matrix.sizes[how.along_rows ? 1 : 0]),
             columns = static_cast<uint64_t>(matrix.sizes[how.along_rows ? 0 : 1]);
  check(cublasLtMatrixLayoutCreate(&layout.it, type_of(matrix.dtype), rows, columns, how.step));
}

void multiply_by_aten(at::Tensor out, const at::Tensor& added, const at::Tensor& a, const at::Tensor& b,
                      double beta, double alpha) {
  if (added.defined())
    at::addmm_out(out, added, a, b, beta, alpha);
  else
    at::mm_out(out, a, b);
}

/// A product of matrices of certain types, by one of the algorithms that cuBLASLt has for it.
class LtProduct : public runtime::ProductWay {
 public:
  LtProduct(const ir::TensorType& out, const ir::TensorType* added, const ir::TensorType& a,
            const ir::TensorType& b) {
    check(cublasLtMatmulDescCreate(&description_.it, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto of_a = *lying(a), of_b = *lying(b);
    // Its first matrix is b.
    set(CUBLASLT_MATMUL_DESC_TRANSA, of_b.along_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of_a.along_rows ? CUBLAS_OP_N : CUBLAS_OP_T);
    make_layout(a_, a, of_a);
    make_layout(b_, b, of_b);
    make_layout(out_, out, *lying(out));
    make_layout(added_, added ? *added : out, *lying(added ? *added : out));
    find_algorithms();
  }

  size_t algorithms() const { return found_.size(); }
  void take(size_t algorithm) { taken_ = algorithm; }

  void multiply(const at::Tensor& out, const at::Tensor& added, const at::Tensor& a, const at::Tensor& b,
                double beta, double alpha) const override {
    if (!is_aligned(out) || !is_aligned(a) || !is_aligned(b) || (added.defined() && !is_aligned(added)))
      return multiply_by_aten(out, added, a, b, beta, alpha);
    at::Tensor space;
    if (workspace() > 0)
      space = at::empty({static_cast<int64_t>(workspace())}, out.options().dtype(at::kByte));
    multiply_in(space, out, added, a, b, beta, alpha);
  }

  void multiply_in(const at::Tensor& space, const at::Tensor& out, const at::Tensor& added,
                   const at::Tensor& a, const at::Tensor& b, double beta, double alpha) const {
    const auto& how = found_[taken_];
    const auto factor = static_cast<float>(alpha), other = added.defined() ? static_cast<float>(beta) : 0.0f;
    const auto* from = other == 0 ? out.const_data_ptr() : added.const_data_ptr();
    check(cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), description_.it, &factor, b.const_data_ptr(),
                         b_.it, a.const_data_ptr(), a_.it, &other, from, added_.it, out.data_ptr(), out_.it,
                         &how.algo, space.defined() ? space.data_ptr() : nullptr, how.workspaceSize,
                         at::cuda::getCurrentCUDAStream(out.device().index())));
  }

  size_t workspace() const { return found_[taken_].workspaceSize; }

 private:
  void set(cublasLtMatmulDescAttributes_t attribute, cublasOperation_t value) {
    check(cublasLtMatmulDescSetAttribute(description_.it, attribute, &value, sizeof value));
  }

  void find_algorithms() {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(&preference.it));
    check(cublasLtMatmulPreferenceSetAttribute(preference.it, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &most_workspace, sizeof most_workspace));
    // Parts of a sum are joined in floats.
    constexpr uint32_t joined = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    check(cublasLtMatmulPreferenceSetAttribute(preference.it, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &joined, sizeof joined));
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      check(cublasLtMatmulPreferenceSetAttribute(preference.it, which, &alignment, sizeof alignment));
    found_.resize(most_algorithms);
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(at::cuda::getCurrentCUDABlasLtHandle(),
                                                       description_.it, b_.it, a_.it, added_.it, out_.it,
                                                       preference.it, most_algorithms, found_.data(), &count);
    found_.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(count) : 0);
  }

  Description description_;
  MatrixLayout a_, b_, added_, out_;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
  size_t taken_ = 0;
};

// --- measuring

/// Numbers like those of a model: what is all zero takes less power, and less time. The user's generators
/// draw nothing.
at::Tensor made_up(const ir::TensorType& type) {
  static auto generator = at::cuda::detail::createCUDAGenerator();
  const auto options = at::device(to_torch(type.device)).dtype(to_torch(type.dtype));
  return at::empty_strided(type.sizes, type.strides, options).uniform_(-1, 1, generator);
}

/// So many weights that none is left in the GPU's cache when its turn comes again.
std::vector<at::Tensor> weights(const ir::TensorType& type) {
  constexpr int64_t most = 24, caches = 3;
  const int64_t cache = at::cuda::getCurrentDeviceProperties()->l2CacheSize;
  const int64_t count = std::clamp<int64_t>(caches * cache / std::max<int64_t>(type.bytes(), 1), 1, most);
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(made_up(type));
  return all;
}

/// Seconds of one of the calls that the body makes; they are recorded, so that the host takes no part.
double time_of_call(const std::function<void()>& body, int64_t calls) {
  const auto stream = at::cuda::getStreamFromPool();
  const c10::cuda::CUDAStreamGuard guard(stream);
  at::cuda::CUDAGraph graph;
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    body();
  } catch (...) {
    graph.capture_end();
    throw;
  }
  graph.capture_end();
  constexpr int rounds = 4;
  auto shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rounds; ++i) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record(stream);
    graph.replay();
    end.record(stream);
    end.synchronize();
    shortest = std::min(shortest, static_cast<double>(begin.elapsed_time(end)) * 1e-3);
  }
  return shortest / static_cast<double>(calls);
}

int64_t measure(const ir::TensorType& out, const ir::TensorType* added, const ir::TensorType& a,
                const ir::TensorType& b, LtProduct& product) {
  const at::NoGradGuard no_grad;
  at::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(out.device.index)).synchronize();
  const auto left = made_up(a);
  const auto result = made_up(out), more = added ? made_up(*added) : at::Tensor();
  const auto all = weights(b);
  const auto calls = static_cast<int64_t>(2 * all.size());
  const auto each = [&](const std::function<void(const at::Tensor&)>& call) {
    const auto body = [&] {
      for (int64_t i = 0; i < calls; ++i) call(all[static_cast<size_t>(i) % all.size()]);
    };
    body();  // what is made once is made before anything is recorded
    c10::cuda::getCurrentCUDAStream().synchronize();
    return time_of_call(body, calls);
  };
  double best = each([&](const at::Tensor& weight) { multiply_by_aten(result, more, left, weight, 1, 1); });
  // Between the kernels of a program products take other times than one after the other: less says nothing.
  constexpr double clearly = 0.96;
  best *= clearly;
  int64_t answer = aten;
  for (size_t i = 0; i < product.algorithms(); ++i) {
    product.take(i);
    const auto space =
        at::empty({static_cast<int64_t>(product.workspace())}, result.options().dtype(at::kByte));
    try {
      const auto time = each(
          [&](const at::Tensor& weight) { product.multiply_in(space, result, more, left, weight, 1, 1); });
      if (time < best) best = time, answer = static_cast<int64_t>(i);
    } catch (const std::exception&) {
      continue;  // not for this GPU
    }
  }
  return answer;
}

std::string question_of(const ir::TensorType& out, const ir::TensorType* added, const ir::TensorType& a,
                        const ir::TensorType& b) {
  return "cublaslt " + std::to_string(cublasLtGetVersion()) + " on " + code_fingerprint() + " " +
         at::cuda::getCurrentDeviceProperties()->name + ": " + ir::to_string(out) + " = " + ir::to_string(a) +
         " x " + ir::to_string(b) + (added ? " + " + ir::to_string(*added) : "");
}

bool is_matrix(const ir::TensorType& type, ir::DType dtype) {
  return type.dtype == dtype && type.numel() > 0 && lying(type);
}

}  // namespace

std::shared_ptr<const runtime::ProductWay> fastest_way(const ir::TensorType& out, const ir::TensorType* added,
                                                       const ir::TensorType& a, const ir::TensorType& b,
                                                       const cache::Measuring& how) {
  if (!how.thorough || !ir::is_half(out.dtype) || !is_matrix(a, out.dtype) || !is_matrix(b, out.dtype) ||
      !is_matrix(out, out.dtype) || !out.is_contiguous())
    return nullptr;
  // A bias is ATen's: it is part of the product there.
  if (added && (!is_matrix(*added, out.dtype) || added->sizes != out.sizes || !lying(*added)->along_rows))
    return nullptr;
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(out.device.index));
  auto product = std::make_shared<LtProduct>(out, added, a, b);
  const auto answer = cache::choose(question_of(out, added, a, b), how.use_cache,
                                    [&] { return measure(out, added, a, b, *product); });
  if (answer < 0 || static_cast<size_t>(answer) >= product->algorithms()) return nullptr;
  product->take(static_cast<size_t>(answer));
  return product;
}

}  // namespace graft::cuda
