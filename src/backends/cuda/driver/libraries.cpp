#include "backends/cuda/driver/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include "backends/cuda/driver/context.h"
#include "backends/cuda/driver/frontend_loader.h"

namespace plimsoll::engine::cuda {
namespace {

struct Library {
  const char* name;                // name used in messages
  std::vector<const char*> files;  // newest first
  const char* folder;              // folder inside site-packages/nvidia for CUDA 12 wheels; CUDA 13 wheels share "cu13"
  std::vector<std::string> remedies;
};

const Library kCudnn = {"cuDNN 9",
                        {"libcudnn.so.9"},
                        "cudnn",
                        {"pip install nvidia-cudnn-cu13 (-cu12 for CUDA 12), then add its folder to LD_LIBRARY_PATH",
                         "apt-get install libcudnn9-cuda-13 (from NVIDIA's repository)"}};
const Library kCublasLt = {"cuBLASLt",
                           {"libcublasLt.so.13", "libcublasLt.so.12"},
                           "cublas",
                           {"pip install nvidia-cublas (nvidia-cublas-cu12), then add its folder to LD_LIBRARY_PATH",
                            "apt-get install libcublas-13-0 (from NVIDIA's repository)"}};
const Library kNvrtc = {"NVRTC",
                        {"libnvrtc.so.13", "libnvrtc.so.12"},
                        "cuda_nvrtc",
                        {"pip install nvidia-cuda-nvrtc (-cu12), then add its folder to LD_LIBRARY_PATH",
                         "apt-get install cuda-nvrtc-13-0 (from NVIDIA's repository)"}};
const Library kNvml = {"NVML",
                       {"libnvidia-ml.so.1"},
                       "",
                       {"install NVIDIA's driver, which includes this library",
                        "in a container, start it with --gpus all and the utility capability"}};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Folders where installers put these libraries without registering them with the loader: next to the program, in the
// toolkit, in the wheels of an active Python environment.
std::vector<std::string> other_folders(const Library& library) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> folders;
  if (const auto program = fs::read_symlink("/proc/self/exe", error).parent_path(); !program.empty()) {
    folders.push_back(program.string());
    folders.push_back((program / "../lib").string());
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const auto root = environment(variable); !root.empty()) folders.push_back(root + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto root = environment(variable);
    if (root.empty()) continue;
    folders.push_back(root + "/lib");
    for (const auto& entry : fs::directory_iterator(root + "/lib", error)) {
      if (!entry.path().filename().string().starts_with("python")) continue;
      const auto packages = entry.path().string() + "/site-packages/nvidia/";
      folders.push_back(packages + "cu13/lib");
      folders.push_back(packages + library.folder + "/lib");
    }
  }
  return folders;
}

// Opens the first file that exists. Libraries are never unloaded, because captured graphs may contain their kernels.
Result<void*> open_library(const Library& library) {
  Error missing{ErrorCode::kLibraryMissing, fmt::format("{} cannot be loaded", library.name), {}, library.remedies};
  for (const char* file : library.files) {
    if (void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
    missing.fact(dlerror());
  }
  for (const char* file : library.files)
    for (const auto& folder : other_folders(library)) {
      const auto path = folder + "/" + file;
      if (access(path.c_str(), R_OK) != 0) continue;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) return handle;
      missing.fact(dlerror());
    }
  return fail(std::move(missing));
}

// Fills the slots of a function table and remembers the first missing name.
class Symbols {
 public:
  Symbols(const Library& library, void* handle) : library_(library), handle_(handle) {}

  template <typename F>
  void take(F& slot, const char* name) {
    slot = optional<F>(name);
    if (slot == nullptr && missing_.empty()) missing_ = name;
  }
  template <typename F>
  F optional(const char* name) const {
    return reinterpret_cast<F>(dlsym(handle_, name));
  }
  Status status() const {
    if (missing_.empty()) return {};
    return fail(Error{ErrorCode::kLibraryMissing,
                      fmt::format("the {} found is too old: it has no {}", library_.name, missing_),
                      {},
                      library_.remedies});
  }

 private:
  const Library& library_;
  void* handle_;
  std::string missing_;
};

Result<Cudnn> open_cudnn() {
  // cuDNN opens these two libraries by their plain names when an engine needs them, and finds them if they are loaded
  // already.
  (void)load_cublas_lt();
  (void)load_nvrtc();
  PLIMSOLL_ASSIGN(void* const handle, open_library(kCudnn));
  Cudnn t{};
  Symbols symbols(kCudnn, handle);
  symbols.take(t.create, "cudnnCreate");
  symbols.take(t.destroy, "cudnnDestroy");
  symbols.take(t.set_stream, "cudnnSetStream");
  symbols.take(t.get_version, "cudnnGetVersion");
  symbols.take(t.get_error_string, "cudnnGetErrorString");
  PLIMSOLL_TRY(symbols.status());
  cudnn_frontend::cudnn_dlhandle = handle;
  return t;
}

Result<CublasLt> open_cublas_lt() {
  PLIMSOLL_ASSIGN(void* const handle, open_library(kCublasLt));
  CublasLt t{};
  Symbols symbols(kCublasLt, handle);
  symbols.take(t.create, "cublasLtCreate");
  symbols.take(t.destroy, "cublasLtDestroy");
  symbols.take(t.get_version, "cublasLtGetVersion");
  symbols.take(t.get_status_string, "cublasLtGetStatusString");
  symbols.take(t.matmul, "cublasLtMatmul");
  symbols.take(t.algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  symbols.take(t.algo_check, "cublasLtMatmulAlgoCheck");
  symbols.take(t.desc_create, "cublasLtMatmulDescCreate");
  symbols.take(t.desc_destroy, "cublasLtMatmulDescDestroy");
  symbols.take(t.desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  symbols.take(t.layout_create, "cublasLtMatrixLayoutCreate");
  symbols.take(t.layout_destroy, "cublasLtMatrixLayoutDestroy");
  symbols.take(t.layout_set_attribute, "cublasLtMatrixLayoutSetAttribute");
  symbols.take(t.preference_create, "cublasLtMatmulPreferenceCreate");
  symbols.take(t.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  symbols.take(t.preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  PLIMSOLL_TRY(symbols.status());
  return t;
}

Result<Nvrtc> open_nvrtc() {
  PLIMSOLL_ASSIGN(void* const handle, open_library(kNvrtc));
  Nvrtc t{};
  Symbols symbols(kNvrtc, handle);
  symbols.take(t.version, "nvrtcVersion");
  symbols.take(t.get_error_string, "nvrtcGetErrorString");
  symbols.take(t.create_program, "nvrtcCreateProgram");
  symbols.take(t.destroy_program, "nvrtcDestroyProgram");
  symbols.take(t.compile_program, "nvrtcCompileProgram");
  symbols.take(t.get_cubin_size, "nvrtcGetCUBINSize");
  symbols.take(t.get_cubin, "nvrtcGetCUBIN");
  symbols.take(t.get_ptx_size, "nvrtcGetPTXSize");
  symbols.take(t.get_ptx, "nvrtcGetPTX");
  symbols.take(t.get_program_log_size, "nvrtcGetProgramLogSize");
  symbols.take(t.get_program_log, "nvrtcGetProgramLog");
  symbols.take(t.add_name_expression, "nvrtcAddNameExpression");
  symbols.take(t.get_lowered_name, "nvrtcGetLoweredName");
  PLIMSOLL_TRY(symbols.status());
  return t;
}

Result<Nvml> open_nvml() {
  PLIMSOLL_ASSIGN(void* const handle, open_library(kNvml));
  Nvml t{};
  Symbols symbols(kNvml, handle);
  symbols.take(t.init, "nvmlInit_v2");
  symbols.take(t.shutdown, "nvmlShutdown");
  symbols.take(t.error_string, "nvmlErrorString");
  symbols.take(t.device_by_pci_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  symbols.take(t.memory_info, "nvmlDeviceGetMemoryInfo");
  symbols.take(t.running_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  symbols.take(t.driver_version, "nvmlSystemGetDriverVersion");
  t.process_name = symbols.optional<decltype(t.process_name)>("nvmlSystemGetProcessName");
  PLIMSOLL_TRY(symbols.status());
  if (const int code = t.init(); code != kNvmlSuccess)
    return fail(Error{ErrorCode::kLibraryMissing,
                      fmt::format("NVML could not be initialised: {}", t.error_string(code)),
                      {},
                      kNvml.remedies});
  return t;
}

// If a library ran out of memory or could not run its kernel, that is a device error and not a bug of ours.
Error library_error(std::string text, cudaError_t meaning) {
  if (meaning != cudaSuccess) return cuda_error(meaning, text);
  return {ErrorCode::kInternal, std::move(text), {}, {}};
}

template <typename T>
Result<const T*> address_of(const Result<T>& table) {
  if (!table) return tl::make_unexpected(table.error());
  return &*table;
}

}  // namespace

Result<const Cudnn*> load_cudnn() {
  static const Result<Cudnn> table = open_cudnn();
  return address_of(table);
}

Result<const CublasLt*> load_cublas_lt() {
  static const Result<CublasLt> table = open_cublas_lt();
  return address_of(table);
}

Result<const Nvrtc*> load_nvrtc() {
  static const Result<Nvrtc> table = open_nvrtc();
  return address_of(table);
}

Result<const Nvml*> load_nvml() {
  static const Result<Nvml> table = open_nvml();
  return address_of(table);
}

Error cudnn_error(cudnnStatus_t status, const std::string& what) {
  const auto table = load_cudnn();
  const std::string text = table ? (*table)->get_error_string(status) : std::to_string(static_cast<int>(status));
  return library_error(fmt::format("cuDNN: {} in {}", text, what),
                       status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ? cudaErrorMemoryAllocation
                       : status / 1000 == CUDNN_STATUS_EXECUTION_FAILED / 1000        ? cudaErrorLaunchFailure
                                                                                      : cudaSuccess);
}

Error cublas_error(cublasStatus_t status, const std::string& what) {
  const auto table = load_cublas_lt();
  const std::string text = table ? (*table)->get_status_string(status) : std::to_string(static_cast<int>(status));
  return library_error(fmt::format("cuBLASLt: {} in {}", text, what),
                       status == CUBLAS_STATUS_ALLOC_FAILED       ? cudaErrorMemoryAllocation
                       : status == CUBLAS_STATUS_EXECUTION_FAILED ? cudaErrorLaunchFailure
                                                                  : cudaSuccess);
}

}  // namespace plimsoll::engine::cuda
