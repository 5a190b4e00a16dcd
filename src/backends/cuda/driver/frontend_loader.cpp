#include "backends/cuda/driver/frontend_loader.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <string_view>

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace plimsoll::engine::cuda {
namespace {

static_assert(CUDART_VERSION >= 13000, "below CUDA 13 several of these functions have other names");

struct Entry {
  std::string_view name;
  void* function;
};

#define PLIMSOLL_ENTRY(function)                                                          \
  Entry {                                                                                 \
#function, reinterpret_cast < void*>(static_cast <decltype(&::function)>(::function)) \
  }

// The functions of libcudart that cudnn-frontend 1.32 looks up.
const Entry kRuntime[] = {
    PLIMSOLL_ENTRY(cudaRuntimeGetVersion),
    PLIMSOLL_ENTRY(cudaGraphCreate),
    PLIMSOLL_ENTRY(cudaGraphGetNodes),
    PLIMSOLL_ENTRY(cudaGraphAddChildGraphNode),
    PLIMSOLL_ENTRY(cudaGraphAddMemcpyNode1D),
    PLIMSOLL_ENTRY(cudaGraphAddMemsetNode),
    PLIMSOLL_ENTRY(cudaGraphGetRootNodes),
    PLIMSOLL_ENTRY(cudaGraphChildGraphNodeGetGraph),
    PLIMSOLL_ENTRY(cudaGraphNodeGetDependentNodes),
    PLIMSOLL_ENTRY(cudaGraphNodeGetDependencies),
    PLIMSOLL_ENTRY(cudaGraphMemcpyNodeSetParams1D),
    PLIMSOLL_ENTRY(cudaGraphMemsetNodeSetParams),
    PLIMSOLL_ENTRY(cudaStreamBeginCapture),
    PLIMSOLL_ENTRY(cudaStreamIsCapturing),
    PLIMSOLL_ENTRY(cudaThreadExchangeStreamCaptureMode),
    PLIMSOLL_ENTRY(cudaStreamGetCaptureInfo),
    PLIMSOLL_ENTRY(cudaUserObjectCreate),
    PLIMSOLL_ENTRY(cudaUserObjectRelease),
    PLIMSOLL_ENTRY(cudaGraphRetainUserObject),
    PLIMSOLL_ENTRY(cudaGetLastError),
    PLIMSOLL_ENTRY(cudaStreamCreate),
    PLIMSOLL_ENTRY(cudaStreamDestroy),
    PLIMSOLL_ENTRY(cudaStreamEndCapture),
    PLIMSOLL_ENTRY(cudaStreamSynchronize),
    PLIMSOLL_ENTRY(cudaGraphDestroy),
    Entry{"cudaEventCreate", reinterpret_cast<void*>(static_cast<cudaError_t (*)(cudaEvent_t*)>(cudaEventCreate))},
    PLIMSOLL_ENTRY(cudaEventDestroy),
    PLIMSOLL_ENTRY(cudaEventRecord),
    PLIMSOLL_ENTRY(cudaEventSynchronize),
    PLIMSOLL_ENTRY(cudaEventElapsedTime),
    PLIMSOLL_ENTRY(cudaMemcpyAsync),
    PLIMSOLL_ENTRY(cudaMemsetAsync),
    PLIMSOLL_ENTRY(cudaGetDeviceProperties),
    PLIMSOLL_ENTRY(cudaDeviceGetAttribute),
    PLIMSOLL_ENTRY(cudaGetDevice),
    PLIMSOLL_ENTRY(cudaGetDriverEntryPointByVersion),
    PLIMSOLL_ENTRY(cudaPointerGetAttributes),
    PLIMSOLL_ENTRY(cudaGetErrorString),
    PLIMSOLL_ENTRY(cudaDeviceSynchronize),
    Entry{"cudaMalloc", reinterpret_cast<void*>(static_cast<cudaError_t (*)(void**, size_t)>(cudaMalloc))},
    PLIMSOLL_ENTRY(cudaFree),
};

#undef PLIMSOLL_ENTRY

char runtime_tag;  // its address is the handle of the linked runtime

}  // namespace

void* frontend_open(const char* file, int flags) {
  // cudnn-frontend tries one major version after the other and complains if it finds two, so only the linked runtime's
  // own version is answered.
  if (std::strncmp(file, "libcudart.so", 12) == 0)
    return file == "libcudart.so." + std::to_string(CUDART_VERSION / 1000) ? &runtime_tag : nullptr;
  return dlopen(file, flags);
}

void* frontend_symbol(void* library, const char* name) {
  if (library != &runtime_tag) return dlsym(library, name);
  for (const Entry& entry : kRuntime)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace plimsoll::engine::cuda
