// cudnn-frontend, with cuDNN loaded at run time and the CUDA runtime linked into this program.
//
// With NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING cudnn-frontend would open a second copy of the CUDA runtime, libcudart.so,
// which may not exist. Its two calls to the loader are redirected to frontend_open() and frontend_symbol(), which
// return the functions of the linked copy for that library. Include cudnn-frontend through this header only.
#pragma once

#include <dlfcn.h>

#include "backends/cuda/driver/frontend_loader.h"

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define dlopen(file, flags) ::plimsoll::engine::cuda::frontend_open(file, flags)
#define dlsym(library, name) ::plimsoll::engine::cuda::frontend_symbol(library, name)
#include <cudnn_frontend.h>
#undef dlopen
#undef dlsym
