// Scratch memory between rule and binder. Arenas align to a cache line of the CPU; libraries want more, so a grant has
// room for moving its start.
#pragma once

#include <cstdint>

#include "device/kernel.h"

namespace plimsoll::cuda {

inline constexpr Bytes kScratchAlignment = 256;

struct Workspace {
  void* data = nullptr;
  Bytes bytes = 0;
};

inline Bytes granted(Bytes needed) {
  return needed == 0 ? 0 : align_up(needed, kScratchAlignment) + kScratchAlignment;
}

inline Workspace workspace_of(const BoundNode& node) {
  if (node.workspace == nullptr || node.workspace_bytes <= kScratchAlignment) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(node.workspace);
  const auto aligned = (begin + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return {reinterpret_cast<void*>(aligned), node.workspace_bytes - static_cast<Bytes>(aligned - begin)};
}

}  // namespace plimsoll::cuda
