// Recipes for pooling over NHWC and NDHWC images. Work is split by rows of the tensor that is written: y in the forward
// pass, dx in the gradient.
#include <fmt/format.h>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "backends/cpu/simd/simd.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 16384;  // fewer elements are not worth another thread
constexpr double kEfficiency = 0.1;

// `image` is the shape of x (or dx), `pooled` the shape of y (or dy).
Window window_of(const Attrs& attrs, const Shape& image, const Shape& pooled) {
  const auto &pool = attrs.list("pool"), &strides = attrs.list("strides"), &pads = attrs.list("pads");
  Window w{};
  const size_t rank = pool.size();
  w.n = image[0], w.d = 1, w.h = image[rank - 1], w.w = image[rank], w.c = image.back();
  w.od = 1, w.oh = pooled[rank - 1], w.ow = pooled[rank];
  w.kd = 1, w.kh = pool[rank - 2], w.kw = pool[rank - 1];
  w.sd = 1, w.sh = strides[rank - 2], w.sw = strides[rank - 1];
  w.front = 0, w.top = pads[2 * rank - 4], w.left = pads[2 * rank - 2];
  if (rank == 3) w.d = image[1], w.od = pooled[1], w.kd = pool[0], w.sd = strides[0], w.front = pads[0];
  return w;
}

double work_of(const Window& w) {
  return static_cast<double>(w.n * w.od * w.oh * w.ow) * static_cast<double>(w.c) *
         static_cast<double>(w.kd * w.kh * w.kw);
}

// bind(node) returns a function that processes a range of [0, count); each index covers `elements` consecutive
// elements.
template <typename Bind>
Recipe over_ranges(const Problem& p, double seconds, int64_t count, int64_t elements, Bind bind) {
  const int64_t grain = 1 + kGrain / elements;
  return own_recipe(p.node.op, 0, seconds, [=, threads = p.machine.threads](const BoundNode& node) {
    return [=, run = bind(node)] { parallel_ranges(threads, count, grain, run); };
  });
}

Recipe forward(const Problem& p, bool max) {
  const Window w = window_of(p.attrs(), p.in_shape(0), p.out_shape(0));
  const bool wide = max && p.out_dtype(1) == DType::kInt32;
  const double seconds = p.machine.seconds(work_of(w), kEfficiency, p.traffic());
  return over_ranges(p, seconds, w.n * w.od * w.oh, w.ow * w.c, [=](const BoundNode& node) {
    const auto* x = input<const float>(node, 0);
    auto* y = output<float>(node, 0);
    void* index = max ? node.outputs[1] : nullptr;
    return [=](int64_t begin, int64_t end) {
      if (!max) {
        simd().avg_pool(w, x, y, begin, end);
      } else if (wide) {
        simd().max_pool_wide(w, x, y, static_cast<int32_t*>(index), begin, end);
      } else {
        simd().max_pool(w, x, y, static_cast<uint8_t*>(index), begin, end);
      }
    };
  });
}

Recipe backward(const Problem& p, bool max) {
  const Window w = window_of(p.attrs(), p.out_shape(0), p.in_shape(0));
  const bool wide = max && p.in_dtype(1) == DType::kInt32;
  const double seconds = p.machine.seconds(work_of(w), kEfficiency, p.traffic());
  return over_ranges(p, seconds, w.n * w.d * w.h, w.w * w.c, [=](const BoundNode& node) {
    const auto* dy = input<const float>(node, 0);
    const void* index = max ? node.inputs[1] : nullptr;
    auto* dx = output<float>(node, 0);
    return [=](int64_t begin, int64_t end) {
      if (!max) {
        simd().avg_pool_grad(w, dy, dx, begin, end);
      } else if (wide) {
        simd().max_pool_grad_wide(w, dy, static_cast<const int32_t*>(index), dx, begin, end);
      } else {
        simd().max_pool_grad(w, dy, static_cast<const uint8_t*>(index), dx, begin, end);
      }
    };
  });
}

// bind(node) returns a function that processes a range of images.
template <typename Bind>
Recipe over_images(const Problem& p, const Shape& image, Bind bind) {
  return over_ranges(p, p.machine.seconds(0, 1, p.traffic()), image[0], image[1] * image[2] * image[3], bind);
}

Recipe global(const Problem& p) {
  const bool grad = p.node.op.ends_with("_grad"), max = p.node.op.starts_with("global_max");
  const Shape& image = grad ? p.out_shape(0) : p.in_shape(0);
  const int64_t positions = image[1] * image[2], c = image[3];
  if (!grad && !max) {
    return over_images(p, image, [=](const BoundNode& node) {
      return [=, x = input<const float>(node, 0), y = output<float>(node, 0)](int64_t begin, int64_t end) {
        simd().global_avg_pool(x, y, positions, c, begin, end);
      };
    });
  }
  if (!grad) {
    return over_images(p, image, [=](const BoundNode& node) {
      return [=, x = input<const float>(node, 0), y = output<float>(node, 0), index = output<int32_t>(node, 1)](
                 int64_t begin, int64_t end) { simd().global_max_pool(x, y, index, positions, c, begin, end); };
    });
  }
  if (!max) {
    return over_images(p, image, [=](const BoundNode& node) {
      return [=, dy = input<const float>(node, 0), dx = output<float>(node, 0)](int64_t begin, int64_t end) {
        simd().global_avg_pool_grad(dy, dx, positions, c, begin, end);
      };
    });
  }
  return over_images(p, image, [=](const BoundNode& node) {
    return [=, dy = input<const float>(node, 0), index = input<const int32_t>(node, 1), dx = output<float>(node, 0)](
               int64_t begin, int64_t end) { simd().global_max_pool_grad(dy, index, dx, positions, c, begin, end); };
  });
}

}  // namespace

Result<Recipe> pooling_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  if (op.starts_with("global_")) return global(p);
  return op.ends_with("_grad") ? backward(p, op.starts_with("max")) : forward(p, op.starts_with("max"));
}

}  // namespace plimsoll::engine::cpu
