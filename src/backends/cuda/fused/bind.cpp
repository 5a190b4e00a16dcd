#include "backends/cuda/fused/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/cuda/driver/check.h"
#include "backends/cuda/driver/libraries.h"
#include "backends/cuda/fused/kernel.h"
#include "formats/file/cache.h"

namespace plimsoll::engine::cuda {
namespace {

// FNV-1a, twice with different start values. The digest names a cache file; nothing depends on it being unforgeable.
std::string digest(const std::string& text) {
  const auto hash = [&](uint64_t h) {
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return h;
  };
  return fmt::format("{:016x}{:016x}", hash(0xcbf29ce484222325ULL), hash(0x9e3779b97f4a7c15ULL));
}

// The table of a group in the layout its kernel reads: int first[n + 1], long long elements[n], void*
// data[n][pointers].
std::vector<std::byte> table_of(const FusedKernel& pass, const BoundNode& node) {
  const size_t n = pass.parts.size(), pointers = pass.parts[0].inputs.size() + pass.parts[0].outputs.size();
  const size_t elements_at = align_up(static_cast<Bytes>(4 * (n + 1)), 8), data_at = elements_at + 8 * n;
  std::vector<std::byte> table(data_at + 8 * n * pointers);
  int first = 0;
  for (size_t i = 0; i < n; ++i) {
    const FusedKernel::Part& part = pass.parts[i];
    std::memcpy(&table[4 * i], &first, 4);
    first += static_cast<int>(part_blocks(pass, part));
    std::memcpy(&table[elements_at + 8 * i], &part.elements, 8);
    size_t at = data_at + 8 * pointers * i;
    for (size_t input : part.inputs) std::memcpy(&table[std::exchange(at, at + 8)], &node.inputs[input], 8);
    for (size_t output : part.outputs) std::memcpy(&table[std::exchange(at, at + 8)], &node.outputs[output], 8);
  }
  std::memcpy(&table[4 * n], &first, 4);
  return table;
}

class LoadedKernel final : public Kernel {
 public:
  LoadedKernel(Context& context, cudaKernel_t kernel, const FusedKernel& pass, const BoundNode& node)
      : context_(context),
        kernel_(kernel),
        grid_(grid_of(pass, context.card)),
        rows_(pass.rows),
        channels_(static_cast<int>(pass.channels)),
        numbers_(pass.numbers) {
    if (!pass.parts.empty()) {
      table_ = table_of(pass, node);
      arguments_ = {table_.data()};
      return;
    }
    pointers_.assign(node.inputs.begin(), node.inputs.end());
    pointers_.insert(pointers_.end(), node.outputs.begin(), node.outputs.end());
    pointers_.push_back(node.workspace);
    pointers_.push_back(context.counters);
    // Without sums, the grid is limited to the blocks that are resident at once; they loop over the rows, so there is
    // no half-empty last wave. With sums the grid stays as planned, because the workspace for partial sums was sized
    // for it.
    int resident = 0;
    if (pass.sums == 0 &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, reinterpret_cast<const void*>(kernel),
                                                      static_cast<int>(grid_.block_x * grid_.block_y),
                                                      0) == cudaSuccess &&
        resident > 0)
      grid_.grid_x = std::min(
          grid_.grid_x, std::max(1U, static_cast<unsigned>(resident * context.card.multiprocessors) / grid_.grid_y));
    (void)cudaGetLastError();
    for (void*& pointer : pointers_) arguments_.push_back(&pointer);
    arguments_.push_back(&rows_);
    arguments_.push_back(&channels_);
    if (!numbers_.empty()) arguments_.push_back(numbers_.data());
  }

  void run() override {
    cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(grid_.grid_x, grid_.grid_y, grid_.grid_z),
                     dim3(grid_.block_x, grid_.block_y), arguments_.data(), 0, context_.stream);
  }

 private:
  Context& context_;
  cudaKernel_t kernel_;
  FusedGrid grid_;
  long long rows_;
  int channels_;
  std::vector<uint32_t> numbers_;
  std::vector<void*> pointers_, arguments_;
  std::vector<std::byte> table_;
};

}  // namespace

Result<std::string> compile_source(const std::string& source, int capability) {
  PLIMSOLL_ASSIGN(const Nvrtc* nvrtc, load_nvrtc());
  nvrtcProgram program = nullptr;
  if (nvrtc->create_program(&program, source.c_str(), "pass.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS)
    return fail(ErrorCode::kInternal, "NVRTC could not create a program");
  const std::string arch = fmt::format("--gpu-architecture=sm_{}", capability);
  // Contraction (FMA) is off so that a value has the same bits wherever it is computed: recomputed values must equal
  // saved ones.
  const char* options[] = {arch.c_str(), "--std=c++17", "--fmad=false"};
  const nvrtcResult result = nvrtc->compile_program(program, 3, options);
  std::string code;
  size_t size = 0;
  if (result == NVRTC_SUCCESS && nvrtc->get_cubin_size(program, &size) == NVRTC_SUCCESS) {
    code.resize(size);
    nvrtc->get_cubin(program, code.data());
  } else {
    std::string log;
    if (nvrtc->get_program_log_size(program, &size) == NVRTC_SUCCESS) {
      log.resize(size);
      nvrtc->get_program_log(program, log.data());
    }
    nvrtc->destroy_program(&program);
    return fail(Error{ErrorCode::kInternal,
                      fmt::format("a fused kernel does not compile for sm_{}", capability),
                      {log.substr(0, 800)},
                      {}});
  }
  nvrtc->destroy_program(&program);
  return code;
}

// Loads the kernel from compiled code.
Result<cudaKernel_t> load_code(const std::string& code) {
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  PLIMSOLL_CUDA(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  PLIMSOLL_CUDA(cudaLibraryGetKernel(&kernel, library, "pass"));
  return kernel;
}

namespace {

std::string cache_name(const std::string& source, int capability) {
  return fmt::format("pass-{}-sm{}.cubin", digest(source), capability);
}

// Kernels by their key, and code that threads compile ahead, by the name of its cache entry.
struct Shelf {
  std::mutex mutex;
  std::map<std::string, cudaKernel_t> kernels;
  std::map<std::string, std::shared_future<Result<std::string>>> ahead;
  std::vector<std::jthread> threads;
};
Shelf& shelf() {
  static Shelf all;
  return all;
}

std::string kernel_key(const std::string& source, int device, int capability) {
  return fmt::format("{}-{}-sm{}", digest(source), device, capability);
}

}  // namespace

void compile_fused_kernels(std::span<const UnboundNode> nodes, int capability) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return;
  std::map<std::string, std::string> wanted;  // name of the cache entry -> source
  for (const UnboundNode& node : nodes) {
    const KernelEntry* entry = kernel_of(node.node.op);
    if (entry == nullptr || entry->bind != bind_fused) continue;
    auto pass = make_fused_kernel(node.graph, node.node);
    if (pass) wanted.try_emplace(cache_name(pass->source, capability), std::move(pass->source));
  }
  struct Work {
    std::vector<std::pair<std::string, std::promise<Result<std::string>>>> kernels;  // source and result
    std::atomic<size_t> next = 0;
  };
  const auto work = std::make_shared<Work>();
  Shelf& all = shelf();
  const std::lock_guard lock(all.mutex);
  for (auto& [name, source] : wanted) {
    if (all.kernels.contains(kernel_key(source, device, capability)) || all.ahead.contains(name)) continue;
    if (read_cache_entry(name)) continue;
    auto& [text, promise] = work->kernels.emplace_back(std::move(source), std::promise<Result<std::string>>());
    all.ahead[name] = promise.get_future().share();
  }
  const auto compile = [work, capability] {
    for (size_t i = work->next++; i < work->kernels.size(); i = work->next++)
      work->kernels[i].second.set_value(compile_source(work->kernels[i].first, capability));
  };
  if (work->kernels.empty()) return;
  all.threads.clear();  // waits for the threads of an earlier plan
  const size_t most = std::min<size_t>(work->kernels.size(), std::max(1U, std::thread::hardware_concurrency()));
  size_t started = 0;
  try {
    for (; started < most; ++started) all.threads.emplace_back(compile);
  } catch (const std::system_error&) {  // no more threads: the ones there are do the work
  }
  if (started == 0) compile();
}

Result<cudaKernel_t> load_fused_kernel(const std::string& source, int capability) {
  int device = 0;
  PLIMSOLL_CUDA(cudaGetDevice(&device));
  const std::string key = kernel_key(source, device, capability), file = cache_name(source, capability);
  Shelf& all = shelf();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.kernels.find(key); found != all.kernels.end()) return found->second;
  std::string code;
  if (const auto ahead = all.ahead.extract(file)) {
    PLIMSOLL_ASSIGN(code, ahead.mapped().get());
  } else {
    if (const auto cached = read_cache_entry(file)) {
      if (const auto kernel = load_code(*cached)) return all.kernels[key] = *kernel;
      cudaGetLastError();  // the cached file is intact, but this driver rejects it: compile again
    }
    PLIMSOLL_ASSIGN(code, compile_source(source, capability));
  }
  write_cache_entry(file, code);
  PLIMSOLL_ASSIGN(const cudaKernel_t kernel, load_code(code));
  return all.kernels[key] = kernel;
}

BoundKernel bind_fused(Context& context, const BoundNode& node) {
  PLIMSOLL_ASSIGN(const FusedKernel pass, make_fused_kernel(node.graph, node.node));
  if (pass.workspace(context.card) > node.workspace_bytes)
    return fail(ErrorCode::kBadPlan,
                fmt::format("a fused kernel needs a workspace of {} bytes but the plan provides {}",
                            pass.workspace(context.card), node.workspace_bytes));
  PLIMSOLL_ASSIGN(const cudaKernel_t kernel, load_fused_kernel(pass.source, context.architecture));
  return std::unique_ptr<Kernel>(new LoadedKernel(context, kernel, pass, node));
}

}  // namespace plimsoll::engine::cuda
