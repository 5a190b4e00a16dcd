// Physical layouts as text. "" is row-major. Any other name spells out a oneDNN memory descriptor:
//
//   KIND:DIMS:PADDED:STRIDES:BLOCKS        e.g. oihw:64,32,3,3:64,32,3,3:4608,2304,768,256:16x1,16x0
//
// KIND tells how oneDNN's dimensions map to ours: `oihw` (weights [kh,kw,i,o]), `goihw` (grouped weights
// [kh,kw,i/g,o]), `nchw` (images [n,h,w,c]); `oidhw`, `goidhw`, `ncdhw` are the same with depth. DIMS, PADDED and
// STRIDES are in oneDNN's order. BLOCKS lists the inner blocks, outermost first, as SIZExDIMENSION, or is `-` if there
// are none.
#pragma once

#include <dnnl.hpp>
#include <string>

#include "device/device.h"

namespace plimsoll::engine::cpu {

enum class LayoutKind : uint8_t { kImage, kWeights, kGroupedWeights };

using Dims = dnnl::memory::dims;

// `dims` are in oneDNN's order. The descriptor of our row-major tensor, and one with the same dimensions that lets
// oneDNN choose the layout.
dnnl::memory::desc plain_desc(LayoutKind kind, const Dims& dims);
dnnl::memory::desc any_desc(const Dims& dims);

// The layout's name and bytes; a row-major layout has the empty name. Fails for descriptors without strides (oneDNN's
// Winograd weight formats).
Result<Layout> layout_of(LayoutKind kind, const dnnl::memory::desc& desc);

struct NamedDesc {
  LayoutKind kind;
  dnnl::memory::desc desc;
};
Result<NamedDesc> desc_from_name(const std::string& name);

}  // namespace plimsoll::engine::cpu
