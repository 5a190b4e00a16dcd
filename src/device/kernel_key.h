// The text that identifies a kernel and its problem in a calibration: op, kernel, workspace, shapes, dtypes, layouts,
// attributes, and for a fused node its body. It contains no names, so equal nodes of different layers have equal keys.
#pragma once

#include <string>
#include <string_view>

#include "device/device.h"

namespace plimsoll::engine {

std::string kernel_key(const Graph& graph, const Node& node, const KernelOffer& offer, bool tf32);

// The beginning of a key: op and kernel.
std::string_view family_of(std::string_view key);

}  // namespace plimsoll::engine
