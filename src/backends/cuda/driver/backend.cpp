#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backends/cuda/cuda.h"
#include "backends/cuda/device.h"
#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/device_memory.h"
#include "backends/cuda/driver/engine_choices.h"
#include "backends/cuda/driver/held.h"
#include "backends/cuda/driver/libraries.h"
#include "backends/cuda/driver/link.h"
#include "backends/cuda/driver/requirements.h"
#include "backends/cuda/driver/room.h"
#include "backends/cuda/fused/bind.h"
#include "backends/cuda/kernels.h"

namespace plimsoll::engine {
namespace cuda {
namespace {

// A phase that was captured once as a CUDA graph.
class GraphKernel final : public Kernel {
 public:
  GraphKernel(Context& context, cudaGraphExec_t graph) : context_(context), graph_(graph) {}
  ~GraphKernel() override {
    cudaStreamSynchronize(context_.stream);
    cudaGraphExecDestroy(graph_);
  }
  void run() override {
    cudaGraphLaunch(graph_, context_.stream);
    note_enqueued(context_, "the launch of a captured phase");
  }

 private:
  Context& context_;
  cudaGraphExec_t graph_;
};

// A bound kernel that checks for launch errors right after each launch. An error that the runtime reports later on this
// thread could belong to another backend.
class WatchedKernel final : public Kernel {
 public:
  WatchedKernel(Context& context, std::unique_ptr<Kernel> kernel, std::string what)
      : context_(context), kernel_(std::move(kernel)), what_(std::move(what)) {}
  void run() override {
    kernel_->run();
    note_enqueued(context_, what_);
  }

 private:
  Context& context_;
  std::unique_ptr<Kernel> kernel_;
  std::string what_;
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<Context> context) : context_(std::move(context)), device_(context_->card) {}

  ~CudaBackend() override {
    if (cudaDeviceSynchronize() != cudaSuccess) return;  // after a device failure nothing can be freed
    if (const auto dnn = load_cudnn(); dnn && context_->dnn != nullptr) (*dnn)->destroy(context_->dnn);
    if (const auto blas = load_cublas_lt(); blas && context_->blas != nullptr) (*blas)->destroy(context_->blas);
    cudaFree(context_->counters);
    cudaStreamDestroy(context_->stream);
    cudaStreamDestroy(context_->copies);
    cudaStreamDestroy(context_->outgoing);
  }

  const Device& device() const override { return device_; }
  // A failure shows itself in the call that follows.
  void enter_thread() const override { (void)cudaSetDevice(context_->card.ordinal); }
  Status check_room(Bytes bytes) const override { return cuda::check_room(*context_, bytes); }
  Result<std::unique_ptr<Memory>> reserve(Space space, Bytes bytes) const override {
    if (space == Space::kDevice) return reserve_device_memory(*context_, bytes);
    if (space == Space::kHost) return reserve_pinned_memory(*context_, bytes);
    return no_such_memory(space);
  }

  void prepare(std::span<const UnboundNode> nodes) const override {
    compile_fused_kernels(nodes, context_->architecture);
  }

  Result<std::unique_ptr<Kernel>> bind(const BoundNode& node) const override {
    const KernelEntry* kernel = kernel_of(node.node.op);
    if (kernel == nullptr)
      return fail(ErrorCode::kBadPlan,
                  fmt::format("the GPU backend has no kernel '{}' for {}", node.kernel, node.node.op));
    PLIMSOLL_ASSIGN(auto bound, kernel->bind(*context_, node));
    return std::make_unique<WatchedKernel>(*context_, std::move(bound), node.node.op);
  }

  Bytes held_before_bytes() const override { return context_->held.before(); }
  Bytes held_bytes() const override { return context_->held.now(); }
  Bytes peak_held_bytes() const override { return context_->held.peak(); }
  std::string counted_by() const override { return context_->held.counted_by(); }

  Result<std::unique_ptr<Kernel>> record(std::span<const std::unique_ptr<Kernel>> kernels) const override {
    save_choices();  // keeps the measurements so far even if the run is killed
    cudaGraph_t graph = nullptr;
    PLIMSOLL_CUDA(cudaStreamBeginCapture(context_->stream, cudaStreamCaptureModeThreadLocal));
    for (const auto& kernel : kernels) kernel->run();
    PLIMSOLL_CUDA(cudaStreamEndCapture(context_->stream, &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t code = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    PLIMSOLL_CUDA(code);
    return std::unique_ptr<Kernel>(new GraphKernel(*context_, executable));
  }

  Status finish() const override {
    for (const cudaStream_t stream : {context_->stream, context_->copies, context_->outgoing})
      PLIMSOLL_CUDA(cudaStreamSynchronize(stream));
    return context_->failures.take();
  }

  Result<std::unique_ptr<Feed>> open_feed(Bytes bytes) const override { return open_device_feed(*context_, bytes); }
  Result<std::unique_ptr<Readback>> open_readback(const Memory& memory, Bytes offset, Bytes bytes) const override {
    return open_device_readback(*context_, memory, offset, bytes);
  }

 private:
  std::unique_ptr<Context> context_;
  CudaDevice device_;
};

// Uses the profile of the same name if there is one, so that a plan made elsewhere equals the plan made here.
Result<Card> card_of(int ordinal) {
  cudaDeviceProp properties{};
  PLIMSOLL_CUDA(cudaGetDeviceProperties(&properties, ordinal));
  Card card;
  for (const Card& known : card_profiles())
    if (known.name == properties.name && known.multiprocessors == properties.multiProcessorCount) card = known;
  card.name = properties.name;
  card.capability = properties.major * 10 + properties.minor;
  card.multiprocessors = properties.multiProcessorCount;
  card.l2_bytes = properties.l2CacheSize;
  card.memory_bytes = static_cast<Bytes>(properties.totalGlobalMem);
  if (!card.profile.empty()) return card;
  // Without a profile, the rates are computed from the chip's attributes.
  int clock_khz = 0, memory_khz = 0;
  cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, ordinal);
  cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, ordinal);
  const double clock = clock_khz * 1e3 * card.multiprocessors;
  card.bytes_per_second = 0.9 * 2.0 * memory_khz * 1e3 * properties.memoryBusWidth / 8;
  card.flops_f32 = clock * 256 * 0.9;
  card.flops_half = clock * 1024 * 0.8;
  card.flops_tf32 = card.capability >= 80 ? card.flops_half / 2 : 0;
  card.host_bytes_per_second = 12e9;  // until it is measured
  card.context_bytes = 600 * kMiB;
  return card;
}

}  // namespace

void note_enqueued(Context& context, const std::string& what) noexcept {
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess) context.failures.note(cuda_error(code, what));
}

void note_library_failure(Context& context, Error error) noexcept {
  const cudaError_t code = cudaGetLastError();
  const bool says_why = code != cudaSuccess && error.code == ErrorCode::kInternal;
  context.failures.note(says_why ? cuda_error(code, error.what) : std::move(error));
}

Error cuda_error(cudaError_t code, const std::string& what) {
  const std::string text = fmt::format("{}: {}", cudaGetErrorName(code), cudaGetErrorString(code));
  switch (code) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorStubLibrary:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
      return Error{ErrorCode::kLibraryMissing,
                   "there is no GPU this program can use",
                   {text},
                   {"nvidia-smi   shows what the driver sees; CUDA_VISIBLE_DEVICES may hide a card", "--device cpu"}};
    case cudaErrorMemoryAllocation:
      return Error{ErrorCode::kOutOfMemory,
                   "the GPU is out of memory",
                   {text, "in " + what},
                   {"a smaller --budget", "plimsoll doctor   lists the processes that hold GPU memory"}};
    default:
      return Error{ErrorCode::kDeviceLost,
                   "the GPU failed",
                   {text, "in " + what, "the work since the last checkpoint is lost; the checkpoint itself is intact"},
                   {"the same command with --resume   continues from the last checkpoint",
                    "dmesg | grep -i xid   shows the errors that the driver logged"}};
  }
}

}  // namespace cuda

Result<std::vector<cuda::Card>> visible_cards() {
  PLIMSOLL_TRY(cuda::check_driver());
  int count = 0;
  PLIMSOLL_CUDA(cudaGetDeviceCount(&count));
  std::vector<cuda::Card> cards;
  for (int i = 0; i < count; ++i) {
    PLIMSOLL_ASSIGN(cuda::Card card, cuda::card_of(i));
    cards.push_back(std::move(card));
  }
  return cards;
}

Result<std::vector<GpuReport>> gpu_reports() {
  PLIMSOLL_ASSIGN(auto cards, visible_cards());
  std::vector<GpuReport> reports;
  for (size_t i = 0; i < cards.size(); ++i) {
    GpuReport report{static_cast<int>(i), std::move(cards[i]), {}};
    cuda::CardMemory memory = cuda::card_memory(report.ordinal);
    report.card.free_bytes = memory.free;
    report.holders = std::move(memory.holders);
    reports.push_back(std::move(report));
  }
  return reports;
}

std::vector<Error> missing_gpu_libraries() {
  return cuda::missing_libraries();
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const GpuOptions& options) {
  using namespace cuda;
  PLIMSOLL_TRY(check_driver());
  PLIMSOLL_TRY(check_libraries());
  int count = 0;
  PLIMSOLL_CUDA(cudaGetDeviceCount(&count));
  if (options.ordinal >= count)
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("--device gpu:{}: the driver shows {} GPU{}", options.ordinal, count, count == 1 ? "" : "s"),
              {},
              {"--device gpu:0"}});
  auto context = std::make_unique<Context>();
  context->ordinal = options.ordinal;
  PLIMSOLL_ASSIGN(context->card, card_of(options.ordinal));
  context->card.ordinal = options.ordinal;
  context->architecture = context->card.capability;
  context->way = options.way;
  if (options.as_capability > 0) context->card.capability = options.as_capability;
  context->card.tf32 = options.tf32 && context->card.capability >= 80;
  context->card.memory_growth = options.memory_growth;
  PLIMSOLL_ASSIGN(context->held, HeldMemory::open(options.ordinal));  // before the context allocates its share
  PLIMSOLL_TRY(check_room_for_context(*context));
  PLIMSOLL_CUDA(cudaSetDevice(options.ordinal));
  PLIMSOLL_CUDA(cudaStreamCreateWithFlags(&context->stream, cudaStreamNonBlocking));
  PLIMSOLL_CUDA(cudaStreamCreateWithFlags(&context->copies, cudaStreamNonBlocking));
  PLIMSOLL_CUDA(cudaStreamCreateWithFlags(&context->outgoing, cudaStreamNonBlocking));
  PLIMSOLL_CUDA(cudaMalloc(reinterpret_cast<void**>(&context->counters), Context::kCounters * sizeof(unsigned)));
  PLIMSOLL_CUDA(cudaMemset(context->counters, 0, Context::kCounters * sizeof(unsigned)));
  PLIMSOLL_ASSIGN(const Cudnn* dnn, load_cudnn());
  if (const cudnnStatus_t status = dnn->create(&context->dnn); status != CUDNN_STATUS_SUCCESS)
    return fail(cudnn_error(status, "cudnnCreate"));
  int driver = 0;
  PLIMSOLL_CUDA(cudaDriverGetVersion(&driver));
  context->card.driver = fmt::format("CUDA {}.{}, cuDNN {}", driver / 1000, driver % 1000 / 10, dnn->get_version());
  dnn->set_stream(context->dnn, context->stream);
  PLIMSOLL_ASSIGN(const CublasLt* blas, load_cublas_lt());
  if (const cublasStatus_t status = blas->create(&context->blas); status != CUBLAS_STATUS_SUCCESS)
    return fail(cublas_error(status, "cublasLtCreate"));
  if (context->card.profile.empty()) {
    PLIMSOLL_ASSIGN(context->card.host_bytes_per_second, remembered_link(context->card, options.ordinal));
  }
  size_t free = 0, total = 0;
  PLIMSOLL_CUDA(cudaMemGetInfo(&free, &total));
  context->card.memory_bytes = static_cast<Bytes>(total);
  // The largest possible budget: the memory that is free now plus the memory this process has already allocated.
  context->card.free_bytes = static_cast<Bytes>(free) + context->held.now();
  return std::unique_ptr<Backend>(new CudaBackend(std::move(context)));
}

}  // namespace plimsoll::engine
