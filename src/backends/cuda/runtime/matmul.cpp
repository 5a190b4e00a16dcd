// matmul nodes: cuBLASLt.
#include "backends/cuda/rules.h"
#include "backends/cuda/runtime/product.h"

namespace plimsoll::cuda {
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
  product.m = a[product.ta ? 1 : 0];
  product.k = a[product.ta ? 0 : 1];
  product.n = b[product.tb ? 0 : 1];
  return product;
}

}  // namespace

BoundKernel bind_matmul(Context& context, const BoundNode& node) {
  const Product product = product_of(NodeView{node.graph, node.node});
  const ProductAddresses at{node.inputs[0], node.inputs[1], product.bias ? node.inputs[2] : nullptr, node.outputs[0]};
  return bind_product(context, product, at, workspace_of(node));
}

}  // namespace plimsoll::cuda
