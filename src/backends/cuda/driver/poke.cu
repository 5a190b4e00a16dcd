// Scalar uploads: writes a few small values into the arena. The values travel in the kernel's parameters, so no buffer
// has to stay alive until the kernel runs. One block per value, one thread per byte, at most 16 bytes per value.
#include "backends/cuda/driver/device_memory.h"

namespace plimsoll::engine::cuda {
namespace {

struct PokeList {
  Poke pokes[kMostPokes];
};

__global__ void poke_kernel(std::byte* base, PokeList list) {
  const Poke& poke = list.pokes[blockIdx.x];
  if (threadIdx.x < poke.bytes) base[poke.offset + threadIdx.x] = poke.data[threadIdx.x];
}

}  // namespace

void launch_pokes(std::byte* base, std::span<const Poke> pokes, cudaStream_t stream) {
  PokeList list;
  for (size_t i = 0; i < pokes.size(); ++i) list.pokes[i] = pokes[i];
  poke_kernel<<<static_cast<unsigned>(pokes.size()), 16, 0, stream>>>(base, list);
}

}  // namespace plimsoll::engine::cuda
