// Normalisations with statistics: BatchNormalization along any axis, LayerNormalization over any axes.
#include <fmt/format.h>

#include <array>

#include "model/axes.h"

namespace plimsoll::engine {
namespace {

struct BatchNorm {
  double momentum = 0, epsilon = 0;
  bool scale = false, center = false;

  // x has the channels last. `mask` is kNone, or x's shape with 1 for the elements that count.
  ValueId build(const BuildCall& call, ValueId x, ValueId mask) const {
    size_t next = 0;
    const ValueId gamma = scale ? call.weights[next++] : kNone;
    const ValueId beta = center ? call.weights[next++] : kNone;
    const ValueId moving_mean = call.weights[next], moving_variance = call.weights[next + 1];
    const bool batch = call.training && call.trainable;
    if (batch && mask != kNone) {
      // Under a mixed policy Keras computes this in the dtype of the variables.
      const auto cast = [&](ValueId v, DType dtype) {
        return type_of(call, v) == dtype ? v : call.add("cast", {v}, {{"dtype", std::string(name_of(dtype))}});
      };
      const DType own = type_of(call, moving_mean);
      const ValueId wide = cast(x, own);
      const auto [mean, variance] = masked_moments(call, wide, cast(mask, own));
      track(call, moving_mean, mean);
      track(call, moving_variance, variance);
      return cast(apply(call, wide, mean, variance, gamma, beta), type_of(call, x));
    }
    Attrs attrs{{"epsilon", epsilon}, {"scale", scale}, {"center", center}};
    ValueId mean = held(call, moving_mean), variance = held(call, moving_variance);
    if (batch) {
      const auto stats = call.b.add("batch_norm_stats", {x});
      track(call, moving_mean, stats[0]);
      track(call, moving_variance, stats[1]);
      mean = stats[0];
      variance = stats[1];
      attrs.set("batch_stats", true);
    }
    std::vector<ValueId> inputs{x, mean, variance};
    if (scale) inputs.push_back(gamma);
    if (center) inputs.push_back(beta);
    return call.add("batch_norm_apply", std::move(inputs), std::move(attrs));
  }

  // Keras's _moments with a mask: sums over the unmasked elements, divided by their number + 1e-7.
  static std::pair<ValueId, ValueId> masked_moments(const BuildCall& call, ValueId x, ValueId mask) {
    const std::vector<int64_t> dims = call.shape(x).dims, channels{dims.back()};
    const auto sum = [&](ValueId v) { return call.add("reduce_to", {v}, {{"shape", channels}}); };
    const ValueId count = call.add("affine", {sum(mask)}, {{"scale", 1.0}, {"offset", 1e-7}});
    const ValueId mean = call.add("divide", {sum(call.add("multiply", {x, mask})), count});
    const ValueId difference = call.add("subtract", {x, broadcast_dims(call, mean, dims)});
    const ValueId squares = call.add("square", {call.add("multiply", {difference, mask})});
    return {mean, call.add("divide", {sum(squares), count})};
  }

  // Like batch_norm_apply, with gradients through mean and variance by the ops they were made of.
  ValueId apply(const BuildCall& call, ValueId x, ValueId mean, ValueId variance, ValueId gamma, ValueId beta) const {
    const std::vector<int64_t> dims = call.shape(x).dims;
    ValueId factor = call.add("rsqrt", {call.add("affine", {variance}, {{"scale", 1.0}, {"offset", epsilon}})});
    if (gamma != kNone) factor = call.add("multiply", {factor, gamma});
    const ValueId shift = call.add("multiply", {mean, factor});
    const ValueId offset = beta != kNone ? call.add("subtract", {beta, shift})
                                         : call.add("affine", {shift}, {{"scale", -1.0}, {"offset", 0.0}});
    const ValueId scaled = call.add("multiply", {x, broadcast_dims(call, factor, dims)});
    return call.add("add", {scaled, broadcast_dims(call, offset, dims)});
  }

  static DType type_of(const BuildCall& call, ValueId v) { return call.b.graph().type(v).dtype; }
  static ValueId held(const BuildCall& call, ValueId statistic) {
    const auto it = call.statistics.find(statistic);
    return it == call.statistics.end() ? statistic : it->second;
  }
  void track(const BuildCall& call, ValueId statistic, ValueId batch) const {
    const auto temporaries = call.b.in_category(Category::kTemporaries);
    call.statistics[statistic] = call.add("moving_average", {held(call, statistic), batch}, {{"momentum", momentum}});
  }
};

// Returns the mask [N,...] of an input [N,...,C] with the input's shape.
ValueId full_mask(const BuildCall& call) {
  if (call.masks[0] == kNone || !call.training || !call.trainable) return kNone;
  const std::vector<int64_t> dims = call.shape(call.in()).dims;
  std::vector<int64_t> column = dims;
  column.back() = 1;
  return broadcast_dims(call, viewed_as(call, call.masks[0], column), dims);
}

Layer batch_normalization(Config& c) {
  const BatchNorm norm{c.real("momentum", 0.99), c.real("epsilon", 1e-3), c.flag("scale", true),
                       c.flag("center", true)};
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});
  const WeightConfig gamma = read_weight(c, "gamma", "ones"), beta = read_weight(c, "beta", "zeros");
  const WeightConfig mean = read_weight(c, "moving_mean", "zeros"),
                     variance = read_weight(c, "moving_variance", "ones");
  c.flag("synchronized", false);  // statistics over all devices: there is one
  c.only("renorm", {false});
  c.ignore({"renorm_clipping", "renorm_momentum"});  // meaningless without renorm
  const std::string where = c.where();
  Layer layer;
  layer.couples_samples = true;
  layer.masking = Masking::kPasses;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto at, checked_axes(axis, in[0], where));
    if (at.size() != 1) {
      issues.unknown(fmt::format("{}: axis=[{}], which is not one axis", where, fmt::join(axis, ",")));
      return LayerShape(in[0]);
    }
    const Shape channels{in[0][static_cast<size_t>(at[0] - 1)]};
    LayerShape shape(in[0]);
    if (norm.scale) shape.weights.push_back(gamma.spec("gamma", channels));
    if (norm.center) shape.weights.push_back(beta.spec("beta", channels));
    for (auto spec : {mean.spec("moving_mean", channels), variance.spec("moving_variance", channels)}) {
      spec.frozen = true;
      shape.weights.push_back(std::move(spec));
    }
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const std::vector<int64_t> at{*positive_axis(axis[0], call.shape(call.in()).rank())};
    const ValueId mask = full_mask(call);
    const ValueId y =
        norm.build(call, axes_to_end(call, call.in(), at), mask == kNone ? kNone : axes_to_end(call, mask, at));
    return axes_back(call, y, call.in(), at);
  };
  return layer;
}

// rms_scaling (deprecated in Keras): x / sqrt(variance + epsilon) * gamma, of an x that stays where it is.
ValueId scale_by_variance(const BuildCall& call, ValueId x, ValueId gamma, double epsilon) {
  const std::vector<int64_t> dims = call.shape(x).dims;
  std::vector<int64_t> rows = dims;
  rows.back() = 1;
  const double share = 1.0 / static_cast<double>(dims.back());
  const auto mean = [&](ValueId v, double offset) {
    return call.add("affine", {call.add("reduce_to", {v}, {{"shape", rows}})}, {{"scale", share}, {"offset", offset}});
  };
  const ValueId difference = call.add("subtract", {x, broadcast_dims(call, mean(x, 0), dims)});
  const ValueId factor = call.add("rsqrt", {mean(call.add("square", {difference}), epsilon)});
  return scale_channels(call, call.add("multiply", {x, broadcast_dims(call, factor, dims)}), gamma, kNone);
}

Layer layer_normalization(Config& c) {
  const double epsilon = c.real("epsilon", 1e-3);
  const bool by_variance = c.flag("rms_scaling", false);
  const bool scale = c.flag("scale", true) || by_variance, center = c.flag("center", true) && !by_variance;
  const std::vector<int64_t> axis = read_axis_list(c, "axis", {-1});
  const WeightConfig gamma = read_weight(c, "gamma", "ones"), beta = read_weight(c, "beta", "zeros");
  const std::string where = c.where();
  Layer layer;
  layer.masking = Masking::kPasses;
  layer.float32_weights = true;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(checked_axes(axis, in[0], where));
    // The weights have the axes in the order of the sorted list, negative ones first.
    std::vector<int64_t> sorted = axis, dims;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t a : sorted) dims.push_back(in[0][static_cast<size_t>(*positive_axis(a, in[0].rank() + 1) - 1)]);
    LayerShape shape(in[0]);
    if (scale) shape.weights.push_back(gamma.spec("gamma", Shape(dims)));
    if (center) shape.weights.push_back(beta.spec("beta", Shape(dims)));
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    std::vector<int64_t> at;
    for (int64_t a : axis) at.push_back(*positive_axis(a, call.shape(call.in()).rank()));
    std::sort(at.begin(), at.end());
    const ValueId x = axes_to_end(call, call.in(), at);
    std::vector<ValueId> inputs{x};
    for (ValueId w : call.weights) inputs.push_back(viewed_as(call, w, {call.shape(x).back()}));
    const ValueId y = by_variance ? scale_by_variance(call, x, inputs[1], epsilon)
                                  : call.add("layer_norm", std::move(inputs),
                                             {{"epsilon", epsilon}, {"scale", scale}, {"center", center}});
    return axes_back(call, y, call.in(), at);
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"BatchNormalization", batch_normalization},
    LayerClass{"LayerNormalization", layer_normalization},
};

}  // namespace

std::span<const LayerClass> normalization_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
