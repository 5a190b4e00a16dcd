// Physical layouts as text. "" is row-major. Any other name is a oneDNN memory descriptor written out:
//
//   KIND:DIMS:PADDED:STRIDES:BLOCKS        e.g. oihw:64,32,3,3:64,32,3,3:4608,2304,768,256:16x1,16x0
//
// KIND says how oneDNN's dimensions follow from ours: `oihw` (weights [kh,kw,i,o]), `goihw` (grouped weights
// [kh,kw,i/g,o]), `nchw` (images [n,h,w,c]). DIMS, PADDED and STRIDES are in oneDNN's order; BLOCKS lists the inner
// blocks, outermost first, as SIZExDIMENSION, or `-` where there are none.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "device/device.h"

namespace plimsoll::engine::cpu {

enum class LayoutKind : uint8_t { kImage, kWeights, kGroupedWeights };

using Dims = dnnl::memory::dims;

// The dimensions oneDNN sees.
Dims image_dims(const Shape& nhwc);
Dims weight_dims(const Shape& hwio, int64_t groups, LayoutKind kind);

// Our row-major tensor as oneDNN sees it, and the same dimensions with the layout left open.
dnnl::memory::desc plain_desc(LayoutKind kind, const Dims& dims);
dnnl::memory::desc any_desc(const Dims& dims);

// The layout's name and bytes; row-major gives the empty name. Fails on what has no strides (Winograd's own form).
Result<Layout> layout_of(LayoutKind kind, const dnnl::memory::desc& desc);

struct NamedDesc {
  LayoutKind kind;
  dnnl::memory::desc desc;
};
Result<NamedDesc> desc_from_name(const std::string& name);

}  // namespace plimsoll::engine::cpu
