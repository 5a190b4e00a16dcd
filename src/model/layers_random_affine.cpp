// Keras's layers that rotate, zoom, move and shear images at random: each sample gets the numbers of an affine
// transform, and op affine_image applies it. The numbers are computed in Keras's order of operations.
#include <fmt/format.h>

#include <array>
#include <numbers>

#include "model/expression.h"
#include "model/preprocessing.h"
#include "model/random_numbers.h"

namespace plimsoll::engine {
namespace {

// Transforms are float32 whatever the compute dtype, as in Keras.
DType transform_dtype(const BuildCall& call) {
  return is_half(call.precision) ? DType::kFloat32 : call.precision;
}

// One number per sample in [low, high), as [N, 1].
Expression drawn(const BuildCall& call, const std::array<double, 2>& range, int64_t stream) {
  const ValueId u = random_numbers(call, "random_uniform", {call.batch, 1}, transform_dtype(call), false, stream);
  return Expression(call.b, u).affine(range[1] - range[0], range[0]);
}

struct Place {
  std::string interpolation, fill_mode;
  double fill_value = 0;
};

Place read_place(Config& c) {
  Place place;
  place.fill_mode = c.choice("fill_mode", {"reflect", "wrap", "constant", "nearest"}, "reflect");
  place.interpolation = c.choice("interpolation", {"bilinear", "nearest"}, "bilinear");
  place.fill_value = c.real("fill_value", 0);
  return place;
}

// Input pixel of output pixel (x, y): (a[0] x + a[1] y + a[2], a[3] x + a[4] y + a[5]).
using Transform = std::array<Expression, 6>;

// `make` returns the transform for images of this height and width.
Layer affine_layer(Config& c, std::function<Transform(const BuildCall&, double height, double width)> make) {
  const Place place = read_place(c);
  return random_image_layer(c, [=, make = std::move(make)](const BuildCall& call) {
    const Shape& image = call.shape(call.in());
    const Transform transform = make(call, static_cast<double>(image[1]), static_cast<double>(image[2]));
    std::vector<ValueId> columns;
    for (const Expression& one : transform) columns.push_back(one.id());
    const ValueId joined = call.add("concat", columns, {{"axis", int64_t{1}}});
    return call.add(
        "affine_image", {call.in(), joined},
        {{"interpolation", place.interpolation}, {"fill_mode", place.fill_mode}, {"fill_value", place.fill_value}});
  });
}

Layer random_rotation(Config& c) {
  const auto factor = read_range(c, "factor", {0, 0}, -1);
  return affine_layer(c, [=](const BuildCall& call, double height, double width) -> Transform {
    const Expression degrees = drawn(call, {factor[0] * 360, factor[1] * 360}, 0);
    const Expression angle = degrees * (std::numbers::pi / 180);
    const Expression cos = plimsoll::engine::call("cos", angle), sin = plimsoll::engine::call("sin", angle);
    const double x = 0.5 * (width - 1), y = 0.5 * (height - 1);
    return {cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y};
  });
}

Layer random_zoom(Config& c) {
  const auto height_factor = read_range(c, "height_factor", {0, 0}, -1);
  const bool apart = c.value("width_factor") != nullptr;
  const auto width_factor = read_range(c, "width_factor", {0, 0}, -1);
  return affine_layer(c, [=](const BuildCall& call, double height, double width) -> Transform {
    const Expression rows = drawn(call, {1 + height_factor[0], 1 + height_factor[1]}, 0);
    const Expression columns = apart ? drawn(call, {1 + width_factor[0], 1 + width_factor[1]}, 1) : rows;
    const Expression zero = rows.filled(0);
    return {columns, zero, (1 - columns) * ((width - 1) / 2), zero, rows, (1 - rows) * ((height - 1) / 2)};
  });
}

Layer random_translation(Config& c) {
  const auto height_factor = read_range(c, "height_factor", {0, 0}, -1);
  const auto width_factor = read_range(c, "width_factor", {0, 0}, -1);
  return affine_layer(c, [=](const BuildCall& call, double height, double width) -> Transform {
    const Expression rows = drawn(call, height_factor, 0) * height, columns = drawn(call, width_factor, 1) * width;
    const Expression zero = rows.filled(0), one = rows.filled(1);
    return {one, zero, -columns, zero, one, -rows};
  });
}

Layer random_shear(Config& c) {
  const auto x_factor = read_range(c, "x_factor", {0, 0}, -1), y_factor = read_range(c, "y_factor", {0, 0}, -1);
  return affine_layer(c, [=](const BuildCall& call, double, double) -> Transform {
    const Expression u = drawn(call, {0, 1}, 0), zero = u.filled(0), one = u.filled(1);
    const Expression sign = select(greater(u, 0.5), -one, one);
    const Expression y = drawn(call, y_factor, 1) * sign, x = drawn(call, x_factor, 2) * sign;
    return {one, x, zero, y, one, zero};
  });
}

constexpr std::array kLayers = {
    LayerClass{"RandomRotation", random_rotation},
    LayerClass{"RandomZoom", random_zoom},
    LayerClass{"RandomTranslation", random_translation},
    LayerClass{"RandomShear", random_shear},
};

}  // namespace

std::span<const LayerClass> random_affine_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
