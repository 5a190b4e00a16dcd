// Layers that disturb values in training, and ActivityRegularization. All draw from the run's seed, so the seeds of the
// file change nothing.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "model/layer.h"
#include "model/random_numbers.h"
#include "model/values.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

// One entry per dimension with the batch: whether it has its own decisions (false: they are shared along it). Empty:
// all have.
using Noise = std::vector<bool>;

ValueId scaled(const BuildCall& call, ValueId x, double scale, double offset = 0) {
  return call.add("affine", {x}, {{"scale", scale}, {"offset", offset}});
}

struct Shared {
  int64_t inner = 1, size = 1;
};

// Returns which decision each element of a sample takes (op `dropout`), if the dimensions with their own decisions are
// neighbours.
std::optional<Shared> shared_decisions(const Shape& batch, const Noise& noise) {
  Shared shared;
  int state = 0;  // 0: behind the dimensions with own decisions, 1: among them, 2: before them
  for (size_t d = batch.rank(); d-- > 1;) {
    if (batch[d] == 1) continue;
    if (noise[d] && state == 2) return std::nullopt;
    if (noise[d]) {
      state = 1;
      shared.size *= batch[d];
    } else if (state == 0) {
      shared.inner *= batch[d];
    } else {
      state = 2;
    }
  }
  return shared;
}

// 1 where a value is kept, 0 where it is dropped, in the shape of x. As in Keras on TensorFlow, a uniform float32
// number of at least `rate` keeps it.
ValueId kept(const BuildCall& call, ValueId x, double rate, const Noise& noise) {
  const Shape whole = call.shape(x);
  std::vector<int64_t> dims = whole.dims;
  for (size_t d = 0; d < noise.size(); ++d)
    if (!noise[d]) dims[d] = 1;
  const DType dtype = is_half(call.precision) ? DType::kFloat32 : call.precision;
  const ValueId u = random_numbers(call, "random_uniform", dims, dtype, !noise.empty() && !noise[0]);
  ValueId keep = call.add("less_equal", {constant_like(call.b, u, static_cast<double>(static_cast<float>(rate))), u});
  if (dtype != call.precision) keep = call.add("cast", {keep}, {{"dtype", std::string(name_of(call.precision))}});
  return broadcast_to(call.b, keep, whole);
}

ValueId dropped(const BuildCall& call, double rate, const Noise& noise) {
  const ValueId x = call.in();
  if (!call.training || rate == 0) return x;
  if (rate == 1) return scaled(call, x, 0);
  Attrs attrs{{"rate", rate}, {"call", call.call}};
  if (!noise.empty()) {
    const auto shared = shared_decisions(call.shape(x), noise);
    if (!shared) return call.add("multiply", {x, scaled(call, kept(call, x, rate, noise), 1 / (1 - rate))});
    attrs.set("noise_inner", shared->inner);
    attrs.set("noise_size", shared->size);
    attrs.set("shared", !noise[0]);
  }
  const ValueId rng = step_scalar(call.b, StepScalar::kRandom, call.precision);
  const ValueId first = step_scalar(call.b, StepScalar::kFirstSample, call.precision);
  return call.add("dropout", {x, rng, first}, std::move(attrs));
}

Layer random_layer(std::function<ValueId(const BuildCall&)> build) {
  Layer layer;
  layer.draws = true;
  layer.masking = Masking::kPasses;
  layer.shape = [](std::span<const Shape> in, Issues&) -> Result<LayerShape> { return LayerShape(in[0]); };
  layer.build = [build = std::move(build)](const BuildCall& call) -> LayerValues { return build(call); };
  return layer;
}

double read_share(Config& c, const char* key) {
  const double value = c.real(key, -1);
  if (value < 0 || value > 1)
    c.issues().reject(fmt::format("{}: '{}' must lie between 0 and 1, got {}", c.where(), key, value));
  return value;
}

// Keras's noise_shape: null for a dimension of the input, 1 for one that shares its decisions.
std::vector<std::optional<int64_t>> read_noise_shape(Config& c) {
  std::vector<std::optional<int64_t>> dims;
  const Json* value = c.value("noise_shape");
  if (!value) return dims;
  const bool list = value->is_array() && !value->empty();
  for (size_t i = 0; list && i < value->size(); ++i) {
    const Json& one = (*value)[i];
    dims.push_back(as_integer(one));
    if (!one.is_null() && dims.back().value_or(0) <= 0) {
      dims.clear();
      break;
    }
  }
  if (dims.empty())
    c.issues().reject(fmt::format("{}: 'noise_shape' must be a list of positive integers and nulls, got {}", c.where(),
                                  shown(*value)));
  return dims;
}

// Adds the check of noise_shape, and the build function that uses it.
Layer with_noise_shape(Config& c, std::function<ValueId(const BuildCall&, const Noise&)> build) {
  const auto dims = read_noise_shape(c);
  const std::string where = c.where();
  const auto noise = [dims](const Shape& batch) {
    Noise own(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) own[d] = !dims[d] || (*dims[d] == batch[d] && d > 0);
    return own;
  };
  Layer layer = random_layer(
      [=](const BuildCall& call) { return build(call, dims.empty() ? Noise() : noise(call.shape(call.in()))); });
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    if (dims.empty()) return LayerShape(in[0]);
    if (dims.size() != in[0].rank() + 1) {
      issues.unknown(
          fmt::format("{}: noise_shape has {} dimensions, its input has {}", where, dims.size(), in[0].rank() + 1));
      return LayerShape(in[0]);
    }
    if (dims[0].value_or(1) != 1)
      issues.unknown(fmt::format("{}: noise_shape with a batch of {}; null and 1 are supported", where, *dims[0]));
    for (size_t d = 1; d < dims.size(); ++d)
      if (dims[d] && *dims[d] != 1 && *dims[d] != in[0][d - 1])
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: noise_shape has {} in dimension {}, which is {}", where,
                                                         *dims[d], d, in[0][d - 1]));
    return LayerShape(in[0]);
  };
  return layer;
}

Layer dropout(Config& c) {
  const double rate = read_share(c, "rate");
  c.ignore({"seed"});
  return with_noise_shape(c, [=](const BuildCall& call, const Noise& noise) { return dropped(call, rate, noise); });
}

// Drops whole channels of a sample with `rank` dimensions.
Layer spatial_dropout(Config& c, size_t rank) {
  const double rate = read_share(c, "rate");
  const bool channels_first =
      rank > 2 && c.choice("data_format", {"channels_last", "channels_first"}, "channels_last") == "channels_first";
  c.ignore({"seed"});
  const std::string where = c.where();
  Noise noise(rank + 1, false);
  noise[0] = noise[channels_first ? 1 : rank] = true;
  Layer layer = random_layer([=](const BuildCall& call) { return dropped(call, rate, noise); });
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank, where));
    return LayerShape(in[0]);
  };
  return layer;
}

Layer gaussian_noise(Config& c) {
  const double deviation = read_share(c, "stddev");
  c.ignore({"seed"});
  return random_layer([=](const BuildCall& call) {
    const ValueId x = call.in();
    if (!call.training || deviation == 0) return x;
    const ValueId noise = random_numbers(call, "random_normal", call.shape(x).dims, call.precision);
    return call.add("add", {x, scaled(call, noise, deviation)});
  });
}

Layer gaussian_dropout(Config& c) {
  const double rate = read_share(c, "rate");
  c.ignore({"seed"});
  if (rate == 1) c.issues().unknown(fmt::format("{}: rate=1, whose noise has an infinite deviation", c.where()));
  const double deviation = std::sqrt(rate / (1 - rate));
  return random_layer([=](const BuildCall& call) {
    const ValueId x = call.in();
    if (!call.training || rate == 0) return x;
    const ValueId noise = random_numbers(call, "random_normal", call.shape(x).dims, call.precision);
    return call.add("multiply", {x, scaled(call, noise, deviation, 1)});
  });
}

// Dropped values become selu's lower limit; then mean and variance are restored.
Layer alpha_dropout(Config& c) {
  constexpr double kLimit = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946;
  const double rate = read_share(c, "rate");
  c.ignore({"seed"});
  if (rate == 1) c.issues().unknown(fmt::format("{}: rate=1, whose scale is infinite", c.where()));
  const double a = 1 / std::sqrt((1 - rate) * (1 + rate * kLimit * kLimit)), b = -a * kLimit * rate;
  return with_noise_shape(c, [=](const BuildCall& call, const Noise& noise) {
    const ValueId x = call.in();
    if (!call.training || rate == 0) return x;
    const ValueId keep = kept(call, x, rate, noise);
    const ValueId values = call.add("multiply", {x, scaled(call, keep, a)});
    return call.add("add", {values, scaled(call, keep, -a * kLimit, a * kLimit + b)});
  });
}

Layer activity_regularization(Config& c) {
  Layer layer = random_layer([](const BuildCall& call) { return call.in(); });
  layer.draws = false;
  layer.activity = {c.real("l1", 0), c.real("l2", 0)};
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Dropout", dropout},
    LayerClass{"SpatialDropout1D", [](Config& c) { return spatial_dropout(c, 2); }},
    LayerClass{"SpatialDropout2D", [](Config& c) { return spatial_dropout(c, 3); }},
    LayerClass{"SpatialDropout3D", [](Config& c) { return spatial_dropout(c, 4); }},
    LayerClass{"GaussianNoise", gaussian_noise},
    LayerClass{"GaussianDropout", gaussian_dropout},
    LayerClass{"AlphaDropout", alpha_dropout},
    LayerClass{"ActivityRegularization", activity_regularization},
};

}  // namespace

std::span<const LayerClass> regularization_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
