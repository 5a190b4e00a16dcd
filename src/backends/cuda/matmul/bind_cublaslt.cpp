// cuBLASLt is column-major: the row-major y = a b is the column-major y' = b' a', and a row-major matrix read as
// column-major is already its transpose. The bias has one value per column of y, i.e. per row of y', which is the form
// that cuBLASLt's epilogue expects.
#include "backends/cuda/matmul/bind_cublaslt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "backends/cuda/driver/engine_choices.h"
#include "backends/cuda/driver/libraries.h"
#include "backends/cuda/driver/stopwatch.h"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kMostTimed = 32;

std::string text_of(const Product& p) {
  const std::string rows =
      p.a_row + p.b_row + p.y_row == 0 ? "" : fmt::format(" rows{},{},{}", p.a_row, p.b_row, p.y_row);
  return fmt::format("matmul {} m{} n{} k{}{}{}{}{}{}{}{}{}", name_of(p.dtype), p.m, p.n, p.k, p.ta ? " ta" : "",
                     p.tb ? " tb" : "", p.bias ? " bias" : "", p.relu ? " relu" : "",
                     p.count > 1 ? fmt::format(" x{}", p.count) : "",
                     p.result != p.dtype ? fmt::format(" to {}", name_of(p.result)) : "", p.adds ? " adds" : "", rows);
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::kFloat16 ? CUDA_R_16F : dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The largest power of two up to 256 that divides an address; engines with wide loads need to know it.
uint32_t alignment_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  uint32_t alignment = 256;
  while (at % alignment != 0) alignment /= 2;
  return alignment;
}

// The cuBLASLt objects of one product at fixed addresses.
class ProductKernel final : public Kernel {
 public:
  ProductKernel(Context& context, const CublasLt& lt, const Product& product, const ProductAddresses& at,
                const Workspace& workspace)
      : lt_(lt), context_(context), product_(product), at_(at), workspace_(workspace) {}
  ~ProductKernel() override {
    for (cublasLtMatrixLayout_t layout : {left_, right_, result_})
      if (layout != nullptr) lt_.layout_destroy(layout);
    if (desc_ != nullptr) lt_.desc_destroy(desc_);
  }
  ProductKernel(const ProductKernel&) = delete;
  ProductKernel& operator=(const ProductKernel&) = delete;

  cublasStatus_t describe(bool tf32) {
    const bool f32 = product_.dtype == DType::kFloat32;
    const auto compute = f32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (const auto s = lt_.desc_create(&desc_, compute, CUDA_R_32F); s != CUBLAS_STATUS_SUCCESS) return s;
    const cublasOperation_t left = product_.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t right = product_.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (const auto s = set(CUBLASLT_MATMUL_DESC_TRANSA, left); s != CUBLAS_STATUS_SUCCESS) return s;
    if (const auto s = set(CUBLASLT_MATMUL_DESC_TRANSB, right); s != CUBLAS_STATUS_SUCCESS) return s;
    if (const auto s = set_epilogue(); s != CUBLAS_STATUS_SUCCESS) return s;
    // Rows and columns as stored in memory, before transposition.
    const auto [m, n, k, in, out] = std::tuple{product_.m, product_.n, product_.k, product_.dtype, product_.result};
    if (const auto s = make(left_, in, product_.tb ? k : n, product_.tb ? n : k, product_.b_row);
        s != CUBLAS_STATUS_SUCCESS)
      return s;
    if (const auto s = make(right_, in, product_.ta ? m : k, product_.ta ? k : m, product_.a_row);
        s != CUBLAS_STATUS_SUCCESS)
      return s;
    return make(result_, out, n, m, product_.y_row);
  }

  // Engines that fit the workspace, best guess first.
  std::vector<cublasLtMatmulAlgo_t> candidates() const {
    cublasLtMatmulPreference_t preference = nullptr;
    if (lt_.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return {};
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      (void)lt_.preference_set_attribute(preference, name, &value, sizeof(value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_.bytes));
    // With split-K, partial sums are added in float32 whatever the type of the result.
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (product_.result == DType::kFloat32) schemes |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
           alignment_of_all(at_.b, product_.k * product_.n, product_.dtype));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
           alignment_of_all(at_.a, product_.m * product_.k, product_.dtype));
    const uint32_t result = alignment_of_all(at_.y, product_.m * product_.n, product_.result);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result);
    std::array<cublasLtMatmulHeuristicResult_t, kMostTimed> results{};
    int count = 0;
    const auto status = lt_.algo_get_heuristic(context_.blas, desc_, left_, right_, result_, result_, preference,
                                               std::min(product_.most_timed, kMostTimed), results.data(), &count);
    (void)lt_.preference_destroy(preference);
    std::vector<cublasLtMatmulAlgo_t> found;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i)
      if (const auto& one = results[static_cast<size_t>(i)]; one.state == CUBLAS_STATUS_SUCCESS)
        found.push_back(one.algo);
    return found;
  }

  bool accepts(const cublasLtMatmulAlgo_t& algo) const {
    cublasLtMatmulHeuristicResult_t result{};
    return lt_.algo_check(context_.blas, desc_, left_, right_, result_, result_, &algo, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= static_cast<size_t>(workspace_.bytes);
  }
  void use(const cublasLtMatmulAlgo_t& algo) { algo_ = algo; }

  cublasStatus_t enqueue() const {
    const float one = 1, kept = product_.adds ? 1.0F : 0.0F;
    return lt_.matmul(context_.blas, desc_, &one, at_.b, left_, at_.a, right_, &kept, at_.y, result_, at_.y, result_,
                      &algo_, workspace_.data, static_cast<size_t>(workspace_.bytes), context_.stream);
  }
  void run() override {
    if (const auto s = enqueue(); s != CUBLAS_STATUS_SUCCESS)
      note_library_failure(context_, cublas_error(s, text_of(product_)));
  }

 private:
  // The alignment of every matrix of a batch.
  uint32_t alignment_of_all(const void* first, int64_t elements, DType dtype) const {
    const auto bytes = static_cast<std::uintptr_t>(elements * size_of(dtype));
    const std::uintptr_t all = reinterpret_cast<std::uintptr_t>(first) | (product_.count > 1 ? bytes : 0);
    return alignment_of(reinterpret_cast<const void*>(all));
  }
  template <typename T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t name, const T& value) {
    return lt_.desc_set_attribute(desc_, name, &value, sizeof(value));
  }
  cublasStatus_t set_epilogue() {
    if (!product_.bias && !product_.relu) return CUBLAS_STATUS_SUCCESS;
    const cublasLtEpilogue_t epilogue = !product_.bias  ? CUBLASLT_EPILOGUE_RELU
                                        : product_.relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                        : CUBLASLT_EPILOGUE_BIAS;
    if (const auto s = set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue); s != CUBLAS_STATUS_SUCCESS) return s;
    return product_.bias ? set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at_.bias) : CUBLAS_STATUS_SUCCESS;
  }
  // `row`: elements from one stored row to the next, which is a column here; 0: `rows`.
  cublasStatus_t make(cublasLtMatrixLayout_t& layout, DType dtype, int64_t rows, int64_t columns, int64_t row) {
    const auto created = lt_.layout_create(&layout, data_type(dtype), static_cast<uint64_t>(rows),
                                           static_cast<uint64_t>(columns), row == 0 ? rows : row);
    if (created != CUBLAS_STATUS_SUCCESS || product_.count == 1) return created;
    const auto count = static_cast<int32_t>(product_.count);
    const int64_t stride = rows * columns;
    const auto s = lt_.layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    return lt_.layout_set_attribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
  }

  const CublasLt& lt_;
  Context& context_;
  Product product_;
  ProductAddresses at_;
  Workspace workspace_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algo_{};
};

// An algorithm is eight opaque 64-bit words, which are valid for one version of cuBLASLt.
std::string words_of(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  for (const uint64_t word : algo.data) text += fmt::format("{}{:x}", text.empty() ? "" : ",", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> algo_from_words(const std::string& text) {
  cublasLtMatmulAlgo_t algo{};
  const char* at = text.c_str();
  for (uint64_t& word : algo.data) {
    char* end = nullptr;
    word = std::strtoull(at, &end, 16);
    if (end == at) return std::nullopt;
    at = *end == ',' ? end + 1 : end;
  }
  return *at == '\0' ? std::optional(algo) : std::nullopt;
}

// Sets `kernel` to the fastest of its candidates. Returns false if none runs.
bool choose_algo(Context& context, ProductKernel& kernel, const std::string& key) {
  if (const auto words = remembered_choice(key))
    if (const auto algo = algo_from_words(*words); algo && kernel.accepts(*algo)) {
      kernel.use(*algo);
      return true;
    }
  Stopwatch stopwatch(context.stream);
  std::optional<cublasLtMatmulAlgo_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (const cublasLtMatmulAlgo_t& algo : kernel.candidates()) {
    kernel.use(algo);
    const double seconds = stopwatch.seconds([&] { return kernel.enqueue() == CUBLAS_STATUS_SUCCESS; }, least);
    if (seconds >= least) continue;
    least = seconds;
    best = algo;
  }
  if (!best) return false;
  kernel.use(*best);
  remember_choice(key, words_of(*best));
  return true;
}

}  // namespace

BoundKernel bind_product(Context& context, const Product& product, const ProductAddresses& at,
                         const Workspace& workspace) {
  PLIMSOLL_ASSIGN(const CublasLt* const lt, load_cublas_lt());
  const bool tf32 = product.dtype == DType::kFloat32 && context.card.has_tf32();
  auto kernel = std::make_unique<ProductKernel>(context, *lt, product, at, workspace);
  if (const auto status = kernel->describe(tf32); status != CUBLAS_STATUS_SUCCESS)
    return fail(cublas_error(status, text_of(product)));
  const std::string key =
      fmt::format("cublaslt {}|{}|{}{} ws{} at{},{},{}", lt->get_version(), context.card.name, text_of(product),
                  tf32 ? " tf32" : "", workspace.bytes, alignment_of(at.a), alignment_of(at.b), alignment_of(at.y));
  if (!choose_algo(context, *kernel, key))
    return fail(Error{ErrorCode::kUnsupported,
                      fmt::format("cuBLASLt has no engine for {} within {} of workspace", text_of(product),
                                  format_bytes(workspace.bytes)),
                      {},
                      {}});
  return kernel;
}

}  // namespace plimsoll::engine::cuda
