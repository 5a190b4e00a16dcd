// Scratch memory between offer and binder: an offer asks for granted(needed) bytes, and the binder gets the aligned
// part with workspace_of(). Libraries need 256-byte alignment, so the request has spare bytes to move its start. (Since
// arenas align to kAlignment = 256, the start is in fact never moved.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernel.h"

namespace plimsoll::engine::cuda {

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
  const auto begin = static_cast<Bytes>(reinterpret_cast<std::uintptr_t>(node.workspace));
  const Bytes skipped = align_up(begin, kScratchAlignment) - begin;
  return {static_cast<std::byte*>(node.workspace) + skipped, node.workspace_bytes - skipped};
}

}  // namespace plimsoll::engine::cuda
