// NVIDIA's libraries, loaded at first use, so that one program runs with and without them. Each struct holds the
// functions this backend calls, under the library's names without their prefix. The tables live as long as the process.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <string>

#include "base/error.h"

namespace plimsoll::engine::cuda {

struct Cudnn {
  decltype(&cudnnCreate) create;
  decltype(&cudnnDestroy) destroy;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnGetVersion) get_version;  // 91400 for 9.14.0
  decltype(&cudnnGetErrorString) get_error_string;
};

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic;
  decltype(&cublasLtMatmulAlgoCheck) algo_check;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set_attribute;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute;
};

struct Nvrtc {
  decltype(&nvrtcVersion) version;
  decltype(&nvrtcGetErrorString) get_error_string;
  decltype(&nvrtcCreateProgram) create_program;
  decltype(&nvrtcDestroyProgram) destroy_program;
  decltype(&nvrtcCompileProgram) compile_program;
  decltype(&nvrtcGetCUBINSize) get_cubin_size;
  decltype(&nvrtcGetCUBIN) get_cubin;
  decltype(&nvrtcGetPTXSize) get_ptx_size;
  decltype(&nvrtcGetPTX) get_ptx;
  decltype(&nvrtcGetProgramLogSize) get_program_log_size;
  decltype(&nvrtcGetProgramLog) get_program_log;
  decltype(&nvrtcAddNameExpression) add_name_expression;
  decltype(&nvrtcGetLoweredName) get_lowered_name;
};

// NVML comes with the driver, but its header is in neither the driver nor every toolkit. These are the parts we use,
// declared from its documentation (docs.nvidia.com/deploy/nvml-api).
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;  // all ones if the driver does not report it
  unsigned gpu_instance, compute_instance;
};
using NvmlDevice = struct NvmlDeviceTag*;
inline constexpr int kNvmlSuccess = 0, kNvmlInsufficientSize = 7;

struct Nvml {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*device_by_pci_bus_id)(const char* bus_id, NvmlDevice*);
  int (*memory_info)(NvmlDevice, NvmlMemory*);
  int (*running_processes)(NvmlDevice, unsigned* count, NvmlProcess*);
  int (*driver_version)(char* text, unsigned length);
  int (*process_name)(unsigned pid, char* text, unsigned length);  // null if the driver does not have it
};

// Fails with P603 if the library is missing or lacks a function; the result is cached. Loading cuDNN also sets the
// handle from which cudnn-frontend takes its functions.
Result<const Cudnn*> load_cudnn();
Result<const CublasLt*> load_cublas_lt();
Result<const Nvrtc*> load_nvrtc();
Result<const Nvml*> load_nvml();

// Builds messages such as "cuDNN: CUDNN_STATUS_NOT_SUPPORTED in <what>".
Error cudnn_error(cudnnStatus_t status, const std::string& what);
Error cublas_error(cublasStatus_t status, const std::string& what);

}  // namespace plimsoll::engine::cuda
