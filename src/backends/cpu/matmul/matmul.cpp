// matmul by our own GEMM (gemm.h).
#include "backends/cpu/matmul/gemm.h"
#include "backends/cpu/recipe.h"

namespace plimsoll::engine::cpu {

Result<Recipe> matmul_recipe(const Problem& p) {
  const Shape &a = p.in_shape(0), &b = p.in_shape(1);
  const bool ta = p.attrs().flag("transpose_a"), tb = p.attrs().flag("transpose_b");
  Product product;
  product.m = ta ? a[1] : a[0];
  product.k = ta ? a[0] : a[1];
  product.n = tb ? b[0] : b[1];
  product.a_row = ta ? 1 : product.k;
  product.a_column = ta ? product.m : 1;
  product.b_row = tb ? 1 : product.n;
  product.b_column = tb ? product.k : 1;
  product.c_row = product.n;
  product.relu = p.attrs().has("activation");
  const bool bias = p.inputs() == 3;
  const double flops =
      2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
  // n is padded to a multiple of the register block; the padding columns are wasted work.
  const double efficiency = 0.7 * std::min(1.0, static_cast<double>(product.n) / 16.0);
  const int threads = p.machine.threads;
  return own_recipe("gemm", parallel_workspace(product, threads), p.machine.seconds(flops, efficiency, p.traffic()),
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

}  // namespace plimsoll::engine::cpu
