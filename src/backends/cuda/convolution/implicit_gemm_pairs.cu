// Implicit GEMM for convolutions over few input channels in half precision whose kernels are too large for
// implicit_gemm.cu, e.g. 7 x 7 x 3, the first layer of many networks. Computes y = relu?(conv(x, w) + bias?) and the
// partial sums of the weight gradient. x, y and dy are NHWC, w is [o, kh, kw, c]. The caller adds up the partial weight
// gradients (launch_sum_parts); the input gradient is left to other kernels.
//
// A row of the kernel covers kw * c consecutive elements of an image row. The kernels read them from shared memory as
// pairs: two half-precision values in one 32-bit register of an mma.m16n8k16 fragment. Elements of a pair outside the
// kernel are masked to zero. Example with kw = 7, c = 3 and left = 3: an image row in shared memory starts at a
// multiple of 8 elements of the image, so lead = 7 elements precede the kernel. Because 7 is odd, the first pair starts
// one element before the kernel (`.` is a masked element):
//
//   offset in the row      0 ... 5    6   7    8   9   10  11   12  13    ...    26  27   28  29
//   element under kernel              .   0    1   2    3   4    5   6    ...    19  20    .   .
//   pair                              [ 0 ]    [ 1 ]    [ 2 ]    [ 3 ]    ...    [ 10 ]   [ 11 ]
//   quad, lane t of it                0, t=0   0, t=1   0, t=2   0, t=3   ...    2, t=2   2, t=3
//
// A quad is four pairs, read by the four lanes of a group: 8 elements, i.e. one half of the k dimension of an mma. The
// next output pixel reads the same pairs sw * c elements further on. Image rows are double buffered: cp.async loads the
// rows of the next segment (row_segments.cuh) into shared memory while the current segment is multiplied.
//
// Supported shapes (paired_takes): dw is 1, so that a kernel row covers consecutive elements; sw * c is even, so that a
// pair has the same alignment for every output pixel; w * c and o are multiples of 8, for 16-byte copies; strides and
// dh are at most 64; the kernel has at most 7 rows of at most 12 pairs, because the forward pass keeps all weights in
// registers; for the weight gradient at most 79 pairs in total, 16 per warp, and one for the bias gradient; two
// segments fit into shared memory.
#include <algorithm>

#include "backends/cuda/convolution/few_channels.cuh"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/convolution/row_segments.cuh"

namespace plimsoll::engine::cuda {
namespace {

constexpr int kPixels = 128;                      // output pixels per segment
constexpr int kForwardLines = 4;                  // output rows at once: neighbouring rows share image rows
constexpr int kMostRows = 7;                      // kernel height
constexpr int kQuad = 4;                          // pairs read by the four lanes of a group
constexpr int kMostQuads = 3;                     // quads per kernel row
constexpr int kWeightPairs = 80;                  // pairs in the weight gradient: 16 per warp, five warps
constexpr int kOutputs = 2 * kFewChannelOutputs;  // output channels per block
constexpr int kRow = kOutputs + 8;  // row pitch of dy in shared memory; the 8 extra elements avoid bank conflicts
constexpr int kBlocks = 3;          // blocks per multiprocessor
constexpr int kWide = 8;            // elements per 16-byte copy
constexpr int kMostStep = 64;       // bound on strides and dilation, so that shared-memory sizes fit in 32 bits

// The image rows in shared memory: `count` rows with a row pitch of `pitch` elements. Each row starts at a multiple of
// kWide elements of the image, `lead` elements before the first element that pixel 0 reads.
struct PairedLines {
  int count, pitch, lead;

  __host__ __device__ PairedLines(const ImplicitGemmShape& s, int output_lines) {
    lead = (kWide - s.left * s.c % kWide) % kWide;
    count = (output_lines - 1) * s.sh + (s.kh - 1) * s.dh + 1;
    pitch = (lead + (kPixels - 1) * s.sw * s.c + 2 * kQuad * kMostQuads + kWide - 1) / kWide * kWide;
  }
  // Pairs start at even offsets. If `lead` is odd, the first pair of a row starts one element before the kernel.
  __host__ __device__ int odd() const { return lead % 2; }
};

__host__ __device__ inline int numbers_across(const ImplicitGemmShape& s) {
  return s.kw * s.c;
}
__host__ __device__ inline int pairs_across(const ImplicitGemmShape& s, const PairedLines& lines) {
  return (lines.odd() + numbers_across(s) + 1) / 2;
}

// Pair `pair` of a kernel row.
struct Pair {
  int number;          // index of its first element in the kernel row; -1 if that element precedes the row
  bool first, second;  // whether the first and second element are inside the kernel

  __device__ Pair(const ImplicitGemmShape& s, const PairedLines& lines, int pair) : number(2 * pair - lines.odd()) {
    first = number >= 0 && number < numbers_across(s);
    second = number + 1 < numbers_across(s);
  }
};

template <int kThreads, typename T>
__device__ void start_lines(const ImplicitGemmShape& s, const PairedLines& lines, int64_t image, int row,
                            int first_pixel, int pixels, const T* x, T* to) {
  const int packs = lines.pitch / kWide, from = (first_pixel * s.sw - s.left) * s.c - lines.lead, width = s.w * s.c;
  const int end = min(width, from + lines.lead + numbers_under(s, pixels));
  for (int k = static_cast<int>(threadIdx.x); k < lines.count * packs; k += kThreads) {
    const int line = k / packs, number = from + k % packs * kWide, at = row + line;
    const bool there = at >= 0 && at < s.h && number >= 0 && number < end;
    copy_pack(to + k * kWide, there ? x + (image * s.h + at) * width + number : x,
              there ? min(kWide, end - number) * static_cast<int>(sizeof(T)) : 0);
  }
}

// Two of a block's four warps split its pixels; the other two compute the other half of its output channels from the
// same image rows. kRows is the kernel height for common kernels: testing `row < rows` at run time took a fifth of the
// loop.
constexpr int kAnyRows = 0;
template <typename T, int kQuads, int kRows>
__global__ void __launch_bounds__(kFewChannelThreads, kBlocks)
    paired_forward(ImplicitGemmShape s, Segments segments, const T* __restrict__ x, const T* __restrict__ w,
                   const T* __restrict__ bias, bool relu, T* __restrict__ y) {
  constexpr int kHalves = kOutputs / kFewChannelOutputs, kSharing = kFewChannelWarps / kHalves;
  constexpr int kSteps = ((kRows == kAnyRows ? kMostRows : kRows) * kQuads + 1) / 2;
  const int rows = kRows == kAnyRows ? s.kh : kRows;
  extern __shared__ __align__(16) char shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, shift = s.sw * s.c;
  const int first_output = static_cast<int>(blockIdx.y) * kOutputs + warp % kHalves * kFewChannelOutputs;
  const PairedLines under(s, kForwardLines);
  const T zero = from_float<T>(0.0F);

  uint32_t mask[kQuads], weights[kSteps][kFewChannelTiles][2];
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const Pair pair(s, under, quad * kQuad + t);
    mask[quad] = (pair.first ? 0xffffU : 0U) | (pair.second ? 0xffff0000U : 0U);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = (2 * step + r) / kQuads;
      const Pair pair(s, under, (2 * step + r) % kQuads * kQuad + t);
#pragma unroll
      for (int j = 0; j < kFewChannelTiles; ++j) {
        const int output = first_output + forward_output(j, g);
        const bool there = output < s.o && row < rows;
        const T* const from = w + static_cast<int64_t>(output) * s.numbers + row * numbers_across(s) + pair.number;
        weights[step][j][r] =
            Matrix<T>::pack(there && pair.first ? from[0] : zero, there && pair.second ? from[1] : zero);
      }
    }
  const FewChannelBias<T> first(s, bias, first_output);

  const int groups = (s.oh + kForwardLines - 1) / kForwardLines;
  T* const space = reinterpret_cast<T*>(shared);
  const auto start = [&](int i, T* into) {
    const Segment at = segments.at(i, groups);
    start_lines<kFewChannelThreads>(s, under, at.image, at.line * kForwardLines * s.sh - s.top, at.first,
                                    min(kPixels, s.ow - at.first), x, into);
  };
  for_each_segment(segments, space, space + under.count * under.pitch, start, [&](int i, const T* lines) {
    const Segment at = segments.at(i, groups);
    const int first_line = at.line * kForwardLines, count = min(kPixels, s.ow - at.first), tiles = (count + 15) / 16;
    const int tiles_of_all = tiles * min(kForwardLines, s.oh - first_line);
    for (int tile = warp / kHalves; tile < tiles_of_all; tile += kSharing) {
      const int line = tile / tiles, begin = tile % tiles * 16;
      const T* const pixel = lines + line * s.sh * under.pitch + (begin + g) * shift + under.lead - under.odd() + 2 * t;
      float c[kFewChannelTiles][4];
      first.begin(c);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        uint32_t a[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const int quad = 2 * step + q / 2, row = quad / kQuads;
          const T* const from = pixel + q % 2 * 8 * shift + row * s.dh * under.pitch + quad % kQuads * 2 * kQuad;
          a[q] = row < rows ? *reinterpret_cast<const uint32_t*>(from) & mask[quad % kQuads] : 0U;
        }
#pragma unroll
        for (int j = 0; j < kFewChannelTiles; ++j) multiply<T>(c[j], a, weights[step][j]);
      }
      const int64_t first_pixel = ((at.image * s.oh + first_line + line) * s.ow + at.first + begin) * s.o;
      store_pixels(s, c, relu, first_output, count - begin, y + first_pixel + first_output);
    }
  });
}

// Elements in shared memory for one segment of the weight gradient.
__host__ __device__ inline int numbers_held(const PairedLines& lines) {
  return kPixels * kRow + lines.count * lines.pitch;
}

// Each warp accumulates 16 pairs x all output channels of the block. Of the 16 rows of an mma's A fragment, row g is
// the first element of pair g and row g + 8 its second element; the k dimension runs over output pixels.
constexpr int kWeightThreads = kWeightPairs / 16 * kWarp;
template <typename T>
__global__ void __launch_bounds__(kWeightThreads, kBlocks)
    paired_weight_grad(ImplicitGemmShape s, Segments segments, const T* __restrict__ x, const T* __restrict__ dy,
                       bool one, int width, float* __restrict__ parts) {
  constexpr int kRows = 2, kTiles = kOutputs / kGroup;
  extern __shared__ __align__(16) char shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int g = lane / 4, t = lane % 4, shift = s.sw * s.c, first_output = static_cast<int>(blockIdx.y) * kOutputs;
  const int outputs = min(kOutputs, s.o - first_output);
  const PairedLines under(s, 1);
  const int across = pairs_across(s, under), pairs = across * s.kh;
  const T unit = from_float<T>(1.0F);
  const uint32_t ones = Matrix<T>::pack(unit, unit);
  const auto pair_of = [&](int m) { return (warp * kRows + m) * kGroup + g; };
  int place[kRows];
  bool is_bias[kRows];  // the pair after the last one computes the bias gradient
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    const int pair = pair_of(m);
    place[m] = under.lead - under.odd() + (pair < pairs ? pair / across * s.dh * under.pitch + 2 * (pair % across) : 0);
    is_bias[m] = one && pair == pairs;
  }

  T* const space = reinterpret_cast<T*>(shared);
  const auto start = [&](int i, T* into) {
    const Segment at = segments.at(i, s.oh);
    const int count = min(kPixels, s.ow - at.first);
    start_gradients<kPixels, kOutputs, kRow>(s, at, count, first_output, kWeightThreads, dy, into);
    start_lines<kWeightThreads>(s, under, at.image, at.line * s.sh - s.top, at.first, count, x, into + kPixels * kRow);
  };
  float c[kRows][kTiles][4] = {};
  for_each_segment(segments, space, space + numbers_held(under), start, [&](int i, const T* gradients) {
    const T* const lines = gradients + kPixels * kRow;
    const int count = min(kPixels, s.ow - segments.at(i, s.oh).first);
    for (int begin = 0; begin < count; begin += Matrix<T>::kStep) {
      uint32_t a[kRows][4];
#pragma unroll
      for (int m = 0; m < kRows; ++m)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const T* const pixel = lines + (begin + 2 * t + 8 * r) * shift + place[m];
          const uint32_t here = *reinterpret_cast<const uint32_t*>(pixel);
          const uint32_t there = *reinterpret_cast<const uint32_t*>(pixel + shift);
          a[m][2 * r] = is_bias[m] ? ones : __byte_perm(here, there, 0x5410);
          a[m][2 * r + 1] = __byte_perm(here, there, 0x7632);
        }
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        uint32_t b[2][2];
        load_transposed(gradients + (begin + lane % 16) * kRow + (j + lane / 16) * kGroup, b[0][0], b[0][1], b[1][0],
                        b[1][1]);
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          multiply<T>(c[m][j], a[m], b[0]);
          multiply<T>(c[m][j + 1], a[m], b[1]);
        }
      }
    }
  });

  float* const part = parts + (static_cast<int64_t>(blockIdx.x) * s.o + first_output) * width;
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    const int row = pair_of(m) / across;
    const Pair pair(s, under, pair_of(m) % across);
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int output = j * kGroup + 2 * t + q % 2, second = q / 2;
        const bool there = is_bias[m] ? second == 0 : row < s.kh && (second ? pair.second : pair.first);
        const int number = is_bias[m] ? s.numbers : row * numbers_across(s) + pair.number + second;
        if (output < outputs && there) part[static_cast<int64_t>(output) * width + number] = c[m][j][q];
      }
  }
  const int used = s.numbers + (one ? 1 : 0), rest = width - used;
  for (int i = static_cast<int>(threadIdx.x); i < outputs * rest; i += kWeightThreads)
    part[static_cast<int64_t>(i / rest) * width + used + i % rest] = 0.0F;
}

// For two segments (double buffering), two bytes per element.
int shared_bytes(const ImplicitGemmShape& s, bool weight_grad) {
  const PairedLines lines(s, weight_grad ? 1 : kForwardLines);
  return 2 * 2 * (weight_grad ? numbers_held(lines) : lines.count * lines.pitch);
}

// Segments of groups of `lines` output rows.
Segments segments_of(ImplicitGemmShape s, int lines) {
  s.oh = (s.oh + lines - 1) / lines;
  return Segments(s, kPixels);
}

unsigned output_blocks(const ImplicitGemmShape& s) {
  return static_cast<unsigned>((s.o + kOutputs - 1) / kOutputs);
}

int64_t blocks_of(const ImplicitGemmShape& s, int lines, int multiprocessors) {
  return std::clamp<int64_t>(kBlocks * multiprocessors / output_blocks(s), 1, segments_of(s, lines).count);
}

// Calls f.operator()<T>() with the half-precision type.
template <typename F>
void with_half(Element element, F f) {
  if (element == Element::kF16)
    f.template operator()<__half>();
  else
    f.template operator()<__nv_bfloat16>();
}

}  // namespace

bool paired_takes(const ImplicitGemmShape& s, Element element, bool weight_grad) {
  if (element == Element::kF32 || s.dw != 1 || s.sw * s.c % 2 != 0 || s.w * s.c % kWide != 0 || s.o % kWide != 0)
    return false;
  if (std::max({s.sh, s.sw, s.dh}) > kMostStep) return false;
  const int across = pairs_across(s, PairedLines(s, 1));
  return s.kh <= kMostRows && across <= kQuad * kMostQuads && (!weight_grad || across * s.kh + 1 <= kWeightPairs) &&
         shared_bytes(s, weight_grad) <= most_shared();
}

void launch_paired_forward(const ImplicitGemmShape& s, Element element, const void* x, const void* w, const void* bias,
                           bool relu, void* y, int multiprocessors, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks_of(s, kForwardLines, multiprocessors)), output_blocks(s));
  const int shared = shared_bytes(s, false);
  with_half(element, [&]<typename T>() {
    const auto launch = [&](auto kernel) {
      allow_most_shared(kernel);
      kernel<<<grid, kFewChannelThreads, shared, stream>>>(s, segments_of(s, kForwardLines), static_cast<const T*>(x),
                                                           static_cast<const T*>(w), static_cast<const T*>(bias), relu,
                                                           static_cast<T*>(y));
    };
    const auto launch_rows = [&]<int kQuads>() {
      if (s.kh == 7)
        launch(paired_forward<T, kQuads, 7>);
      else if (s.kh == 5)
        launch(paired_forward<T, kQuads, 5>);
      else
        launch(paired_forward<T, kQuads, kAnyRows>);
    };
    if (pairs_across(s, PairedLines(s, 1)) <= 2 * kQuad)
      launch_rows.template operator()<2>();
    else
      launch_rows.template operator()<kMostQuads>();
  });
  check_launch();
}

int64_t paired_parts(const ImplicitGemmShape& s, int multiprocessors) {
  return blocks_of(s, 1, multiprocessors);
}

void launch_paired_weight_grad(const ImplicitGemmShape& s, Element element, const void* x, const void* dy, bool one,
                               int width, int64_t count, float* parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(count), output_blocks(s));
  const int shared = shared_bytes(s, true);
  with_half(element, [&]<typename T>() {
    allow_most_shared(paired_weight_grad<T>);
    paired_weight_grad<T><<<grid, kWeightThreads, shared, stream>>>(s, segments_of(s, 1), static_cast<const T*>(x),
                                                                    static_cast<const T*>(dy), one, width, parts);
  });
  check_launch();
}

}  // namespace plimsoll::engine::cuda
