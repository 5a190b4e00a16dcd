// embedding and embedding_grad. Threads split the gradient by columns, so each element of the embedding matrix sums its
// contributions in the order of the ids, whatever the number of threads.
#include <algorithm>
#include <limits>

#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

Recipe gather(const Problem& p) {
  const int64_t rows = p.in_shape(0)[0], width = p.in_shape(0)[1], count = p.in_shape(1).elements();
  return own_recipe("embedding", 0, p.machine.seconds(0, 1, 2 * static_cast<double>(p.out(0).bytes())),
                    [=, threads = p.machine.threads](const BoundNode& node) {
                      return [=, table = input<const float>(node, 0), ids = input<const int32_t>(node, 1),
                              y = output<float>(node, 0)] {
                        parallel_ranges(threads, count, 1 + 16384 / width, [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            float* to = y + i * width;
                            if (ids[i] < 0 || ids[i] >= rows)
                              std::fill(to, to + width, std::numeric_limits<float>::quiet_NaN());
                            else
                              std::copy(table + ids[i] * width, table + (ids[i] + 1) * width, to);
                          }
                        });
                      };
                    });
}

Recipe scatter(const Problem& p) {
  const int64_t rows = p.out_shape(0)[0], width = p.out_shape(0)[1], count = p.in_shape(1).elements();
  return own_recipe("embedding_grad", 0, p.machine.seconds(0, 1, p.traffic()),
                    [=, threads = p.machine.threads](const BoundNode& node) {
                      return [=, dy = input<const float>(node, 0), ids = input<const int32_t>(node, 1),
                              dtable = output<float>(node, 0)] {
                        parallel_ranges(threads, width, 16, [&](int64_t begin, int64_t end) {
                          for (int64_t row = 0; row < rows; ++row)
                            std::fill(dtable + row * width + begin, dtable + row * width + end, 0.0F);
                          for (int64_t i = 0; i < count; ++i) {
                            if (ids[i] < 0 || ids[i] >= rows) continue;
                            for (int64_t c = begin; c < end; ++c) dtable[ids[i] * width + c] += dy[i * width + c];
                          }
                        });
                      };
                    });
}

}  // namespace

Result<Recipe> table_recipe(const Problem& p) {
  return p.node.op == "embedding" ? gather(p) : scatter(p);
}

}  // namespace plimsoll::engine::cpu
