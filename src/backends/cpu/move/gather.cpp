// Recipes for reads and sums by index: gather, scatter_add, take_along, take_along_grad; and for iota and one_hot. Sums
// run in the order of the ids, whatever the number of threads: threads split the other dimensions.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "ops/strided.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr int64_t kGrain = 16384;  // elements

// What an id out of range reads: a NaN, or 0 in a tensor of integers.
uint64_t missing_of(DType dtype) {
  uint64_t bits = 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (is_floating(dtype)) std::memcpy(&bits, &nan, sizeof nan);
  return bits;
}

AroundAxis around(const Problem& p, const Shape& shape) {
  return {shape, static_cast<size_t>(p.attrs().integer("axis"))};
}

Recipe gather(const Problem& p) {
  const AroundAxis x = around(p, p.in_shape(0));
  const int64_t count = p.in_shape(1).elements();
  const uint64_t missing = missing_of(p.in_dtype(0));
  const int threads = p.machine.threads;
  const Bytes size = size_of(p.in_dtype(0));
  return own_recipe(
      "gather", 0, p.machine.seconds(0, 1, 2 * static_cast<double>(p.out(0).bytes())), [=](const BoundNode& node) {
        return [=, from = node.inputs[0], ids = input<const int32_t>(node, 1), to = node.outputs[0]] {
          with_element_of(size, [&](auto zero) {
            using T = decltype(zero);
            parallel_ranges(threads, x.outer * count, 1 + kGrain / x.inner, [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) {
                const int64_t id = ids[i % count];
                T* y = static_cast<T*>(to) + i * x.inner;
                const bool inside = id >= 0 && id < x.size;
                const T* strip = static_cast<const T*>(from) + (i / count * x.size + id) * x.inner;
                if (x.inner == 1)
                  *y = inside ? *strip : static_cast<T>(missing);
                else if (inside)
                  std::copy_n(strip, x.inner, y);
                else
                  std::fill_n(y, x.inner, static_cast<T>(missing));
              }
            });
          });
        };
      });
}

// Calls body(outer, first, last): parts of the elements around an axis, each with some of the inner elements.
template <typename Body>
void parallel_parts(int threads, int64_t outer, int64_t inner, int64_t work, const Body& body) {
  const int64_t blocks = outer >= 16 ? 1 : std::clamp<int64_t>(inner / 16, 1, 16);
  if (outer * inner * work < kGrain) threads = 1;
  parallel_ranges(threads, outer * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      body(i / blocks, inner * (i % blocks) / blocks, inner * (i % blocks + 1) / blocks);
  });
}

Recipe scatter(const Problem& p) {
  const AroundAxis y = around(p, p.out_shape(0));
  const int64_t count = p.in_shape(1).elements();
  const int threads = p.machine.threads;
  return own_recipe("scatter_add", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), ids = input<const int32_t>(node, 1), to = output<float>(node, 0)] {
      parallel_parts(threads, y.outer, y.inner, count + y.size, [&](int64_t outer, int64_t first, int64_t last) {
        float* result = to + outer * y.size * y.inner;
        for (int64_t k = 0; k < y.size; ++k) std::fill(result + k * y.inner + first, result + k * y.inner + last, 0.0F);
        for (int64_t i = 0; i < count; ++i) {
          if (ids[i] < 0 || ids[i] >= y.size) continue;
          const float* update = from + (outer * count + i) * y.inner;
          float* sum = result + ids[i] * y.inner;
          for (int64_t c = first; c < last; ++c) sum[c] += update[c];
        }
      });
    };
  });
}

Recipe take(const Problem& p) {
  const AroundAxis x = around(p, p.in_shape(0)), y = around(p, p.out_shape(0));
  const uint64_t missing = missing_of(p.in_dtype(0));
  const int threads = p.machine.threads;
  const Bytes size = size_of(p.in_dtype(0));
  return own_recipe("take_along", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = node.inputs[0], ids = input<const int32_t>(node, 1), to = node.outputs[0]] {
      with_element_of(size, [&](auto zero) {
        using T = decltype(zero);
        parallel_ranges(threads, y.outer * y.size, 1 + kGrain / y.inner, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const T* source = static_cast<const T*>(from) + row / y.size * x.size * x.inner;
            T* target = static_cast<T*>(to) + row * y.inner;
            for (int64_t c = 0; c < y.inner; ++c) {
              const int64_t id = ids[row * y.inner + c];
              target[c] = id >= 0 && id < x.size ? source[id * x.inner + c] : static_cast<T>(missing);
            }
          }
        });
      });
    };
  });
}

Recipe take_grad(const Problem& p) {
  const AroundAxis dy = around(p, p.in_shape(0)), dx = around(p, p.out_shape(0));
  const int threads = p.machine.threads;
  return own_recipe("take_along_grad", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), ids = input<const int32_t>(node, 1), to = output<float>(node, 0)] {
      parallel_parts(threads, dx.outer, dx.inner, dy.size + dx.size, [&](int64_t outer, int64_t first, int64_t last) {
        float* result = to + outer * dx.size * dx.inner;
        for (int64_t k = 0; k < dx.size; ++k)
          std::fill(result + k * dx.inner + first, result + k * dx.inner + last, 0.0F);
        for (int64_t k = 0; k < dy.size; ++k) {
          const int64_t row = (outer * dy.size + k) * dy.inner;
          for (int64_t c = first; c < last; ++c) {
            const int64_t id = ids[row + c];
            if (id >= 0 && id < dx.size) result[id * dx.inner + c] += from[row + c];
          }
        }
      });
    };
  });
}

template <typename T>
Recipe iota(const Problem& p) {
  const AroundAxis y = around(p, p.out_shape(0));
  const int threads = p.machine.threads;
  return own_recipe("iota", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, to = output<T>(node, 0)] {
      parallel_ranges(threads, y.outer * y.size, 1 + kGrain / y.inner, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) std::fill_n(to + i * y.inner, y.inner, static_cast<T>(i % y.size));
      });
    };
  });
}

Recipe one_hot(const Problem& p) {
  const int64_t count = p.in_shape(0).elements(), depth = p.attrs().integer("depth");
  const int threads = p.machine.threads;
  return own_recipe("one_hot", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, ids = input<const int32_t>(node, 0), to = output<float>(node, 0)] {
      parallel_ranges(threads, count, 1 + kGrain / depth, [&](int64_t begin, int64_t end) {
        std::fill(to + begin * depth, to + end * depth, 0.0F);
        for (int64_t i = begin; i < end; ++i)
          if (ids[i] >= 0 && ids[i] < depth) to[i * depth + ids[i]] = 1.0F;
      });
    };
  });
}

}  // namespace

Result<Recipe> index_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  if (op == "gather") return gather(p);
  if (op == "scatter_add") return scatter(p);
  if (op == "take_along") return take(p);
  if (op == "take_along_grad") return take_grad(p);
  if (op == "one_hot") return one_hot(p);
  return p.out_dtype(0) == DType::kInt32 ? iota<int32_t>(p) : iota<float>(p);
}

}  // namespace plimsoll::engine::cpu
