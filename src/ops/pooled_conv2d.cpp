// conv2d_pooled and conv2d_pooled_weight_grad: a convolution and the max_pool2d that follows it as one op, and the
// weight gradient computed from the inputs of max_pool2d_grad. The image between the two, the largest value of a small
// network, is never stored. Windows must not overlap and have no padding. Lowering creates these ops if the image has
// no other reader.
#include <array>

#include "ops/families.h"
#include "ops/util.h"
#include "ops/window.h"

namespace plimsoll::engine {
namespace {

Attrs pooling_of(const Attrs& attrs) {
  return {{"pool", attrs.list("pool")}, {"strides", attrs.list("pool")}, {"pads", Ints{0, 0, 0, 0}}};
}

std::vector<double> space_for(const TensorType& type) {
  return std::vector<double>(static_cast<size_t>(type.shape.elements()));
}

OpDef forward_op(const OpDef& conv, const OpDef& pool) {
  OpDef op;
  op.name = "conv2d_pooled";
  op.infer = [conv, pool, name = op.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.list("pool", 2, 1)) return check.failed();
    const auto image = conv.infer(in, attrs);
    if (!image) return failed_inside(name, image.error());
    auto pooled = pool.infer(*image, pooling_of(attrs));
    if (!pooled) return failed_inside(name, pooled.error());
    return pooled;
  };
  op.reference = [conv, pool](const ReferenceCall& call) {
    Types in;
    for (const TensorView& view : call.inputs) in.push_back(view.type);
    const TensorType type = require(conv.infer(in, call.attrs)).front();
    std::vector<double> image = space_for(type);
    const TensorView between{type, image.data()};
    conv.reference({call.inputs, {&between, 1}, call.attrs});
    pool.reference({{&between, 1}, call.outputs, pooling_of(call.attrs)});
  };
  op.flops = [conv](InTypes in, InTypes, const Attrs& attrs) {
    return conv.flops(in, require(conv.infer(in, attrs)), attrs);
  };
  op.error_units = conv.error_units;
  return op;
}

// Returns the types of x and of dy (the gradient of the whole image), which the plain weight gradient reads.
Types weight_grad_inputs(InTypes in, const Attrs& attrs) {
  const auto& kernel = attrs.list("kernel");
  const Shape& x = in[0].shape;
  const WindowGeometry g = window_geometry(kernel.data(), &x.dims[1], attrs);
  return {in[0], {in[0].dtype, Shape{x[0], g.output[0], g.output[1], in[1].shape[3]}}};
}

Attrs unpooling_of(const Attrs& attrs, const Shape& image) {
  Attrs pooling = pooling_of(attrs);
  pooling.set("input_size", Ints{image[1], image[2]});
  return pooling;
}

OpDef weight_grad_op(const OpDef& conv, const OpDef& pool) {
  OpDef op;
  op.name = "conv2d_pooled_weight_grad";
  op.infer = [conv, pool, name = op.name](InTypes in, const Attrs& attrs) -> Result<Types> {
    InferCheck check(name, in, attrs);
    if (!check.inputs(3) || !check.floats({0, 1}) || !check.rank(0, 4) || !check.rank(1, 4) ||
        !check.list("pool", 2, 1) || !check.list("kernel", 2, 1) || !check.list("strides", 2, 1) ||
        !check.list("pads", 4, 0) || !check.list("dilations", 2, 1))
      return check.failed();
    const Types image = weight_grad_inputs(in, attrs);
    if (!check.require(image[1].shape[1] > 0 && image[1].shape[2] > 0, "the kernel is larger than the image"))
      return check.failed();
    const auto unpooled = pool.infer(in.subspan(1), unpooling_of(attrs, image[1].shape));
    if (!unpooled) return failed_inside(name, unpooled.error());
    if (!check.require(unpooled->front() == image[1], "dy must have the same dtype and number of images as x"))
      return check.failed();
    auto types = conv.infer(image, attrs);
    if (!types) return failed_inside(name, types.error());
    return types;
  };
  op.reference = [conv, pool](const ReferenceCall& call) {
    const Types types = weight_grad_inputs(Types{call.inputs[0].type, call.inputs[1].type}, call.attrs);
    std::vector<double> gradient = space_for(types[1]);
    const TensorView dy{types[1], gradient.data()};
    pool.reference({call.inputs.subspan(1), {&dy, 1}, unpooling_of(call.attrs, types[1].shape)});
    const TensorView inputs[] = {call.inputs[0], dy};
    conv.reference({inputs, call.outputs, call.attrs});
  };
  op.flops = [conv](InTypes in, InTypes out, const Attrs& attrs) {
    return conv.flops(weight_grad_inputs(in, attrs), out, attrs);
  };
  op.error_units = conv.error_units;
  return op;
}

struct PooledCase {
  std::string name;
  int64_t images, height, width, channels, outputs;
  Ints kernel, strides, pads, dilations;
  bool bias;
};

// The cases cover images whose last row and column are in no window, lines longer than a kernel processes at once, more
// outputs than that, and kernels with few and with many elements.
const PooledCase kCases[] = {
    {"valid", 2, 8, 9, 3, 8, {3, 3}, {1, 1}, {0, 0, 0, 0}, {1, 1}, true},
    {"padded", 3, 7, 7, 1, 16, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}, true},
    {"strided", 1, 19, 16, 3, 8, {3, 3}, {2, 2}, {0, 1, 0, 1}, {1, 1}, false},
    {"dilated", 2, 11, 12, 2, 24, {3, 2}, {1, 2}, {1, 0, 2, 1}, {2, 3}, false},
    {"long", 1, 6, 150, 3, 40, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, true},
    {"four_channels", 2, 10, 11, 4, 40, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, true},
    {"even_kernel", 1, 9, 141, 2, 16, {4, 4}, {1, 1}, {1, 2, 2, 1}, {1, 1}, true},
    {"large_kernel", 2, 17, 18, 1, 8, {7, 7}, {2, 2}, {3, 3, 2, 3}, {1, 1}, true},
    {"sixty_four", 1, 12, 13, 4, 8, {4, 4}, {1, 1}, {0, 0, 0, 0}, {2, 1}, false},
};

Attrs attrs_of(const PooledCase& c) {
  return {{"strides", c.strides},
          {"pads", c.pads},
          {"dilations", c.dilations},
          {"groups", int64_t{1}},
          {"pool", Ints{2, 2}}};
}

std::vector<OpCase> forward_cases() {
  std::vector<OpCase> cases;
  for (const PooledCase& c : kCases) {
    OpCase one{c.name,
               {f32({c.images, c.height, c.width, c.channels}), f32({c.kernel[0], c.kernel[1], c.channels, c.outputs})},
               attrs_of(c),
               {"normal", "normal"},
               {}};
    if (c.bias) {
      one.inputs.push_back(f32({c.outputs}));
      one.fill.emplace_back("normal");
    }
    cases.push_back(one);
    one.name += "_relu";
    one.attrs.set("activation", std::string("relu"));
    cases.push_back(one);
  }
  return cases;
}

std::vector<OpCase> weight_grad_cases() {
  std::vector<OpCase> cases;
  for (const PooledCase& c : kCases) {
    Attrs attrs = attrs_of(c);
    const WindowGeometry g = window_geometry(c.kernel.data(), std::array{c.height, c.width}.data(), attrs);
    attrs.set("kernel", c.kernel);
    if (c.bias) attrs.set("bias", true);
    const auto pooled = {c.images, g.output[0] / 2, g.output[1] / 2, c.outputs};
    cases.push_back({c.name,
                     {f32({c.images, c.height, c.width, c.channels}), f32(pooled), u8(pooled)},
                     attrs,
                     {"normal", "normal", "labels:4"},
                     {}});
  }
  return cases;
}

}  // namespace

std::vector<OpDef> pooled_conv2d_ops() {
  const std::vector<OpDef> convs = conv2d_ops(), pools = pool2d_ops();
  OpDef forward = forward_op(op_of(convs, "conv2d"), op_of(pools, "max_pool2d"));
  OpDef weight_grad = weight_grad_op(op_of(convs, "conv2d_weight_grad"), op_of(pools, "max_pool2d_grad"));
  forward.cases = forward_cases();
  weight_grad.cases = weight_grad_cases();
  return {forward, weight_grad};
}

}  // namespace plimsoll::engine
