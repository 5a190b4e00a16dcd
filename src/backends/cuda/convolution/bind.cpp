// Binds convolutions and their gradients: to a cuDNN engine that fits the workspace, to im2col, implicit GEMM or
// space-to-depth for few input channels if that is faster, and to direct convolution for the rest.
//
// Activations are N(D)HWC and weights [O,(kd,)kh,kw,C/g] ("ohwi"): for cuDNN these are NC(D)HW tensors with
// channels-last strides. Bias and relu are part of cuDNN's graph if that is faster than a kernel of their own.
#include "backends/cuda/convolution/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "backends/cuda/convolution/bind_im2col.h"
#include "backends/cuda/convolution/bind_implicit_gemm.h"
#include "backends/cuda/convolution/bind_shapes.h"
#include "backends/cuda/convolution/depthwise_launch.h"
#include "backends/cuda/convolution/im2col.h"
#include "backends/cuda/convolution/launch.h"
#include "backends/cuda/convolution/space_to_depth.h"
#include "backends/cuda/convolution/space_to_depth_launch.h"
#include "backends/cuda/driver/binding.h"
#include "backends/cuda/driver/cudnn_graph.h"
#include "backends/cuda/driver/engine_choices.h"
#include "backends/cuda/driver/launching.h"
#include "backends/cuda/driver/stopwatch.h"

namespace plimsoll::engine::cuda {

namespace fe = cudnn_frontend;

namespace {

enum : int64_t { kX = 1, kW, kY, kBias };  // named after the forward pass, whichever op is computed

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

using Sizes = std::vector<int64_t>;

// The sizes of the dimensions that the library is told: without depth for images.
Sizes spatial(const Convolution& c, int64_t depth, int64_t height, int64_t width) {
  return c.is_volume() ? Sizes{depth, height, width} : Sizes{height, width};
}

// Dimensions in cuDNN's order [N,C,sizes...]; the memory order is [N,sizes...,C].
fe::graph::Tensor_attributes channels_last(const char* name, int64_t uid, int64_t n, int64_t channels,
                                           const Sizes& sizes) {
  Sizes dims = {n, channels}, strides(sizes.size() + 2, 1);
  dims.insert(dims.end(), sizes.begin(), sizes.end());
  int64_t stride = channels;
  for (size_t d = dims.size(); d-- > 2; stride *= dims[d]) strides[d] = stride;
  strides[0] = stride;
  return fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(dims).set_stride(strides);
}

fe::graph::Tensor_attributes image(const Convolution& c) {
  return channels_last("x", kX, c.n, c.c, spatial(c, c.d, c.h, c.w));
}
fe::graph::Tensor_attributes weights(const Convolution& c) {
  return channels_last("w", kW, c.o, c.group_channels(), spatial(c, c.kd, c.kh, c.kw));
}
fe::graph::Tensor_attributes result(const Convolution& c) {
  return channels_last("y", kY, c.n, c.o, spatial(c, c.od, c.oh, c.ow));
}

void make_output(const Tensor& tensor, const fe::graph::Tensor_attributes& like, const Convolution& c) {
  tensor->set_output(true)
      .set_uid(like.get_uid())
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_data_type(dnn_type(c.dtype));
}

template <typename Attributes>
Attributes geometry(const Convolution& c) {
  return Attributes()
      .set_pre_padding(spatial(c, c.front, c.top, c.left))
      .set_post_padding(spatial(c, c.back, c.bottom, c.right))
      .set_stride(spatial(c, c.sd, c.sh, c.sw))
      .set_dilation(spatial(c, c.dd, c.dh, c.dw));
}

void set_types(fe::graph::Graph& graph, const Convolution& c) {
  graph.set_io_data_type(dnn_type(c.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

void build_forward(fe::graph::Graph& graph, const Convolution& c, bool epilogue) {
  set_types(graph, c);
  Tensor y =
      graph.conv_fprop(graph.tensor(image(c)), graph.tensor(weights(c)), geometry<fe::graph::Conv_fprop_attributes>(c));
  if (epilogue && c.bias) {
    const Tensor bias = graph.tensor(channels_last("bias", kBias, 1, c.o, spatial(c, 1, 1, 1)));
    y = graph.pointwise(y, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
  }
  if (epilogue && c.relu)
    y = graph.pointwise(y, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  make_output(y, result(c), c);
}

void build_input_grad(fe::graph::Graph& graph, const Convolution& c) {
  set_types(graph, c);
  const Tensor dx = graph.conv_dgrad(graph.tensor(result(c)), graph.tensor(weights(c)),
                                     geometry<fe::graph::Conv_dgrad_attributes>(c));
  make_output(dx, image(c), c);
}

void build_weight_grad(fe::graph::Graph& graph, const Convolution& c) {
  set_types(graph, c);
  const Tensor dw =
      graph.conv_wgrad(graph.tensor(result(c)), graph.tensor(image(c)), geometry<fe::graph::Conv_wgrad_attributes>(c));
  make_output(dw, weights(c), c);
}

std::string text_of(const std::string& op, const Convolution& c) {
  const std::string plane = fmt::format("{} {} x{},{},{},{} y{},{},{} k{},{} s{},{} d{},{} p{},{},{},{} g{}", op,
                                        name_of(c.dtype), c.n, c.h, c.w, c.c, c.oh, c.ow, c.o, c.kh, c.kw, c.sh, c.sw,
                                        c.dh, c.dw, c.top, c.bottom, c.left, c.right, c.groups);
  if (!c.is_volume()) return plane;
  return fmt::format("{} depth x{} y{} k{} s{} d{} p{},{}", plane, c.d, c.od, c.kd, c.sd, c.dd, c.front, c.back);
}

DnnProblem problem_of(const Context& context, const std::string& op, const Convolution& c, bool epilogue) {
  DnnProblem problem;
  problem.text = text_of(op, c) + (epilogue && c.bias ? " bias" : "") + (epilogue && c.relu ? " relu" : "");
  problem.full_f32 = c.dtype == DType::kFloat32 && !context.card.has_tf32();
  // The fastest engines for gradients add partial sums in memory in the order in which blocks finish.
  problem.any_order = c.pass != ConvolutionPass::kForward;
  problem.build = [c, epilogue](fe::graph::Graph& graph) {
    if (c.pass == ConvolutionPass::kForward) return build_forward(graph, c, epilogue);
    return c.pass == ConvolutionPass::kInputGrad ? build_input_grad(graph, c) : build_weight_grad(graph, c);
  };
  return problem;
}

// Depthwise kernels where they take the shape (their weights are row-major), else one thread per element.
std::unique_ptr<Kernel> bind_direct(Context& context, const BoundNode& node, const Convolution& c) {
  const DirectConvolution d = direct_shape(c, node.kernel != kDirectKernel);
  const bool depthwise = node.kernel == kDirectKernel && has_depthwise_kernel(c);
  const std::string& op = node.node.op;
  void *const a = node.inputs[0], *const b = node.inputs[1], *const out = node.outputs[0];
  const cudaStream_t stream = context.stream;
  if (c.pass == ConvolutionPass::kForward) {
    void* const bias = c.bias ? node.inputs[2] : nullptr;
    const auto run = depthwise ? depthwise_forward : direct_forward;
    return launching(context, text_of(op, c), [=] { run(stream, c.dtype, d, a, b, bias, c.relu, out); });
  }
  if (c.pass == ConvolutionPass::kInputGrad) {
    const auto run = depthwise ? depthwise_input_grad : direct_input_grad;
    return launching(context, text_of(op, c), [=] { run(stream, c.dtype, d, a, b, out); });
  }
  const Workspace workspace = workspace_of(node);
  const int64_t parts = sum_parts_within(c.output_pixels(), c.weight_elements(), workspace.bytes);
  const auto run = depthwise ? depthwise_weight_grad : direct_weight_grad;
  return launching(context, text_of(op, c), [=, sums = static_cast<float*>(workspace.data)] {
    run(stream, c.dtype, d, a, b, out, sums, parts);
  });
}

std::vector<DnnTensor> tensors_of(const BoundNode& node, const Convolution& c) {
  void *const a = node.inputs[0], *const b = node.inputs[1], *const out = node.outputs[0];
  if (c.pass == ConvolutionPass::kInputGrad) return {{kY, a}, {kW, b}, {kX, out}};
  if (c.pass == ConvolutionPass::kWeightGrad) return {{kX, a}, {kY, b}, {kW, out}};
  return {{kX, a}, {kW, b}, {kY, out}};
}

std::unique_ptr<Kernel> bind_epilogue(Context& context, const BoundNode& node, const Convolution& c) {
  void *const y = node.outputs[0], *const bias = c.bias ? node.inputs[2] : nullptr;
  return launching(context, "bias_relu", [=, stream = context.stream] {
    bias_relu(stream, c.dtype, y, c.output_pixels(), c.o, bias, c.relu);
  });
}

double seconds_of(Context& context, Kernel& kernel) {
  return Stopwatch(context.stream).seconds([&] {
    kernel.run();
    return true;
  });
}

// Convolution, bias and relu: in one engine or in two kernels, whichever is faster; the choice is remembered like an
// engine. In half precision two kernels would round twice if there is a bias, so one engine is used if there is any.
BoundKernel bind_with_epilogue(Context& context, const BoundNode& node, const Convolution& c) {
  const Workspace workspace = workspace_of(node);
  auto plain_tensors = tensors_of(node, c), fused_tensors = plain_tensors;
  if (c.bias) fused_tensors.push_back({kBias, node.inputs[2]});
  const std::string& op = node.node.op;
  const DnnProblem plain = problem_of(context, op, c, false), fused = problem_of(context, op, c, true);
  const std::string key = choice_key(context, fmt::format("{} ws{} passes", fused.text, workspace.bytes));
  const auto one_pass = [&](const ChosenPlan& chosen) {
    return make_dnn_kernel(context, chosen.plan, fused_tensors, workspace);
  };
  const auto two_passes = [&](const ChosenPlan& chosen) -> BoundKernel {
    PLIMSOLL_ASSIGN(auto first, make_dnn_kernel(context, chosen.plan, plain_tensors, workspace));
    return std::make_unique<Sequence>(std::move(first), bind_epilogue(context, node, c));
  };
  const auto known = remembered_choice(key);
  const bool rounds_twice = is_half(c.dtype) && c.bias;
  const auto whole =
      known == "2" ? tl::make_unexpected(Error{}) : choose_plan(context, fused, fused_tensors, workspace);
  if (whole && (known == "1" || rounds_twice)) return one_pass(*whole);
  const auto part = choose_plan(context, plain, plain_tensors, workspace);
  if (!whole && !part) return tl::make_unexpected(part.error());
  if (!part) return one_pass(*whole);
  if (!whole) {
    if (!known) remember_choice(key, "2");
    return two_passes(*part);
  }
  PLIMSOLL_ASSIGN(auto one, one_pass(*whole));
  PLIMSOLL_ASSIGN(auto two, two_passes(*part));
  const bool fused_wins = seconds_of(context, *one) <= seconds_of(context, *two);
  remember_choice(key, fused_wins ? "1" : "2");
  return fused_wins ? std::move(one) : std::move(two);
}

BoundKernel bind_library(Context& context, const BoundNode& node, const Convolution& c) {
  if (c.pass == ConvolutionPass::kForward && (c.bias || c.relu)) return bind_with_epilogue(context, node, c);
  const auto tensors = tensors_of(node, c);
  const Workspace workspace = workspace_of(node);
  PLIMSOLL_ASSIGN(const ChosenPlan chosen,
                  choose_plan(context, problem_of(context, node.node.op, c, false), tensors, workspace));
  return make_dnn_kernel(context, chosen.plan, tensors, workspace);
}

// The direct convolution indexes with 32 bits, as cuDNN in effect does.
bool fits_int(const Convolution& c) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return c.input_pixels() <= kMost && c.output_pixels() <= kMost && c.c <= kMost && c.o <= kMost;
}

// Adds a sum of dy after a weight gradient kernel that does not compute the bias gradient itself.
std::unique_ptr<Kernel> with_bias_gradient(Context& context, const BoundNode& node, const Convolution& c,
                                           std::unique_ptr<Kernel> kernel) {
  if (c.pass != ConvolutionPass::kWeightGrad || !c.bias) return kernel;
  const Workspace workspace = workspace_of(node);
  const int64_t parts = sum_parts_within(c.output_pixels(), c.o, workspace.bytes);
  auto sum = launching(context, "channel_sum",
                       [=, stream = context.stream, dy = node.inputs[1], db = node.outputs[1],
                        sums = static_cast<float*>(workspace.data)] {
                         channel_sum(stream, c.dtype, dy, c.output_pixels(), c.o, db, sums, parts);
                       });
  return std::make_unique<Sequence>(std::move(kernel), std::move(sum));
}

// cuDNN on the space-to-depth image (space_to_depth.h), which is written to the workspace.
BoundKernel bind_space_to_depth(Context& context, const BoundNode& node, const Convolution& c) {
  const std::string& op = node.node.op;
  const SpaceToDepthPlan plan = plan_space_to_depth(c);
  const Workspace workspace = workspace_of(node);
  if (!plan.possible || workspace.bytes < plan.workspace)
    return fail(ErrorCode::kUnsupported, text_of(op, c) + ": space-to-depth does not support this shape or workspace");
  auto* const space = static_cast<std::byte*>(workspace.data);
  std::byte *const image_at = space + plan.image, *const weights_at = space + plan.weights;
  const bool forward = c.pass == ConvolutionPass::kForward;
  const SpaceToDepthShape shape = space_to_depth_shape(c, plan);
  Convolution deep = c;
  deep.h = plan.h, deep.w = plan.w, deep.c = plan.channels, deep.kh = plan.kh, deep.kw = plan.kw;
  deep.sh = deep.sw = 1;
  deep.top = deep.bottom = deep.left = deep.right = 0;
  std::vector<void*> inputs(node.inputs.begin(), node.inputs.end()), outputs(node.outputs.begin(), node.outputs.end());
  inputs[0] = image_at;
  (forward ? inputs[1] : outputs[0]) = weights_at;
  const BoundNode inner{
      node.graph, node.node, node.kernel, inputs, outputs, space + plan.library, workspace.bytes - plan.library};
  std::vector<std::unique_ptr<Kernel>> kernels;
  const auto launch = [&](auto f) { kernels.push_back(launching(context, "space-to-depth " + op, std::move(f))); };
  const Element element = element_of(c.dtype);
  const cudaStream_t stream = context.stream;
  launch([=, x = node.inputs[0]] { launch_space_to_depth(shape, element, x, image_at, stream); });
  if (forward)
    launch([=, w = node.inputs[1]] { launch_space_to_depth_weights(shape, element, w, weights_at, stream); });
  PLIMSOLL_ASSIGN(auto library, bind_library(context, inner, deep));
  kernels.push_back(std::move(library));
  if (!forward)
    launch([=, dw = node.outputs[0]] { launch_depth_to_space_weights(shape, element, weights_at, dw, stream); });
  return with_bias_gradient(context, node, c, std::make_unique<Sequence>(std::move(kernels)));
}

BoundKernel bind_as_it_is(Context& context, const BoundNode& node, const Convolution& c) {
  if (!c.padded_evenly()) return fail(ErrorCode::kUnsupported, "cuDNN is not used with asymmetric padding");
  PLIMSOLL_ASSIGN(auto kernel, bind_library(context, node, c));
  return with_bias_gradient(context, node, c, std::move(kernel));
}

using Ways = std::vector<std::pair<const char*, decltype(&bind_as_it_is)>>;

// Binds the algorithm that a test asks for (GpuOptions::way), or the fastest, which is remembered. Returns kUnsupported
// if no algorithm works.
BoundKernel bind_fastest(Context& context, const BoundNode& node, const Convolution& c, const char* kind,
                         const Ways& ways) {
  if (!context.way.empty()) {
    const auto asked =
        std::find_if(ways.begin(), ways.end(), [&](const auto& way) { return context.way == way.first; });
    BoundKernel kernel = fail(ErrorCode::kUnsupported, "unknown convolution algorithm");
    if (asked != ways.end()) kernel = asked->second(context, node, c);
    if (kernel) return kernel;
    return fail(ErrorCode::kUsage,
                fmt::format("{} cannot run with algorithm {}", text_of(node.node.op, c), context.way));
  }
  const std::string key = choice_key(
      context, fmt::format("{}{}{}{} ws{} {}", text_of(node.node.op, c), c.bias ? " bias" : "", c.relu ? " relu" : "",
                           context.card.has_tf32() ? " tf32" : "", workspace_of(node).bytes, kind));
  const auto known = remembered_choice(key);
  for (const auto& [name, bind] : ways)
    if (known == name)
      if (BoundKernel kernel = bind(context, node, c)) return kernel;
  BoundKernel best = fail(ErrorCode::kUnsupported, text_of(node.node.op, c) + " has no kernel");
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, bind] : ways) {
    BoundKernel kernel = bind(context, node, c);
    if (!kernel) continue;
    const double seconds = seconds_of(context, **kernel);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(kernel);
    remember_choice(key, name);
  }
  return best;
}

// For few input channels, including the bias gradient.
BoundKernel bind_few_channels(Context& context, const BoundNode& node, const Convolution& c) {
  Ways ways;
  if (fits_int(c))
    ways = {{"implicit-gemm", bind_implicit_gemm},
            {"paired", bind_paired},
            {"im2col", bind_im2col},
            {"space-to-depth", bind_space_to_depth}};
  ways.emplace_back("library", bind_as_it_is);
  return bind_fastest(context, node, c, "few channels", ways);
}

BoundKernel bind_wide(Context& context, const BoundNode& node, const Convolution& c) {
  const bool has_per_tap = fits_int(c) && takes_per_tap(context, c);
  if (!has_per_tap && context.way.empty()) return bind_library(context, node, c);
  return bind_fastest(context, node, c, "wide", {{"per-tap", bind_per_tap}, {"library", bind_library}});
}

}  // namespace

BoundKernel bind_convolution(Context& context, const BoundNode& node) {
  const Convolution c(NodeView{node.graph, node.node});
  const std::string& op = node.node.op;
  BoundKernel bound = fail(ErrorCode::kUnsupported, "not bound yet");
  if (node.kernel == kIm2colKernel) {
    bound = bind_few_channels(context, node, c);
    if (bound) return bound;  // it includes the bias gradient
  } else if (node.kernel == kCudnnKernel) {
    bound = bind_wide(context, node, c);
  } else if (node.kernel != kDirectKernel) {
    return fail(ErrorCode::kBadPlan, fmt::format("{}: there is no kernel '{}' on the GPU", op, node.kernel));
  }
  if (!bound) {
    if (bound.error().code != ErrorCode::kUnsupported) return bound;
    if (!fits_int(c))
      return fail(ErrorCode::kUnsupported, fmt::format("{} is too large for 32-bit indices", text_of(op, c)));
    bound = bind_direct(context, node, c);
  }
  return with_bias_gradient(context, node, c, std::move(*bound));
}

}  // namespace plimsoll::engine::cuda
