// Converts the geometry of a convolution to the size structs that the kernels take as parameters.
#pragma once

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/convolution/im2col.h"
#include "backends/cuda/convolution/im2col_launch.h"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/convolution/launch.h"
#include "backends/cuda/convolution/pooled.h"
#include "backends/cuda/convolution/pooled_launch.h"
#include "backends/cuda/convolution/space_to_depth.h"
#include "backends/cuda/convolution/space_to_depth_launch.h"

namespace plimsoll::engine::cuda {

// The weights are in kWeightLayout if `library_layout`, else row-major.
DirectConvolution direct_shape(const Convolution& c, bool library_layout);
ImplicitGemmShape implicit_gemm_shape(const Convolution& c);
PooledShape pooled_shape(const Convolution& c, const PooledPlan& plan);
Im2colShape im2col_shape(const Convolution& c, const Im2colPlan& plan, int64_t images);
SpaceToDepthShape space_to_depth_shape(const Convolution& c, const SpaceToDepthPlan& plan);

}  // namespace plimsoll::engine::cuda
