#include "backends/cuda/convolution/bind_shapes.h"

namespace plimsoll::engine::cuda {
namespace {

int i(int64_t v) {
  return static_cast<int>(v);
}

}  // namespace

DirectConvolution direct_shape(const Convolution& c, bool library_layout) {
  DirectConvolution d{i(c.n),      i(c.h),  i(c.w),  i(c.c),     i(c.oh), i(c.ow),  i(c.o),    i(c.kh), i(c.kw),
                      i(c.groups), i(c.sh), i(c.sw), i(c.dh),    i(c.dw), i(c.top), i(c.left), i(c.d),  i(c.od),
                      i(c.kd),     i(c.sd), i(c.dd), i(c.front), 0,       0,        0};
  const int64_t cg = c.group_channels();
  d.tap_stride = library_layout ? cg : cg * c.o;
  d.channel_stride = library_layout ? 1 : c.o;
  d.output_stride = library_layout ? c.taps() * cg : 1;
  return d;
}

ImplicitGemmShape implicit_gemm_shape(const Convolution& c) {
  return {i(c.n),  i(c.h),  i(c.w),  i(c.c),  i(c.oh), i(c.ow),  i(c.o),    i(c.kh),
          i(c.kw), i(c.sh), i(c.sw), i(c.dh), i(c.dw), i(c.top), i(c.left), i(c.taps() * c.c)};
}

PooledShape pooled_shape(const Convolution& c, const PooledPlan& plan) {
  return {implicit_gemm_shape(c), i(plan.oh), i(plan.ow), i(plan.lines), i(plan.pitch), i(plan.shared)};
}

Im2colShape im2col_shape(const Convolution& c, const Im2colPlan& plan, int64_t images) {
  return {i(images), i(c.h),  i(c.w),  i(c.c),   i(c.oh),   i(c.ow),         i(c.kw),       i(c.sh),
          i(c.sw),   i(c.dh), i(c.dw), i(c.top), i(c.left), i(plan.numbers), i(plan.width), plan.one};
}

SpaceToDepthShape space_to_depth_shape(const Convolution& c, const SpaceToDepthPlan& plan) {
  return {i(c.n),   i(c.h),    i(c.w), i(c.c),  i(plan.h), i(plan.w),  i(plan.channels),
          i(c.top), i(c.left), i(c.o), i(c.kh), i(c.kw),   i(plan.kh), i(plan.kw)};
}

}  // namespace plimsoll::engine::cuda
