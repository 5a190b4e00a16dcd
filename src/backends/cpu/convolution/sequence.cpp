// The weight gradient of a convolution along one dimension (Conv1D): outer products of x and dy, with nothing packed.
// Without dilation the values of x under one pixel of the result are consecutive, so all taps are one run; with
// dilation each tap is a run of its own. A block of pixels whose taps reach into the padding reads a copy with zeros.
//
// oneDNN's kernel waits for its threads in a loop that keeps the processor busy. That costs several times the work
// where another program needs a core, and there are few rows to share between threads.
#include <algorithm>

#include "backends/cpu/convolution/convolution.h"
#include "backends/cpu/convolution/slices.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kPixelsOfABlock = 128;
constexpr int64_t kManyWeights = 131072;  // above this, partial sums of slices would leave the caches
constexpr int64_t kColumnsOfAnItem = 64;

struct Sequences {
  Convolution c;

  int64_t blocks() const { return (c.ow + kPixelsOfABlock - 1) / kPixelsOfABlock; }  // per image
  int64_t count() const { return c.n * blocks(); }
  int64_t rows() const { return c.kw * c.c; }
  bool dilated() const { return c.dw > 1 && c.kw > 1; }
  bool padded() const { return c.left > 0 || c.right > 0; }
  // x under a block of pixels, in pixels of x.
  int64_t reach(int64_t pixels) const { return (pixels - 1) * c.sw + (c.kw - 1) * c.dw + 1; }
  int64_t copy_elements() const {
    return padded() ? align_up(4 * reach(std::min(c.ow, kPixelsOfABlock)) * c.c) / 4 : 0;
  }
  // Scratch elements of one thread: the copy with zeros, then what sequence_weight_grad needs.
  int64_t scratch() const { return copy_elements() + align_up(4 * (kPixelsOfABlock + rows()) * kWidestVector) / 4; }
  bool by_slices() const { return rows() * c.o <= kManyWeights || c.o < 2 * kColumnsOfAnItem; }
  int64_t column_items() const { return (c.o + kColumnsOfAnItem - 1) / kColumnsOfAnItem; }
};

struct Block {
  const float *x, *dy;  // of the first pixel; x of its first tap
  int64_t pixels;
};

Block block_of(const Sequences& s, const float* x, const float* dy, int64_t block, float* copy) {
  const Convolution& c = s.c;
  const int64_t image = block / s.blocks(), first = block % s.blocks() * kPixelsOfABlock;
  Block b{x + image * c.w * c.c, dy + (image * c.ow + first) * c.o, std::min(kPixelsOfABlock, c.ow - first)};
  const int64_t begin = first * c.sw - c.left, end = begin + s.reach(b.pixels);
  if (begin >= 0 && end <= c.w) {
    b.x += begin * c.c;
    return b;
  }
  const int64_t from = std::clamp<int64_t>(begin, 0, c.w), to = std::clamp<int64_t>(end, from, c.w);
  std::fill_n(copy, (from - begin) * c.c, 0.0F);
  std::copy(b.x + from * c.c, b.x + to * c.c, copy + (from - begin) * c.c);
  std::fill_n(copy + (to - begin) * c.c, (end - to) * c.c, 0.0F);
  b.x = copy;
  return b;
}

// Adds the products of the taps [tap, tap + taps) and `width` columns of a block.
void add_taps(const Sequences& s, const Block& b, int64_t tap, int64_t taps, int64_t column, int64_t width, float* sums,
              float* scratch) {
  const Convolution& c = s.c;
  const int64_t together = s.dilated() ? 1 : taps;
  const SequencePixels pixels{b.pixels, together * c.c, c.sw * c.c, width, c.o};
  for (int64_t k = tap; k < tap + taps; k += together)
    simd().sequence_weight_grad(pixels, b.x + k * c.dw * c.c, b.dy + column, sums + k * c.c * c.o + column, scratch);
}

// An item is a tap and some columns of the result, summed over all pixels.
void sum_by_columns(const Sequences& s, const float* x, const float* dy, const GradientPlace& place, float* workspace,
                    int threads) {
  const Convolution& c = s.c;
  parallel_items(threads, c.kw * s.column_items(), [&](int64_t item, int thread) {
    const int64_t tap = item / s.column_items(), column = item % s.column_items() * kColumnsOfAnItem;
    const int64_t width = std::min(kColumnsOfAnItem, c.o - column);
    float *copy = workspace + thread * s.scratch(), *scratch = copy + s.copy_elements();
    const bool bias = tap == 0 && place.bias != nullptr;
    for (int64_t r = tap * c.c; r < (tap + 1) * c.c; ++r) std::fill_n(place.weights + r * c.o + column, width, 0.0F);
    if (bias) std::fill_n(place.bias + column, width, 0.0F);
    for (int64_t block = 0; block < s.count(); ++block) {
      const Block b = block_of(s, x, dy, block, copy);
      add_taps(s, b, tap, 1, column, width, place.weights, scratch);
      if (bias) simd().sequence_bias_grad({b.pixels, 0, 0, width, c.o}, b.dy + column, place.bias + column);
    }
  });
}

void sum_by_slices(const Sequences& s, const Slices& slices, const float* x, const float* dy,
                   const GradientPlace& place, float* workspace) {
  const Convolution& c = s.c;
  float* const per_thread = workspace + slices.workspace() / 4;
  slices.sum(workspace, place, [&](int64_t begin, int64_t end, float* sums, float* bias_sums, int thread) {
    float *copy = per_thread + thread * s.scratch(), *scratch = copy + s.copy_elements();
    for (int64_t block = begin; block < end; ++block) {
      const Block b = block_of(s, x, dy, block, copy);
      add_taps(s, b, 0, c.kw, 0, c.o, sums, scratch);
      simd().sequence_bias_grad({b.pixels, 0, 0, c.o, c.o}, b.dy, bias_sums);
    }
  });
}

}  // namespace

bool sequence_fits(const Convolution& c) {
  return !c.is_volume() && c.groups == 1 && c.h == 1 && c.kh == 1 && c.top == 0 && c.bottom == 0;
}

// Fewer pixels than this are fewer products than it costs to load and store their sums.
bool sequence_is_faster(const Convolution& c) {
  return c.ow >= 8;
}

Result<Recipe> sequence_weight_grad_recipe(const Problem& p) {
  const Sequences s{Convolution(p)};
  const Convolution& c = s.c;
  const int threads = p.machine.threads;
  const bool bias = c.bias;
  const Slices slices = make_slices(s.count(), s.rows() * c.o, c.o, threads);
  const Bytes workspace = (s.by_slices() ? slices.workspace() : 0) + 4 * threads * s.scratch();
  const double seconds = p.machine.seconds(c.flops(), 0.65, p.traffic());
  return own_recipe(std::string(kSequenceKernel), workspace, seconds, [=](const BoundNode& node) {
    const auto *x = input<const float>(node, 0), *dy = input<const float>(node, 1);
    const GradientPlace place{output<float>(node, 0), bias ? output<float>(node, 1) : nullptr};
    return [=, at = static_cast<float*>(node.workspace)] {
      if (s.by_slices())
        sum_by_slices(s, slices, x, dy, place, at);
      else
        sum_by_columns(s, x, dy, place, at, threads);
    };
  });
}

}  // namespace plimsoll::engine::cpu
