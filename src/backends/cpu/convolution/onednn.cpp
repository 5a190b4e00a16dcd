// Convolutions and their gradients on oneDNN.
//
// Source and destination are declared as NHWC (NDHWC): with format_tag::any next to an NHWC source, oneDNN selects its
// reference kernel. Weights and the weight gradient are declared as format_tag::any in an offer; once bound, their
// layout is the one in the plan.
#include "backends/cpu/convolution/convolution.h"

#include <fmt/format.h>

#include "backends/cpu/onednn/layout.h"
#include "backends/cpu/onednn/primitive.h"

namespace plimsoll::engine::cpu {

namespace {

using dnnl::memory;
using ForwardDesc = dnnl::convolution_forward::primitive_desc;
using InputGradDesc = dnnl::convolution_backward_data::primitive_desc;
using WeightGradDesc = dnnl::convolution_backward_weights::primitive_desc;

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

struct Descs {
  // Those of the forward pass (x, w, b, y); bias is an empty descriptor if there is none.
  memory::desc image, weights, bias, result;
  Dims strides, dilations, before, after;
};

Result<memory::desc> desc_or(const Problem& p, const Value& value, LayoutKind kind, const Dims& dims, bool open) {
  if (!p.bound) return open ? any_desc(dims) : plain_desc(kind, dims);
  if (value.layout.empty()) return plain_desc(kind, dims);
  PLIMSOLL_ASSIGN(const NamedDesc named, desc_from_name(value.layout));
  if (named.kind != kind || named.desc.dims() != dims) {
    return fail(ErrorCode::kBadPlan,
                fmt::format("layout '{}' does not match the shape of value '{}'", value.layout, value.name));
  }
  return named.desc;
}

Result<Descs> describe_convolution(const Problem& p, const Convolution& c) {
  Descs d;
  const LayoutKind kind = c.groups == 1 ? LayoutKind::kWeights : LayoutKind::kGroupedWeights;
  // oneDNN's order: channels before the sizes, and depth only if there is one.
  const auto with_sizes = [&](Dims dims, int64_t depth, int64_t height, int64_t width) {
    if (c.is_volume()) dims.push_back(depth);
    dims.insert(dims.end(), {height, width});
    return dims;
  };
  const Dims channels = c.groups == 1 ? Dims{c.o, c.c} : Dims{c.groups, c.o / c.groups, c.group_channels()};
  PLIMSOLL_ASSIGN(d.image, desc_or(p, *c.image, LayoutKind::kImage, with_sizes({c.n, c.c}, c.d, c.h, c.w), false));
  PLIMSOLL_ASSIGN(d.result, desc_or(p, *c.result, LayoutKind::kImage, with_sizes({c.n, c.o}, c.od, c.oh, c.ow), false));
  PLIMSOLL_ASSIGN(d.weights, desc_or(p, *c.weights, kind, with_sizes(channels, c.kd, c.kh, c.kw), true));
  if (c.bias) d.bias = memory::desc({c.o}, memory::data_type::f32, memory::format_tag::a);
  d.strides = with_sizes({}, c.sd, c.sh, c.sw);
  d.dilations = with_sizes({}, c.dd - 1, c.dh - 1, c.dw - 1);
  d.before = with_sizes({}, c.front, c.top, c.left);
  d.after = with_sizes({}, c.back, c.bottom, c.right);
  return d;
}

ForwardDesc forward_desc(const Problem& p, const Descs& d, const dnnl::primitive_attr& attributes, bool allow_empty) {
  const auto kind = dnnl::prop_kind::forward_training;
  if (d.bias.is_zero()) {
    return {{kind, kDirect, d.image, d.weights, d.result, d.strides, d.dilations, d.before, d.after},
            attributes,
            p.machine.engine,
            allow_empty};
  }
  return {{kind, kDirect, d.image, d.weights, d.bias, d.result, d.strides, d.dilations, d.before, d.after},
          attributes,
          p.machine.engine,
          allow_empty};
}

InputGradDesc input_grad_desc(const Problem& p, const Descs& d, const ForwardDesc& hint) {
  return {{kDirect, d.image, d.weights, d.result, d.strides, d.dilations, d.before, d.after},
          scratchpad_attributes(),
          p.machine.engine,
          hint,
          true};
}

WeightGradDesc weight_grad_desc(const Problem& p, const Descs& d, const ForwardDesc& hint) {
  if (d.bias.is_zero()) {
    return {{kDirect, d.image, d.weights, d.result, d.strides, d.dilations, d.before, d.after},
            scratchpad_attributes(),
            p.machine.engine,
            hint,
            true};
  }
  return {{kDirect, d.image, d.weights, d.bias, d.result, d.strides, d.dilations, d.before, d.after},
          scratchpad_attributes(),
          p.machine.engine,
          hint,
          true};
}

// Measured shares of the peak in float32 with NHWC activations. Few input channels leave vector lanes idle, most of all
// in the input gradient, which writes them. A depthwise convolution does very little arithmetic per load.
double efficiency_of(const Convolution& c) {
  if (c.c == c.groups) return 0.22;
  const bool few = c.c / c.groups < 16;
  if (c.pass == ConvolutionPass::kForward) return few ? 0.6 : 0.8;
  if (c.pass == ConvolutionPass::kInputGrad) return few ? 0.11 : 0.75;
  return few ? 0.33 : 0.65;
}

// Arguments are given in the order of the node's inputs, then its outputs.
template <typename Desc>
Result<Recipe> finish(const Problem& p, const Convolution& c, const Desc& desc, const memory::desc& weights,
                      std::vector<std::pair<int, memory::desc>> inputs,
                      std::vector<std::pair<int, memory::desc>> outputs) {
  const LayoutKind kind = c.groups == 1 ? LayoutKind::kWeights : LayoutKind::kGroupedWeights;
  PLIMSOLL_ASSIGN(const Layout layout, layout_of(kind, weights));
  Recipe recipe;
  recipe.offer.kernel = desc.impl_info_str();
  recipe.offer.workspace = align_up(static_cast<Bytes>(desc.scratchpad_desc().get_size()));
  recipe.offer.seconds = p.machine.seconds(c.flops(), efficiency_of(c), p.traffic());
  recipe.offer.primitives = 1;
  recipe.offer.inputs.resize(p.inputs());
  recipe.offer.outputs.resize(p.outputs());
  recipe.offer.primitive_key = primitive_key(p.graph, p.node, recipe.offer.kernel);
  if (c.pass == ConvolutionPass::kWeightGrad) {
    recipe.offer.outputs[0] = layout;
  } else {
    recipe.offer.inputs[1] = layout;
  }
  recipe.bind = [&machine = p.machine, desc, inputs = std::move(inputs),
                 outputs = std::move(outputs)](const BoundNode& node) {
    std::vector<PrimitiveArgument> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) arguments.push_back({inputs[i].first, inputs[i].second, node.inputs[i]});
    for (size_t i = 0; i < outputs.size(); ++i)
      arguments.push_back({outputs[i].first, outputs[i].second, node.outputs[i]});
    return bind_primitive(machine, desc, std::move(arguments), node);
  };
  return recipe;
}

// If a plan names a oneDNN kernel that does not exist here, the plan was made on another machine.
Result<Recipe> without_primitive(const Problem& p) {
  if (p.bound)
    return fail(ErrorCode::kBadPlan, fmt::format("{}: this machine's oneDNN has no kernel '{}'", p.node.op, p.kernel));
  return convolution_fallback_recipe(p);
}

Result<Recipe> forward_recipe(const Problem& p, const Convolution& c, const Descs& d) {
  dnnl::primitive_attr attributes = scratchpad_attributes();
  if (c.relu) {
    dnnl::post_ops relu;
    relu.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(relu);
  }
  ForwardDesc desc = forward_desc(p, d, attributes, true);
  if (!desc || !pick_implementation(p, desc)) return without_primitive(p);
  std::vector<std::pair<int, memory::desc>> inputs = {{DNNL_ARG_SRC, d.image}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}};
  if (c.bias) inputs.emplace_back(DNNL_ARG_BIAS, d.bias);
  return finish(p, c, desc, desc.weights_desc(), std::move(inputs), {{DNNL_ARG_DST, d.result}});
}

Result<Recipe> gradient_recipe(const Problem& p, const Convolution& c, const Descs& d) {
  Descs open = d;  // the forward descriptor is only a hint, so oneDNN may choose its weight layout
  open.weights = any_desc(d.weights.dims());
  const ForwardDesc hint = forward_desc(p, open, scratchpad_attributes(), true);
  if (!hint) return without_primitive(p);
  if (c.pass == ConvolutionPass::kInputGrad) {
    InputGradDesc desc = input_grad_desc(p, d, hint);
    if (!desc || !pick_implementation(p, desc)) return without_primitive(p);
    return finish(p, c, desc, desc.weights_desc(),
                  {{DNNL_ARG_DIFF_DST, d.result}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}},
                  {{DNNL_ARG_DIFF_SRC, d.image}});
  }
  WeightGradDesc desc = weight_grad_desc(p, d, hint);
  if (!desc || !pick_implementation(p, desc)) return without_primitive(p);
  std::vector<std::pair<int, memory::desc>> outputs = {{DNNL_ARG_DIFF_WEIGHTS, desc.diff_weights_desc()}};
  if (c.bias) outputs.emplace_back(DNNL_ARG_DIFF_BIAS, d.bias);
  return finish(p, c, desc, desc.diff_weights_desc(), {{DNNL_ARG_SRC, d.image}, {DNNL_ARG_DIFF_DST, d.result}},
                std::move(outputs));
}

}  // namespace

Result<Recipe> convolution_recipe(const Problem& p) {
  if (p.bound && p.kernel.rfind(kFallbackPrefix, 0) == 0) return convolution_fallback_recipe(p);
  const Convolution c(p);
  const bool row_major = c.image->layout.empty() && c.weights->layout.empty() && c.result->layout.empty();
  // A kernel named by the plan must support the shape. A kernel that is offered must also be faster than oneDNN.
  const auto runs_by = [&](std::string_view own, bool fits, bool is_faster) {
    return row_major && fits && (p.bound ? p.kernel == own : is_faster);
  };
  if (runs_by(kWinogradKernel, winograd_fits(c), winograd_is_faster(c))) return winograd_recipe(p);
  if (runs_by(kPointwiseKernel, pointwise_fits(c), pointwise_is_faster(c))) return pointwise_recipe(p);
  if (c.pass == ConvolutionPass::kWeightGrad && runs_by(kFewChannelKernel, few_channels_fit(c), true))
    return few_channel_weight_grad_recipe(p);
  if (c.pass == ConvolutionPass::kWeightGrad && runs_by(kSequenceKernel, sequence_fits(c), sequence_is_faster(c)))
    return sequence_weight_grad_recipe(p);
  PLIMSOLL_ASSIGN(const Descs d, describe_convolution(p, c));
  return c.pass == ConvolutionPass::kForward ? forward_recipe(p, c, d) : gradient_recipe(p, c, d);
}

}  // namespace plimsoll::engine::cpu
