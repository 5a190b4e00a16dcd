// Keras's preprocessing layers for images inside a model: cropping, resizing, and random changes of images, which
// happen in training only. Rescaling and Normalization are in layers_norm_more.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/channels_first.h"
#include "model/preprocessing.h"
#include "model/random_numbers.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostPixels = 1 << 20;  // along one side

// A rectangle of an image.
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

struct Size {
  int64_t height = 0, width = 0;
};

Size read_size(Config& c) {
  return {c.integer("height", 1, kMostPixels), c.integer("width", 1, kMostPixels)};
}

// A layer from images to images. `output` returns the shape of its output.
Layer image_layer(Config& c, std::function<Result<Shape>(const Shape&)> output,
                  std::function<ValueId(const BuildCall&)> build) {
  const std::string where = c.where();
  c.ignore({"seed", "bounding_box_format"});
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], 3, where));
    PLIMSOLL_ASSIGN(Shape shape, output(in[0]));
    return LayerShape(std::move(shape));
  };
  layer.build = [build = std::move(build)](const BuildCall& call) -> LayerValues { return build(call); };
  return with_data_format(c, std::move(layer));
}

Layer resized_image_layer(Config& c, const Size& size, std::function<ValueId(const BuildCall&)> build) {
  const std::string where = c.where();
  const auto output = [=](const Shape& in) { return checked_shape({size.height, size.width, in[2]}, where); };
  return image_layer(c, output, std::move(build));
}

ValueId cropped(const BuildCall& call, ValueId x, const Box& box) {
  const Shape shape = call.shape(x);
  if (box.height == shape[1] && box.width == shape[2]) return x;
  return call.add("strided_slice", {x},
                  {{"begin", std::vector<int64_t>{0, box.top, box.left, 0}},
                   {"size", std::vector<int64_t>{shape[0], box.height, box.width, shape[3]}},
                   {"strides", std::vector<int64_t>{1, 1, 1, 1}}});
}

// Resizes columns, then rows, as TensorFlow does.
ValueId resized(const BuildCall& call, ValueId x, const Size& size, const std::string& method) {
  for (const auto& [axis, to] : {std::pair{int64_t{2}, size.width}, std::pair{int64_t{1}, size.height}})
    if (call.shape(x)[static_cast<size_t>(axis)] != to)
      x = call.add("resample", {x}, {{"axis", axis}, {"size", to}, {"method", method}});
  return x;
}

// The largest box in the middle of an image that has the aspect ratio of `size`. Number: the type in which Keras
// divides.
template <typename Number>
Box box_of_ratio(const Shape& image, const Size& size) {
  const auto ratio = [](int64_t a, int64_t b, int64_t c) {
    return static_cast<int64_t>(static_cast<Number>(a * b) / static_cast<Number>(c));
  };
  const auto half = [](int64_t n) { return static_cast<int64_t>(static_cast<Number>(n) / 2); };
  Box box;
  box.height = std::max<int64_t>(std::min(image[1], ratio(image[2], size.height, size.width)), 1);
  box.width = std::max<int64_t>(std::min(image[2], ratio(image[1], size.width, size.height)), 1);
  box.top = half(image[1] - box.height);
  box.left = half(image[2] - box.width);
  return box;
}

// Adds a margin, so that the image has the aspect ratio of `size`.
ValueId padded_to_ratio(const BuildCall& call, ValueId x, const Size& size, double value) {
  const Shape image = call.shape(x);
  const auto ratio = [](int64_t a, int64_t b, int64_t c) {
    return static_cast<int64_t>(static_cast<float>(a * b) / static_cast<float>(c));
  };
  const int64_t rows = std::max(image[1], ratio(image[2], size.height, size.width)) - image[1];
  const int64_t columns = std::max(image[2], ratio(image[1], size.width, size.height)) - image[2];
  // Keras adds half of it on both sides, and leaves out the odd row.
  const int64_t above = rows / 2, before = columns / 2;
  if (above == 0 && before == 0) return x;
  return call.add("pad", {x},
                  {{"pads", std::vector<int64_t>{0, 0, above, above, before, before, 0, 0}},
                   {"mode", std::string("constant")},
                   {"value", value}});
}

Layer center_crop(Config& c) {
  const Size size = read_size(c);
  return resized_image_layer(c, size, [=](const BuildCall& call) {
    const Shape image = call.shape(call.in());
    const int64_t rows = image[1] - size.height, columns = image[2] - size.width;
    if (rows >= 0 && columns >= 0) return cropped(call, call.in(), {rows / 2, columns / 2, size.height, size.width});
    return resized(call, cropped(call, call.in(), box_of_ratio<double>(image, size)), size, "bilinear");
  });
}

Layer resizing(Config& c) {
  const Size size = read_size(c);
  std::string method =
      c.choice("interpolation", {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area"}, "bilinear");
  if (method == "area") c.issues().unknown(fmt::format("{}: interpolation=\"area\"", c.where()));
  const bool crops = c.flag("crop_to_aspect_ratio", false), pads = c.flag("pad_to_aspect_ratio", false);
  if (crops && pads)
    c.issues().reject(
        fmt::format("{}: 'crop_to_aspect_ratio' and 'pad_to_aspect_ratio' cannot both be true", c.where()));
  c.choice("fill_mode", {"constant"}, "constant");
  const double fill = c.real("fill_value", 0);
  if (c.flag("antialias", false) && method != "nearest") method += "_antialias";
  return resized_image_layer(c, size, [=](const BuildCall& call) {
    ValueId x = call.in();
    if (crops) x = cropped(call, x, box_of_ratio<float>(call.shape(x), size));
    if (pads) x = padded_to_ratio(call, x, size, fill);
    return resized(call, x, size, method);
  });
}

ValueId flipped(const BuildCall& call, ValueId x, size_t axis) {
  const Shape shape = call.shape(x);
  std::vector<int64_t> begin(4, 0), strides(4, 1);
  begin[axis] = shape[axis] - 1;
  strides[axis] = -1;
  return call.add("strided_slice", {x}, {{"begin", begin}, {"size", shape.dims}, {"strides", strides}});
}

// One number per sample decides about both directions, as in Keras.
Layer random_flip(Config& c) {
  const std::string mode =
      c.choice("mode", {"horizontal", "vertical", "horizontal_and_vertical"}, "horizontal_and_vertical");
  c.ignore({"factor"});
  return random_image_layer(c, [=](const BuildCall& call) {
    const ValueId x = call.in();
    ValueId y = x;
    if (mode != "vertical") y = flipped(call, y, 2);
    if (mode != "horizontal") y = flipped(call, y, 1);
    const ValueId u = uniform_per_sample(call, x, 0, 1);
    return call.add("select", {call.add("less_equal", {u, constant_like(call.b, u, 0.5)}), y, x});
  });
}

ValueId clipped(const BuildCall& call, ValueId x, const std::array<double, 2>& range) {
  const ValueId below = call.add("minimum", {x, constant_like(call.b, x, range[1])});
  return call.add("maximum", {below, constant_like(call.b, below, range[0])});
}

Layer random_brightness(Config& c) {
  const auto factor = read_range(c, "factor", {0, 0}, -1), range = read_range(c, "value_range", {0, 255}, -1e300);
  return random_image_layer(c, [=](const BuildCall& call) {
    const double width = range[1] - range[0];
    const ValueId delta = uniform_per_sample(call, call.in(), factor[0] * width, factor[1] * width);
    return clipped(call, call.add("add", {call.in(), delta}), range);
  });
}

// The mean of each channel of each sample, in the shape of x.
ValueId channel_means(const BuildCall& call, ValueId x) {
  const Shape shape = call.shape(x);
  const ValueId sum = call.add("reduce_to", {x}, {{"shape", std::vector<int64_t>{shape[0], 1, 1, shape[3]}}});
  const double share = 1 / static_cast<double>(shape[1] * shape[2]);
  return broadcast_to(call.b, call.add("affine", {sum}, {{"scale", share}, {"offset", 0.0}}), shape);
}

Layer random_contrast(Config& c) {
  const auto factor = read_range(c, "factor", {0, 0}, 0), range = read_range(c, "value_range", {0, 255}, -1e300);
  return random_image_layer(c, [=](const BuildCall& call) {
    const ValueId x = call.in(), mean = channel_means(call, x);
    const ValueId contrast = uniform_per_sample(call, x, 1 - factor[0], 1 + factor[1]);
    const ValueId away = call.add("multiply", {call.add("subtract", {x, mean}), contrast});
    return clipped(call, call.add("add", {away, mean}), range);
  });
}

constexpr std::array kLayers = {
    LayerClass{"CenterCrop", center_crop},         LayerClass{"Resizing", resizing},
    LayerClass{"RandomFlip", random_flip},         LayerClass{"RandomBrightness", random_brightness},
    LayerClass{"RandomContrast", random_contrast},
};

}  // namespace

Layer random_image_layer(Config& c, std::function<ValueId(const BuildCall&)> build) {
  Layer layer = image_layer(
      c, [](const Shape& in) -> Result<Shape> { return in; },
      [build = std::move(build)](const BuildCall& call) { return call.training ? build(call) : call.in(); });
  layer.draws = true;
  return layer;
}

std::array<double, 2> read_range(Config& c, const char* key, std::array<double, 2> otherwise, double least) {
  const Json* value = c.value(key);
  if (!value) return otherwise;
  if (const auto one = as_number(*value)) return {std::max(-std::abs(*one), least), std::abs(*one)};
  if (value->is_array() && value->size() == 2) {
    const auto a = as_number((*value)[0]), b = as_number((*value)[1]);
    if (a && b) return {std::min(*a, *b), std::max(*a, *b)};
  }
  c.issues().reject(fmt::format("{}: '{}' must be a number or two numbers, got {}", c.where(), key, shown(*value)));
  return otherwise;
}

std::span<const LayerClass> preprocessing_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
