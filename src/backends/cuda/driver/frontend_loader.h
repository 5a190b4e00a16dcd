// What cudnn-frontend gets in place of the system's loader; see frontend.h. Apart from it, because its headers take
// half a minute to compile.
#pragma once

namespace cudnn_frontend {
extern void* cudnn_dlhandle;  // where it takes cuDNN's functions from; load_cudnn() sets it
}

namespace plimsoll::engine::cuda {

void* frontend_open(const char* file, int flags);
void* frontend_symbol(void* library, const char* name);

}  // namespace plimsoll::engine::cuda
