// Convolutions with kernels [3,3] or [kd,3,3] and stride 1 by Winograd's minimal filtering F(2x4, 3x3), over chunks of
// tiles that stay in the L2 cache: transform the image's tiles, multiply per position of the tile, transform back. With
// depth, the sum over kd planes is part of the multiplication. The input gradient is the same
// convolution applied to dy, with the weights rotated by 180 degrees and their channels swapped. Channel counts must be
// multiples of 16. The transforms are in simd/winograd.inl.
#include <algorithm>

#include "backends/cpu/convolution/convolution.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kPositions = kWinogradPositions;
constexpr Bytes kChunkBytes = 128 * kKiB;  // transformed tiles of one chunk, so that they stay in the L2 cache
constexpr Bytes kMostPartials = 2 * kMiB;  // partial weight gradients, unless one alone is larger
constexpr int64_t kMostSlices = 16, kFewSlices = 8;
constexpr int64_t kLeastTiles = 128;   // transforming the weights costs as much as some twenty tiles
constexpr double kMostComputed = 1.6;  // upper bound on computed results (whole tiles) divided by results in the output

// The convolution that is run: forward over x, or the input gradient over dy.
struct Tiling {
  WinogradTiles tiles;
  int64_t count;  // number of tiles

  double computed() const { return static_cast<double>(count * kWinogradRows * kWinogradColumns); }
};

Tiling tiling_of(const Convolution& c) {
  WinogradTiles t{c.h, c.w, c.c, c.oh, c.ow, c.o, c.top, c.left, c.d, c.od, c.kd, c.front, 0};
  if (c.pass == ConvolutionPass::kInputGrad)
    t = {c.oh, c.ow, c.o, c.h, c.w, c.c, 2 - c.top, 2 - c.left, c.od, c.d, c.kd, c.kd - 1 - c.front, 0};
  const int64_t count =
      c.n * t.od * ((t.oh + kWinogradRows - 1) / kWinogradRows) * ((t.ow + kWinogradColumns - 1) / kWinogradColumns);
  const int64_t mr = simd().gemm_mr, a_tile = kPositions * 4 * (t.k() + simd().gemm_nr);
  const int64_t wanted = std::min(kChunkBytes / a_tile, count);
  t.capacity = std::max<int64_t>(1, (wanted + mr - 1) / mr) * mr;
  return {t, count};
}

// Calls f(first channel, width) over the output channels, one register block at a time.
template <typename F>
void over_channels(int64_t begin, int64_t end, const F& f) {
  for (int64_t channel = begin; channel < end; channel += simd().gemm_nr)
    f(channel, std::min(simd().gemm_nr, end - channel));
}

int64_t chunk_elements(const WinogradTiles& t) {
  return kPositions * t.capacity * (t.k() + simd().gemm_nr);
}

Recipe convolve(const Problem& p, const Convolution& c, double seconds) {
  const bool backwards = c.pass == ConvolutionPass::kInputGrad, has_bias = c.bias;
  const Tiling tiling = tiling_of(c);
  const WinogradTiles t = tiling.tiles;
  const int threads = p.machine.threads;
  const bool relu = c.relu;
  const Bytes written = p.out(0).bytes();
  const int64_t weights = kPositions * t.k() * t.o, chunk = chunk_elements(t);
  const int64_t chunks = (tiling.count + t.capacity - 1) / t.capacity;
  return own_recipe(std::string(kWinogradKernel), 4 * (weights + threads * chunk), seconds, [=](const BoundNode& node) {
    const auto* x = input<const float>(node, 0);
    const WinogradWeights w{input<const float>(node, 1), t.kd, t.c, t.o, backwards};
    const auto* bias = has_bias ? input<const float>(node, 2) : nullptr;
    auto* y = output<float>(node, 0);
    auto* u = static_cast<float*>(node.workspace);
    const bool stream = goes_past_caches(y, written);
    const WinogradResult result{y, bias, relu, stream};
    return [=] {
      const int64_t blocks = (t.o + simd().gemm_nr - 1) / simd().gemm_nr;
      parallel_items(threads, blocks, [&](int64_t block, int) {
        const int64_t channel = block * simd().gemm_nr;
        simd().winograd_weights(w, channel, std::min(simd().gemm_nr, t.o - channel), u + kPositions * t.k() * channel);
      });
      parallel_items(threads, chunks, [&](int64_t item, int thread) {
        const int64_t first = item * t.capacity, count = std::min(t.capacity, tiling.count - first);
        float* v = u + weights + thread * chunk;
        float* m = v + kPositions * t.capacity * t.k();
        simd().winograd_image(t, x, first, count, v);
        over_channels(0, t.o, [&](int64_t channel, int64_t width) {
          simd().winograd_multiply(t, v, u + kPositions * t.k() * channel, width, count, m);
          simd().winograd_result(t, m, channel, width, first, count, result);
        });
      });
    };
  });
}

// Number of slices of the sum over all tiles; independent of the number of threads.
int64_t slices_of(const Tiling& tiling) {
  const WinogradTiles& t = tiling.tiles;
  const int64_t fitting = kMostPartials / (4 * kPositions * t.k() * t.o);
  return std::clamp<int64_t>(std::min(fitting, tiling.count / t.capacity), 1, kMostSlices);
}

Recipe weight_gradient(const Problem& p, const Convolution& c, double seconds) {
  const Tiling tiling = tiling_of(c);
  const WinogradTiles t = tiling.tiles;
  const int threads = p.machine.threads;
  const int64_t slices = slices_of(tiling), chunk = chunk_elements(t);
  const int64_t partial = (kPositions * t.k() + 1) * t.o;  // plus one row for the bias gradient
  // With few slices there are too few parallel work items. Then each block of output channels becomes an item of its
  // own and transforms the image again.
  const int64_t together = slices < kFewSlices ? simd().gemm_nr : t.o;
  const int64_t blocks = (t.o + together - 1) / together;
  const bool has_bias = c.bias;
  const Bytes workspace = 4 * (slices * partial + threads * chunk);
  return own_recipe(std::string(kWinogradKernel), workspace, seconds, [=](const BoundNode& node) {
    const auto *x = input<const float>(node, 0), *dy = input<const float>(node, 1);
    auto* dw = output<float>(node, 0);
    auto* db = has_bias ? output<float>(node, 1) : nullptr;
    auto* partials = static_cast<float*>(node.workspace);
    const auto accumulate = [=](int64_t item, int thread) {
      const int64_t slice = item / blocks, from = item % blocks * together, to = std::min(t.o, from + together);
      float* sums = partials + slice * partial;
      float* bias_sums = sums + kPositions * t.k() * t.o;
      std::fill(sums + kPositions * t.k() * from, sums + kPositions * t.k() * to, 0.0F);
      std::fill(bias_sums + from, bias_sums + to, 0.0F);
      float* v = partials + slices * partial + thread * chunk;
      float* z = v + kPositions * t.capacity * t.k();
      const int64_t end = tiling.count * (slice + 1) / slices;
      for (int64_t first = tiling.count * slice / slices; first < end; first += t.capacity) {
        const int64_t count = std::min(t.capacity, end - first);
        simd().winograd_image(t, x, first, count, v);
        over_channels(from, to, [&](int64_t channel, int64_t width) {
          simd().winograd_result_grad(t, dy, channel, width, first, count, z, bias_sums + channel);
          simd().winograd_accumulate(t, v, z, width, count, sums + kPositions * t.k() * channel);
        });
      }
    };
    return [=] {
      parallel_items(threads, slices * blocks, accumulate);
      parallel_ranges(threads, partial, 16384, [&](int64_t begin, int64_t end) {
        for (int64_t slice = 1; slice < slices; ++slice)
          for (int64_t i = begin; i < end; ++i) partials[i] += partials[slice * partial + i];
      });
      over_channels(0, t.o, [&](int64_t channel, int64_t width) {
        simd().winograd_weight_grad(t, partials + kPositions * t.k() * channel, channel, width, dw);
      });
      if (db != nullptr) std::copy_n(partials + kPositions * t.k() * t.o, t.o, db);
    };
  });
}

}  // namespace

bool winograd_fits(const Convolution& c) {
  // With many planes, a chunk of tiles would no longer fit the cache.
  constexpr int64_t kMostPlanes = 5;
  const bool depth_fits = c.sd == 1 && c.dd == 1 && c.kd <= kMostPlanes && std::max(c.front, c.back) < c.kd;
  return depth_fits && c.kh == 3 && c.kw == 3 && c.sh == 1 && c.sw == 1 && c.dh == 1 && c.dw == 1 && c.groups == 1 &&
         std::max({c.top, c.bottom, c.left, c.right}) <= 2 && c.c % 16 == 0 && c.o % 16 == 0;
}

// Measured against oneDNN 2.6.3's direct convolutions on one core: 0.4 to 0.65 of their time with AVX-512, 0.35 to 0.6
// with AVX2, from 16 to 256 channels and from 63 down to 8 pixels per side, for all three ops.
bool winograd_is_faster(const Convolution& c) {
  const Tiling tiling = tiling_of(c);
  const auto wanted = static_cast<double>(c.n * tiling.tiles.od * tiling.tiles.oh * tiling.tiles.ow);
  return tiling.count >= kLeastTiles && tiling.computed() <= kMostComputed * wanted;
}

Result<Recipe> winograd_recipe(const Problem& p) {
  const Convolution c(p);
  const Tiling tiling = tiling_of(c);
  // Three multiplications per result and pair of channels. The transforms cost relatively less the more channels there
  // are.
  const auto depth = static_cast<double>(tiling.tiles.c);
  const double flops = 2.0 * 3.0 * tiling.computed() * static_cast<double>(c.kd * c.c * c.o);
  const double seconds = p.machine.seconds(flops, 0.7 * depth / (depth + 12), p.traffic());
  return c.pass == ConvolutionPass::kWeightGrad ? weight_gradient(p, c, seconds) : convolve(p, c, seconds);
}

}  // namespace plimsoll::engine::cpu
