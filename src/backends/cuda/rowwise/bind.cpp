// Binds row-wise nodes to launches.
#include "backends/cuda/rowwise/launch.h"

#include "backends/cuda/driver/binding.h"
#include "backends/cuda/reduce/launch.h"

namespace plimsoll::engine::cuda {

namespace {

Rows rows_of_shape(const Shape& shape) {
  return {shape.elements() / shape.back(), static_cast<int>(shape.back())};
}

Target target_of(const BoundNode& node, size_t i) {
  const Attrs& attrs = node.node.attrs;
  const auto smoothing = static_cast<float>(attrs.real_or("label_smoothing", 0));
  if (attrs.flag("sparse")) return {input<const int32_t>(node, i), nullptr, smoothing};
  return {nullptr, input<const float>(node, i), smoothing};
}

}  // namespace

BoundKernel bind_layer_norm(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const cudaStream_t stream = context.stream;
  const Element element = element_of(view.in_dtype(0));
  const Rows g = rows_of_shape(view.in_shape(0));
  const bool scale = view.attrs().flag("scale"), center = view.attrs().flag("center");
  const bool rms = view.attrs().flag("rms");
  if (op == "layer_norm") {
    const float* gamma = scale ? input<const float>(node, 1) : nullptr;
    const float* beta = center ? input<const float>(node, scale ? 2 : 1) : nullptr;
    const auto epsilon = static_cast<float>(view.attrs().real("epsilon"));
    return make_kernel(
        [=, x = input(node, 0), y = output(node, 0), mean = output<float>(node, 1), rstd = output<float>(node, 2)] {
          launch_layer_norm(g, element, epsilon, rms, x, gamma, beta, y, mean, rstd, stream);
        });
  }
  const void *dy = input(node, 0), *x = input(node, 1);
  const auto *mean = input<const float>(node, 2), *rstd = input<const float>(node, 3);
  if (op == "layer_norm_input_grad") {
    const float* gamma = scale ? input<const float>(node, 4) : nullptr;
    return make_kernel([=, dx = output(node, 0)] {
      launch_layer_norm_input_grad(g, element, rms, dy, x, mean, rstd, gamma, dx, stream);
    });
  }
  const ColumnSums plan = plan_column_sums(1, g.rows, g.columns, size_of(view.in_dtype(0)));
  const SumSpace space{node.workspace, context.counters};
  return make_kernel([=, dgamma = output<float>(node, 0), dbeta = output<float>(node, 1)] {
    launch_layer_norm_param_grad(plan, element, dy, x, mean, rstd, dgamma, dbeta, space, stream);
  });
}

BoundKernel bind_softmax(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const cudaStream_t stream = context.stream;
  const Element element = element_of(view.in_dtype(0));
  const Rows g = rows_of_shape(view.in_shape(0));
  const void* first = input(node, 0);
  void* to = output(node, 0);
  if (node.node.op == "softmax") return make_kernel([=] { launch_softmax(g, element, first, to, stream); });
  return make_kernel([=, y = input(node, 1)] { launch_softmax_grad(g, element, first, y, to, stream); });
}

BoundKernel bind_cross_entropy(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& op = node.node.op;
  const bool logits = op.starts_with("softmax_"), grad = op.ends_with("_grad");
  const size_t x_at = grad ? 1 : 0;
  const cudaStream_t stream = context.stream;
  const Element element = element_of(view.in_dtype(x_at));
  const Rows g = rows_of_shape(view.in_shape(x_at));
  const Target target = target_of(node, x_at + 1);
  const void* x = input(node, x_at);
  if (!grad) {
    auto* loss = output<float>(node, 0);
    if (logits) return make_kernel([=] { launch_softmax_cross_entropy(g, element, x, target, loss, stream); });
    return make_kernel([=] { launch_cross_entropy(g, element, x, target, loss, stream); });
  }
  const auto* dloss = input<const float>(node, 0);
  void* dx = output(node, 0);
  if (logits) return make_kernel([=] { launch_softmax_cross_entropy_grad(g, element, dloss, x, target, dx, stream); });
  return make_kernel([=] { launch_cross_entropy_grad(g, element, dloss, x, target, dx, stream); });
}

namespace {

PointLoss point_loss_of(const NodeView& view) {
  if (view.node.op.starts_with("squared")) return PointLoss::kSquared;
  if (view.node.op.starts_with("absolute")) return PointLoss::kAbsolute;
  return view.attrs().flag("from_logits") ? PointLoss::kBinaryFromLogits : PointLoss::kBinaryFromProbabilities;
}

}  // namespace

BoundKernel bind_point_loss(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const bool grad = node.node.op.ends_with("_grad");
  const size_t x_at = grad ? 1 : 0;
  const cudaStream_t stream = context.stream;
  const PointLoss kind = point_loss_of(view);
  const auto smoothing = static_cast<float>(view.attrs().real_or("label_smoothing", 0));
  const Element element = element_of(view.in_dtype(x_at));
  const Rows g = rows_of_shape(view.in_shape(x_at));
  const void* x = input(node, x_at);
  const auto* target = input<const float>(node, x_at + 1);
  if (!grad)
    return make_kernel([=, loss = output<float>(node, 0)] {
      launch_point_loss(g, element, kind, smoothing, x, target, loss, stream);
    });
  return make_kernel([=, dloss = input<const float>(node, 0), dx = output(node, 0)] {
    launch_point_loss_grad(g, element, kind, smoothing, dloss, x, target, dx, stream);
  });
}

BoundKernel bind_match(Context& context, const BoundNode& node) {
  const NodeView view = view_of(node);
  const std::string& text = view.attrs().text("kind");
  const MatchKind kind = text == "sparse"        ? MatchKind::kSparse
                         : text == "categorical" ? MatchKind::kCategorical
                                                 : MatchKind::kBinary;
  const auto threshold = static_cast<float>(view.attrs().real_or("threshold", 0));
  const bool sparse = kind == MatchKind::kSparse;
  const int32_t* labels = sparse ? input<const int32_t>(node, 1) : nullptr;
  const float* target = sparse ? nullptr : input<const float>(node, 1);
  return make_kernel([=, g = rows_of_shape(view.in_shape(0)), element = element_of(view.in_dtype(0)),
                      x = input(node, 0), result = output<float>(node, 0), stream = context.stream] {
    launch_match(g, element, kind, threshold, x, labels, target, result, stream);
  });
}

}  // namespace plimsoll::engine::cuda
