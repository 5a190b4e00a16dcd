// Convolutions by im2col + GEMM, for cases where oneDNN has only its reference kernel or a kernel on its own gemm
// (which allocates memory). The taps of each output pixel are gathered into one row, a block of rows at a time, and
// multiplied with our GEMM (matmul/gemm.h). All tensors are row-major: images N(D)HWC, weights (D)HWIO. All strides,
// dilations, pads and groups are supported.
#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/convolution/convolution.h"
#include "backends/cpu/matmul/gemm.h"
#include "backends/cpu/parallel.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGatherElements = 65536;  // elements of a block of im2col rows
// Number of partial weight gradients; constant, so that the sum does not depend on the threads.
constexpr int64_t kSampleChunks = 8;
constexpr double kEfficiency = 0.3;

struct Blocks {
  int64_t pixels, depth, rows;  // output pixels of an image; elements per im2col row; im2col rows per block
  int64_t cg, og;               // input and output channels per group
};

Blocks blocks_of(const Convolution& c) {
  Blocks b{};
  b.pixels = c.od * c.oh * c.ow;
  b.cg = c.c / c.groups;
  b.og = c.o / c.groups;
  b.depth = c.taps() * b.cg;
  b.rows = std::min(b.pixels, std::max<int64_t>(16, kGatherElements / b.depth));
  return b;
}

// Calls f(offset of the input pixel in the image, or -1 in the padding; offset in the im2col block) for each tap of
// each output pixel.
template <typename F>
void for_each_tap(const Convolution& c, const Blocks& b, int64_t first, int64_t rows, const F& f) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = (first + r) / c.ow, left = (first + r) % c.ow * c.sw - c.left;
    const int64_t front = row / c.oh * c.sd - c.front, top = row % c.oh * c.sh - c.top;
    int64_t at = r * b.depth;
    for (int64_t kz = 0; kz < c.kd; ++kz) {
      const int64_t iz = front + kz * c.dd;
      for (int64_t ky = 0; ky < c.kh; ++ky) {
        const int64_t iy = top + ky * c.dh;
        const bool row_inside = iz >= 0 && iz < c.d && iy >= 0 && iy < c.h;
        for (int64_t kx = 0; kx < c.kw; ++kx, at += b.cg) {
          const int64_t ix = left + kx * c.dw;
          f(row_inside && ix >= 0 && ix < c.w ? ((iz * c.h + iy) * c.w + ix) * c.c : -1, at);
        }
      }
    }
  }
}

void gather(const Convolution& c, const Blocks& b, const float* image, int64_t first, int64_t rows, float* gathered) {
  for_each_tap(c, b, first, rows, [&](int64_t from, int64_t to) {
    if (from < 0) {
      std::fill_n(gathered + to, b.cg, 0.0F);
    } else {
      std::copy_n(image + from, b.cg, gathered + to);
    }
  });
}

void scatter(const Convolution& c, const Blocks& b, float* image, int64_t first, int64_t rows, const float* gathered) {
  for_each_tap(c, b, first, rows, [&](int64_t to, int64_t from) {
    if (to < 0) return;
    for (int64_t i = 0; i < b.cg; ++i) image[to + i] += gathered[from + i];
  });
}

// The GEMM of one block: forward (im2col x weights), input gradient (dy x weights^T), weight gradient (im2col^T x dy).
Product block_product(const Convolution& c, const Blocks& b) {
  Product p;
  if (c.pass == ConvolutionPass::kForward) {
    p.m = b.rows, p.n = b.og, p.k = b.depth;
    p.a_row = b.depth, p.a_column = 1, p.b_row = c.o, p.b_column = 1, p.c_row = c.o;
    p.relu = c.relu;
  } else if (c.pass == ConvolutionPass::kInputGrad) {
    p.m = b.rows, p.n = b.depth, p.k = b.og;
    p.a_row = c.o, p.a_column = 1, p.b_row = 1, p.b_column = c.o, p.c_row = b.depth;
  } else {
    p.m = b.depth, p.n = b.og, p.k = b.rows;
    p.a_row = 1, p.a_column = b.depth, p.b_row = c.o, p.b_column = 1, p.c_row = c.o;
    p.accumulate = true;
  }
  return p;
}

// Scratch of one thread: im2col rows, then the GEMM's packed panels.
Bytes thread_bytes(const Convolution& c, const Blocks& b) {
  return align_up(4 * b.rows * b.depth) + serial_workspace(block_product(c, b));
}

struct Addresses {
  const float *first, *second, *bias;
  float *out, *bias_out;
  char* scratch;  // thread_bytes() per thread
  float* partials;
};

int64_t image_elements(const Convolution& c) {
  return c.d * c.h * c.w * c.c;
}

void forward_item(const Convolution& c, const Blocks& b, const Addresses& at, int64_t item, float* gathered) {
  const int64_t image = item / c.groups, group = item % c.groups;
  Product p = block_product(c, b);
  float* panels = gathered + align_up(4 * b.rows * b.depth) / 4;
  for (int64_t first = 0; first < b.pixels; first += b.rows) {
    p.m = std::min(b.rows, b.pixels - first);
    gather(c, b, at.first + image * image_elements(c) + group * b.cg, first, p.m, gathered);
    p.a = gathered;
    p.b = at.second + group * b.og;
    p.bias = at.bias == nullptr ? nullptr : at.bias + group * b.og;
    p.c = at.out + (image * b.pixels + first) * c.o + group * b.og;
    multiply_serial(p, panels);
  }
}

void input_grad_item(const Convolution& c, const Blocks& b, const Addresses& at, int64_t item, float* gathered) {
  const int64_t image = item / c.groups, group = item % c.groups;
  Product p = block_product(c, b);
  float* panels = gathered + align_up(4 * b.rows * b.depth) / 4;
  float* dx = at.out + image * image_elements(c) + group * b.cg;
  for (int64_t pixel = 0; pixel < c.d * c.h * c.w; ++pixel) std::fill_n(dx + pixel * c.c, b.cg, 0.0F);
  for (int64_t first = 0; first < b.pixels; first += b.rows) {
    p.m = std::min(b.rows, b.pixels - first);
    p.a = at.first + (image * b.pixels + first) * c.o + group * b.og;
    p.b = at.second + group * b.og;
    p.c = gathered;
    multiply_serial(p, panels);
    scatter(c, b, dx, first, p.m, gathered);
  }
}

int64_t chunks_of(const Convolution& c) {
  return std::min(c.n, kSampleChunks);
}
int64_t partial_elements(const Convolution& c, const Blocks& b) {
  return align_up(4 * (b.depth + 1) * c.o) / 4;
}

// An item is a chunk of images and a group. Its result goes to the chunk's partial sums: the weight gradient, then a
// row for the bias gradient.
void weight_grad_item(const Convolution& c, const Blocks& b, const Addresses& at, int64_t item, float* gathered) {
  const int64_t chunk = item / c.groups, group = item % c.groups, chunks = chunks_of(c);
  Product p = block_product(c, b);
  float* panels = gathered + align_up(4 * b.rows * b.depth) / 4;
  float* partial = at.partials + chunk * partial_elements(c, b) + group * b.og;
  for (int64_t r = 0; r <= b.depth; ++r) std::fill_n(partial + r * c.o, b.og, 0.0F);
  for (int64_t image = c.n * chunk / chunks; image < c.n * (chunk + 1) / chunks; ++image) {
    for (int64_t first = 0; first < b.pixels; first += b.rows) {
      p.k = std::min(b.rows, b.pixels - first);
      gather(c, b, at.first + image * image_elements(c) + group * b.cg, first, p.k, gathered);
      p.a = gathered;
      p.b = at.second + (image * b.pixels + first) * c.o + group * b.og;
      p.c = partial;
      multiply_serial(p, panels);
      if (!c.bias) continue;
      for (int64_t r = 0; r < p.k; ++r) {
        for (int64_t j = 0; j < b.og; ++j) partial[b.depth * c.o + j] += p.b[r * c.o + j];
      }
    }
  }
}

void add_partials(const Convolution& c, const Blocks& b, const Addresses& at, int threads) {
  parallel_ranges(threads, b.depth + 1, std::max<int64_t>(1, 4096 / c.o), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* to = r < b.depth ? at.out + r * c.o : at.bias_out;
      if (to == nullptr) continue;
      for (int64_t j = 0; j < c.o; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < chunks_of(c); ++k)
          sum += static_cast<double>(at.partials[k * partial_elements(c, b) + r * c.o + j]);
        to[j] = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace

Result<Recipe> convolution_fallback_recipe(const Problem& problem) {
  const Convolution c(problem);
  const Blocks b = blocks_of(c);
  const std::string op = problem.node.op;
  const int threads = problem.machine.threads;
  const Bytes a_thread = thread_bytes(c, b);
  const bool weights = c.pass == ConvolutionPass::kWeightGrad, forward = c.pass == ConvolutionPass::kForward;
  const Bytes partials = weights ? 4 * chunks_of(c) * partial_elements(c, b) : 0;
  const double seconds = problem.machine.seconds(c.flops(), kEfficiency, 3 * problem.traffic());
  const auto item = weights ? weight_grad_item : forward ? forward_item : input_grad_item;
  return own_recipe(fmt::format("{}{}", kFallbackPrefix, op), partials + threads * a_thread, seconds,
                    [=](const BoundNode& node) {
                      Addresses at{};
                      at.first = input<const float>(node, 0);
                      at.second = input<const float>(node, 1);
                      at.bias = forward && node.inputs.size() == 3 ? input<const float>(node, 2) : nullptr;
                      at.out = output<float>(node, 0);
                      at.bias_out = node.outputs.size() == 2 ? output<float>(node, 1) : nullptr;
                      at.partials = static_cast<float*>(node.workspace);
                      at.scratch = static_cast<char*>(node.workspace) + partials;
                      return [=] {
                        parallel_items(threads, (weights ? chunks_of(c) : c.n) * c.groups, [&](int64_t i, int thread) {
                          item(c, b, at, i, reinterpret_cast<float*>(at.scratch + thread * a_thread));
                        });
                        if (weights) add_partials(c, b, at, threads);
                      };
                    });
}

}  // namespace plimsoll::engine::cpu
