// The loader functions that cudnn-frontend calls instead of the system's; see frontend.h. They have their own header
// because cudnn-frontend's headers take half a minute to compile.
#pragma once

namespace cudnn_frontend {
extern void*
    cudnn_dlhandle;  // the library handle from which cudnn-frontend takes cuDNN's functions; load_cudnn() sets it
}

namespace plimsoll::engine::cuda {

void* frontend_open(const char* file, int flags);
void* frontend_symbol(void* library, const char* name);

}  // namespace plimsoll::engine::cuda
