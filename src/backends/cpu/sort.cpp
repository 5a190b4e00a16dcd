// Recipes for sort and top_k along the last axis. An element and its index are one 64-bit number whose order is that of
// the op, so a sort of plain numbers is stable and needs no further memory.
#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

// Orders floats as unsigned integers. NaNs are last in either direction.
uint32_t order_of(float value, bool descending) {
  if (std::isnan(value)) return UINT32_MAX;
  const auto bits = std::bit_cast<uint32_t>(value == 0.0F ? 0.0F : value);  // -0 and 0 are equal
  const uint32_t order = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
  return descending ? ~order : order;
}

}  // namespace

Result<Recipe> sort_recipe(const Problem& p) {
  const int64_t n = p.in_shape(0).back(), rows = p.in_shape(0).elements() / n, k = p.out_shape(0).back();
  const bool descending = p.node.op == "top_k" || p.attrs().flag("descending");
  const int threads = p.machine.threads;
  const double steps = static_cast<double>(p.in_shape(0).elements()) * (1 + std::log2(static_cast<double>(n)));
  return own_recipe(p.node.op, 8 * n * threads, p.machine.seconds(steps, 0.02, p.traffic()),
                    [=](const BoundNode& node) {
                      return [=, x = input<const float>(node, 0), values = output<float>(node, 0),
                              index = output<int32_t>(node, 1), workspace = static_cast<uint64_t*>(node.workspace)] {
                        parallel_items(rows * n < 4096 ? 1 : threads, rows, [&](int64_t row, int thread) {
                          uint64_t* keys = workspace + thread * n;
                          for (int64_t i = 0; i < n; ++i)
                            keys[i] = uint64_t{order_of(x[row * n + i], descending)} << 32 | static_cast<uint64_t>(i);
                          if (k < n) std::nth_element(keys, keys + k - 1, keys + n);
                          std::sort(keys, keys + k);
                          for (int64_t i = 0; i < k; ++i) {
                            const auto from = static_cast<int32_t>(keys[i] & UINT32_MAX);
                            index[row * k + i] = from;
                            values[row * k + i] = x[row * n + from];
                          }
                        });
                      };
                    });
}

}  // namespace plimsoll::engine::cpu
