// Dense, and the layers that only move or scale: Flatten, Reshape, Dropout, Rescaling, ZeroPadding2D, UpSampling2D.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"
#include "model/values.h"

namespace plimsoll {
namespace {

std::vector<int64_t> batched(int64_t batch, const Shape& sample) {
  std::vector<int64_t> dims{batch};
  dims.insert(dims.end(), sample.dims.begin(), sample.dims.end());
  return dims;
}

Layer dense(Config& c) {
  const int64_t units = c.integer("units", 1, kMostElements);
  const bool use_bias = c.flag("use_bias", true);
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform");
  const WeightConfig bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  c.only("quantization_config");
  c.only("lora_rank");
  c.only("activity_regularizer");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (in[0].rank() == 0) return fail(ErrorCode::kBadGeometry, where + ": a sample must have at least one dimension");
    std::vector<int64_t> dims = in[0].dims;
    dims.back() = units;
    LayerShape shape;
    PLIMSOLL_ASSIGN(shape.output, checked_shape(dims, where));
    PLIMSOLL_ASSIGN(Shape matrix, checked_shape({in[0].back(), units}, where + ": kernel"));
    shape.weights.push_back(kernel.spec("kernel", std::move(matrix)));
    if (use_bias) shape.weights.push_back(bias.spec("bias", Shape{units}));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const Shape in = call.shape(call.in());
    ValueId x = call.in();
    const bool matrix = in.rank() == 2;
    if (!matrix) x = call.add("reshape", {x}, {{"shape", std::vector<int64_t>{in.elements() / in.back(), in.back()}}});
    x = call.add("matmul", {x, call.weights[0]});
    if (use_bias) x = call.add("bias_add", {x, call.weights[1]});
    if (!matrix) {
      std::vector<int64_t> dims = in.dims;
      dims.back() = units;
      x = call.add("reshape", {x}, {{"shape", dims}});
    }
    return activation(call, x);
  };
  return layer;
}

Layer flatten(Config& c) {
  c.choice("data_format", {"channels_last"}, "channels_last");
  Layer layer;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    return LayerShape{Shape{in[0].elements()}, {}};
  };
  layer.build = [](const BuildCall& call) {
    const Shape in = call.shape(call.in());
    return call.add("reshape", {call.in()}, {{"shape", std::vector<int64_t>{call.batch, in.elements() / call.batch}}});
  };
  return layer;
}

Result<Shape> reshaped(const Shape& in, std::vector<int64_t> target, const std::string& where) {
  const auto mismatch = [&] {
    return fail(ErrorCode::kBadGeometry,
                fmt::format("{}: [{}] cannot be reshaped to [{}]", where, to_text(in), fmt::join(target, ",")));
  };
  int64_t known = 1;
  int64_t* free = nullptr;
  for (int64_t& d : target) {
    if (d == -1 && !free) {
      free = &d;
      continue;
    }
    if (d <= 0 || d > in.elements() / known) return mismatch();
    known *= d;
  }
  if (free ? in.elements() % known != 0 : in.elements() != known) return mismatch();
  if (free) *free = in.elements() / known;
  return checked_shape(std::move(target), where);
}

Layer reshape(Config& c) {
  std::vector<int64_t> target;
  const Json* value = c.value("target_shape");
  bool good = value && value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    const auto n = as_integer((*value)[i]);
    good = n.has_value();
    target.push_back(n.value_or(1));
  }
  if (!good)
    c.issues().reject(fmt::format("{}: 'target_shape' must be a list of integers, got {}", c.where(),
                                  value ? shown(*value) : "nothing"));
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(Shape output, reshaped(in[0], target, where));
    return LayerShape{std::move(output), {}};
  };
  layer.build = [=](const BuildCall& call) {
    const Shape in = call.shape(call.in());
    const Shape sample(std::vector<int64_t>(in.dims.begin() + 1, in.dims.end()));
    const auto output = reshaped(sample, target, where);
    assert(output);
    return call.add("reshape", {call.in()}, {{"shape", batched(call.batch, *output)}});
  };
  return layer;
}

Layer dropout(Config& c) {
  const double rate = c.real("rate", -1);
  if (rate < 0 || rate > 1)
    c.issues().reject(fmt::format("{}: 'rate' must lie between 0 and 1, got {}", c.where(), rate));
  c.only("noise_shape");
  c.ignore({"seed"});  // masks are drawn from the run's own seed
  Layer layer;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape{in[0], {}}; };
  layer.build = [=](const BuildCall& call) {
    if (!call.training || rate == 0) return call.in();
    if (rate == 1) return call.add("affine", {call.in()}, {{"scale", 0.0}, {"offset", 0.0}});
    const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
    const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
    return call.add("dropout", {call.in(), rng, first}, {{"rate", rate}, {"call", call.call}});
  };
  return layer;
}

Layer rescaling(Config& c) {
  const auto number = [&](const char* key, double otherwise) {
    const Json* value = c.value(key);
    if (!value) return otherwise;
    if (const auto real = as_number(*value)) return *real;
    c.issues().unknown(fmt::format("{}: {}={}: only one number for all channels", c.where(), key, shown(*value)));
    return otherwise;
  };
  const double scale = number("scale", 1), offset = number("offset", 0);
  Layer layer;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape{in[0], {}}; };
  layer.build = [=](const BuildCall& call) {
    return call.add("affine", {call.in()}, {{"scale", scale}, {"offset", offset}});
  };
  return layer;
}

// {top, bottom, left, right} of an integer, two integers or two pairs.
std::array<int64_t, 4> read_padding(Config& c) {
  const Json* value = c.value("padding");
  std::array<int64_t, 4> pads{1, 1, 1, 1};
  if (!value) return pads;
  bool good = true;
  const auto one = [&](const Json& j) {
    const auto n = as_integer(j);
    good = good && n && *n >= 0 && *n <= kMostGeometry;
    return good ? *n : 0;
  };
  if (value->is_array() && value->size() == 2) {
    for (size_t d = 0; d < 2; ++d) {
      const Json& side = (*value)[d];
      const bool two = side.is_array() && side.size() == 2;
      pads[2 * d] = one(two ? side[0] : side);
      pads[2 * d + 1] = one(two ? side[1] : side);
    }
  } else {
    pads.fill(one(*value));
  }
  if (!good)
    c.issues().reject(fmt::format("{}: 'padding' must be two pairs of integers from 0 to {}, got {}", c.where(),
                                  kMostGeometry, shown(*value)));
  return pads;
}

Layer zero_padding(Config& c) {
  const auto pads = read_padding(c);
  c.choice("data_format", {"channels_last"}, "channels_last");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], 3, where));
    PLIMSOLL_ASSIGN(Shape output,
                    checked_shape({in[0][0] + pads[0] + pads[1], in[0][1] + pads[2] + pads[3], in[0][2]}, where));
    return LayerShape{std::move(output), {}};
  };
  layer.build = [=](const BuildCall& call) {
    return call.add("pad2d", {call.in()}, {{"pads", std::vector<int64_t>(pads.begin(), pads.end())}});
  };
  return layer;
}

Layer up_sampling(Config& c) {
  const auto size = c.pair("size", 1, Config::Pair{2, 2});
  const std::string interpolation = c.choice("interpolation", {"nearest", "bilinear"}, "nearest");
  c.choice("data_format", {"channels_last"}, "channels_last");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], 3, where));
    PLIMSOLL_ASSIGN(Shape output, checked_shape({in[0][0] * size[0], in[0][1] * size[1], in[0][2]}, where));
    return LayerShape{std::move(output), {}};
  };
  layer.build = [=](const BuildCall& call) {
    return call.add("upsample2d", {call.in()},
                    {{"size", std::vector<int64_t>{size[0], size[1]}}, {"interpolation", interpolation}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Dense", dense},
    LayerClass{"Flatten", flatten},
    LayerClass{"Reshape", reshape},
    LayerClass{"Dropout", dropout},
    LayerClass{"Rescaling", rescaling},
    LayerClass{"ZeroPadding2D", zero_padding},
    LayerClass{"UpSampling2D", up_sampling},
};

}  // namespace

std::span<const LayerClass> core_layers() {
  return kLayers;
}

}  // namespace plimsoll
