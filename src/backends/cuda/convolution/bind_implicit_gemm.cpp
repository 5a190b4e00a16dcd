#include "backends/cuda/convolution/bind_implicit_gemm.h"

#include <fmt/format.h>

#include "backends/cuda/convolution/bind_shapes.h"
#include "backends/cuda/convolution/im2col.h"
#include "backends/cuda/convolution/im2col_launch.h"
#include "backends/cuda/convolution/implicit_gemm_launch.h"
#include "backends/cuda/convolution/pooled.h"
#include "backends/cuda/convolution/pooled_launch.h"
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/driver/launching.h"
#include "backends/cuda/workspace.h"

namespace plimsoll::engine::cuda {
namespace {

// The number of partial weight gradients (`numbers` elements per output channel): `wanted`, or fewer if the workspace
// is smaller.
Result<int64_t> parts_within(const BoundNode& node, int64_t wanted, int64_t outputs, int64_t numbers) {
  const int64_t parts = std::min(wanted, workspace_of(node).bytes / (outputs * numbers * 4));
  if (parts == 0)
    return fail(ErrorCode::kUnsupported, node.node.op + ": the workspace is too small for one partial weight gradient");
  return parts;
}

// A family of kernels that read the image without im2col.
struct FewChannelKernels {
  const char* name;
  decltype(&implicit_gemm_takes) takes;
  decltype(&launch_implicit_gemm_forward) forward;
  decltype(&implicit_gemm_parts) parts;
  decltype(&launch_implicit_gemm_weight_grad) weight_grad;
};
constexpr FewChannelKernels kImplicitGemm{"implicit-gemm", implicit_gemm_takes, launch_implicit_gemm_forward,
                                          implicit_gemm_parts, launch_implicit_gemm_weight_grad};
constexpr FewChannelKernels kPaired{"paired", paired_takes, launch_paired_forward, paired_parts,
                                    launch_paired_weight_grad};

BoundKernel bind_few_channel_kernels(Context& context, const BoundNode& node, const Convolution& c,
                                     const FewChannelKernels& kernels) {
  const std::string& op = node.node.op;
  const bool weight_grad = c.pass == ConvolutionPass::kWeightGrad;
  const ImplicitGemmShape shape = implicit_gemm_shape(c);
  const Element element = element_of(c.dtype);
  if (!on_matrix_units(context.card, c) || !kernels.takes(shape, element, weight_grad))
    return fail(ErrorCode::kUnsupported, fmt::format("{}: no {} kernel for this card and shape", op, kernels.name));
  const std::string name = fmt::format("{} {}", kernels.name, op);
  const int multiprocessors = context.card.multiprocessors;
  const cudaStream_t stream = context.stream;
  if (!weight_grad)
    return launching(context, name,
                     [=, forward = kernels.forward, x = node.inputs[0], w = node.inputs[1], y = node.outputs[0],
                      bias = c.bias ? node.inputs[2] : nullptr,
                      relu = c.relu] { forward(shape, element, x, w, bias, relu, y, multiprocessors, stream); });
  const int64_t width = plan_im2col(c, true).width;
  PLIMSOLL_ASSIGN(const int64_t parts, parts_within(node, kernels.parts(shape, multiprocessors), c.o, width));
  return launching(
      context, name,
      [=, add_up = kernels.weight_grad, x = node.inputs[0], dy = node.inputs[1], dw = node.outputs[0],
       db = c.bias ? node.outputs[1] : nullptr, outputs = c.o, sums = static_cast<float*>(workspace_of(node).data)] {
        add_up(shape, element, x, dy, db != nullptr, static_cast<int>(width), parts, sums, stream);
        launch_sum_parts(parts, outputs, shape.numbers, width, sums, element, dw, db, stream);
      });
}

}  // namespace

BoundKernel bind_implicit_gemm(Context& context, const BoundNode& node, const Convolution& c) {
  return bind_few_channel_kernels(context, node, c, kImplicitGemm);
}

BoundKernel bind_paired(Context& context, const BoundNode& node, const Convolution& c) {
  return bind_few_channel_kernels(context, node, c, kPaired);
}

bool takes_per_tap(const Context& context, const Convolution& c) {
  return c.pass == ConvolutionPass::kWeightGrad && !c.is_volume() && c.groups == 1 &&
         on_matrix_units(context.card, c) && per_tap_takes(implicit_gemm_shape(c), element_of(c.dtype));
}

BoundKernel bind_per_tap(Context& context, const BoundNode& node, const Convolution& c) {
  if (!takes_per_tap(context, c))
    return fail(ErrorCode::kUnsupported, node.node.op + ": no per-tap kernel for this card and shape");
  const ImplicitGemmShape shape = implicit_gemm_shape(c);
  const Element element = element_of(c.dtype);
  PLIMSOLL_ASSIGN(const int64_t parts,
                  parts_within(node, per_tap_parts(shape, context.card.multiprocessors), c.o, shape.numbers));
  return launching(context, "per-tap " + node.node.op,
                   [=, x = node.inputs[0], dy = node.inputs[1], dw = node.outputs[0], outputs = c.o,
                    sums = static_cast<float*>(workspace_of(node).data), stream = context.stream] {
                     launch_per_tap_weight_grad(shape, element, x, dy, parts, sums, stream);
                     launch_sum_parts(parts, outputs, shape.numbers, shape.numbers, sums, element, dw, nullptr, stream);
                   });
}

BoundKernel bind_pooled_convolution(Context& context, const BoundNode& node) {
  const std::string& op = node.node.op;
  const Convolution c(view_of(node));
  const bool weight_grad = op == "conv2d_pooled_weight_grad";
  const PooledPlan plan = plan_pooled(context.card, c, node.node.attrs.list("pool"), weight_grad);
  if (!plan.possible || node.kernel != kPooledKernel || workspace_of(node).bytes < plan.workspace)
    return fail(ErrorCode::kBadPlan, fmt::format("{}: there is no kernel '{}' on this GPU", op, node.kernel));
  const PooledShape shape = pooled_shape(c, plan);
  const Element element = element_of(c.dtype);
  const cudaStream_t stream = context.stream;
  if (!weight_grad)
    return launching(
        context, op,
        [=, x = node.inputs[0], w = node.inputs[1], bias = c.bias ? node.inputs[2] : nullptr, relu = c.relu,
         y = node.outputs[0], index = output<uint8_t>(node, 1), multiprocessors = context.card.multiprocessors] {
          launch_pooled_forward(shape, element, x, w, bias, relu, y, index, multiprocessors, stream);
        });
  return launching(
      context, op,
      [=, x = node.inputs[0], dy = node.inputs[1], index = input<const uint8_t>(node, 2), dw = node.outputs[0],
       db = c.bias ? node.outputs[1] : nullptr, outputs = c.o, sums = static_cast<float*>(workspace_of(node).data)] {
        launch_pooled_weight_grad(shape, element, x, dy, index, db != nullptr, static_cast<int>(plan.width), plan.parts,
                                  sums, stream);
        launch_sum_parts(plan.parts, outputs, shape.conv.numbers, plan.width, sums, element, dw, db, stream);
      });
}

}  // namespace plimsoll::engine::cuda
