// matmul and batch_matmul by our own GEMM (gemm.h).
#include <algorithm>

#include "backends/cpu/matmul/gemm.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

namespace {

// The last two dimensions of a and b as one product.
Product product_of(const Problem& p) {
  const Shape &a = p.in_shape(0), &b = p.in_shape(1);
  const bool ta = p.attrs().flag("transpose_a"), tb = p.attrs().flag("transpose_b");
  const size_t rows = a.rank() - 2, columns = a.rank() - 1;
  Product product;
  product.m = ta ? a[columns] : a[rows];
  product.k = ta ? a[rows] : a[columns];
  product.n = tb ? b[rows] : b[columns];
  product.a_row = ta ? 1 : product.k;
  product.a_column = ta ? product.m : 1;
  product.b_row = tb ? 1 : product.n;
  product.b_column = tb ? product.k : 1;
  product.c_row = product.n;
  return product;
}

double seconds_of(const Problem& p, const Product& product, int64_t count) {
  const double flops = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                       static_cast<double>(product.k) * static_cast<double>(count);
  // n is padded to a multiple of the register block; the padding columns are wasted work.
  const double efficiency = 0.7 * std::min(1.0, static_cast<double>(product.n) / 16.0);
  return p.machine.seconds(flops, efficiency, p.traffic());
}

}  // namespace

Result<Recipe> matmul_recipe(const Problem& p) {
  Product product = product_of(p);
  product.relu = p.attrs().has("activation");
  const bool bias = p.inputs() == 3;
  const int threads = p.machine.threads;
  return own_recipe("gemm", parallel_workspace(product, threads), seconds_of(p, product, 1),
                    [=](const BoundNode& node) {
                      Product bound = product;
                      bound.a = input<const float>(node, 0);
                      bound.b = input<const float>(node, 1);
                      bound.bias = bias ? input<const float>(node, 2) : nullptr;
                      bound.c = output<float>(node, 0);
                      return [bound, threads, workspace = static_cast<float*>(node.workspace)] {
                        multiply_parallel(bound, threads, workspace);
                      };
                    });
}

// Many products run side by side, each on one thread; few run one after the other, each on all threads. Which of the
// two depends only on their number, so the result does not depend on the number of threads.
Result<Recipe> batch_matmul_recipe(const Problem& p) {
  constexpr int64_t kMany = 8;
  const Product product = product_of(p);
  const int64_t count = p.in_shape(0)[0];
  const bool many = count >= kMany;
  const int threads = p.machine.threads;
  const Bytes each = serial_workspace(product);
  return own_recipe(many ? "gemm:batch" : "gemm:each", many ? threads * each : parallel_workspace(product, threads),
                    seconds_of(p, product, count), [=](const BoundNode& node) {
                      return [=, a = input<const float>(node, 0), b = input<const float>(node, 1),
                              c = output<float>(node, 0), workspace = static_cast<float*>(node.workspace)] {
                        const auto matrix = [&](int64_t i) {
                          Product bound = product;
                          bound.a = a + i * product.m * product.k;
                          bound.b = b + i * product.k * product.n;
                          bound.c = c + i * product.m * product.n;
                          return bound;
                        };
                        if (!many) {
                          for (int64_t i = 0; i < count; ++i) multiply_parallel(matrix(i), threads, workspace);
                          return;
                        }
                        const bool small = count * product.m * product.n * product.k < 65536;
                        parallel_items(small ? 1 : threads, count, [&](int64_t i, int thread) {
                          multiply_serial(matrix(i), workspace + thread * (each / 4));
                        });
                      };
                    });
}

}  // namespace plimsoll::engine::cpu
