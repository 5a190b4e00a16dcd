// Binds matmul and batch_matmul nodes: to cuBLASLt, or to our split-K kernel for few columns and long sums.
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/driver/launching.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/matmul/bind_cublaslt.h"
#include "backends/cuda/matmul/split_k.h"
#include "backends/cuda/matmul/split_k_launch.h"

namespace plimsoll::engine::cuda {
namespace {

Product product_of(const NodeView& node) {
  Product product;
  product.ta = node.attrs().flag("transpose_a");
  product.tb = node.attrs().flag("transpose_b");
  product.bias = node.inputs() == 3;
  product.relu = node.attrs().has("activation");
  product.dtype = node.in_dtype(0);
  product.result = node.out_dtype(0);
  const Shape &a = node.in_shape(0), &b = node.in_shape(1);
  const size_t rows = a.rank() - 2, columns = a.rank() - 1;
  product.m = a[product.ta ? columns : rows];
  product.k = a[product.ta ? rows : columns];
  product.n = b[product.tb ? rows : columns];
  product.count = a.rank() == 3 ? a[0] : 1;
  return product;
}

}  // namespace

BoundKernel bind_matmul(Context& context, const BoundNode& node) {
  const Product product = product_of(NodeView{node.graph, node.node});
  const ProductAddresses at{node.inputs[0], node.inputs[1], product.bias ? node.inputs[2] : nullptr, node.outputs[0]};
  const Workspace workspace = workspace_of(node);
  if (node.kernel != kSplitKKernel) return bind_product(context, product, at, workspace);
  const SplitKProduct split{product.m, product.n,    product.k, element_of(product.dtype),          at.a, at.b,
                            at.bias,   product.relu, at.y,      static_cast<float*>(workspace.data)};
  return launching(context, kSplitKKernel, [=, stream = context.stream] { launch_split_k(split, stream); });
}

BoundKernel bind_batch_matmul(Context& context, const BoundNode& node) {
  return bind_product(context, product_of(NodeView{node.graph, node.node}),
                      {node.inputs[0], node.inputs[1], nullptr, node.outputs[0]}, workspace_of(node));
}

}  // namespace plimsoll::engine::cuda
