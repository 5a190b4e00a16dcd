// Layers that change the size of an image of one or two spatial dimensions: zero padding, cropping, up-sampling.
#include <fmt/format.h>

#include <array>

#include "model/channels_first.h"
#include "model/geometry.h"

namespace plimsoll::engine {
namespace {

using Margins = std::vector<std::array<int64_t, 2>>;  // before and after the image, per dimension

std::vector<int64_t> margin_pads(const Margins& margins) {
  std::vector<KernelWindow> windows;
  for (const auto& [before, after] : margins) windows.push_back({0, before, after});
  return op_pads(windows);
}

// pad2d adds the margins, crop2d removes them.
Layer change_margins(Config& c, const Margins& margins, const std::string& op) {
  const std::string where = c.where();
  const int64_t sign = op == "pad2d" ? 1 : -1;
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], margins.size() + 1, where));
    std::vector<int64_t> dims = in[0].dims;
    for (size_t d = 0; d < margins.size(); ++d) {
      dims[d] += sign * (margins[d][0] + margins[d][1]);
      if (dims[d] < 1)
        return fail(ErrorCode::kBadGeometry, fmt::format("{}: cropping {} and {} removes all of {}", where,
                                                         margins[d][0], margins[d][1], in[0][d]));
    }
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId x = as_image(call, call.in(), margins.size());
    return as_output(call, call.add(op, {x}, {{"pads", margin_pads(margins)}}), margins.size());
  };
  return with_data_format(c, layer);
}

Layer zero_padding(Config& c, size_t rank) {
  return change_margins(c, c.margins("padding", rank, 1), "pad2d");
}

Layer cropping(Config& c, size_t rank) {
  return change_margins(c, c.margins("cropping", rank, rank == 1 ? 1 : 0), "crop2d");
}

// Repeats the planes, then the pixels of every plane.
ValueId repeat_voxels(const BuildCall& call, const Sizes& size) {
  const Shape in = call.shape(call.in());
  const auto repeated = [&](ValueId image, std::vector<int64_t> dims, Sizes factors) {
    const ValueId x = call.add("reshape", {image}, {{"shape", std::move(dims)}});
    return call.add("upsample2d", {x}, {{"size", std::move(factors)}, {"interpolation", "nearest"}});
  };
  const ValueId planes = repeated(call.in(), {in[0], in[1], in[2] * in[3], in[4]}, {size[0], 1});
  const ValueId pixels = repeated(planes, {in[0] * in[1] * size[0], in[2], in[3], in[4]}, {size[1], size[2]});
  return call.add("reshape", {pixels}, {{"shape", call.output_dims()}});
}

// Keras resizes images by ops of TensorFlow: bicubic and Lanczos interpolation work on one dimension after the other.
ValueId interpolated(const BuildCall& call, const Sizes& size, const std::string& method) {
  ValueId y = call.in();
  for (size_t d = 0; d < size.size(); ++d)
    y = call.add("resample", {y},
                 {{"axis", static_cast<int64_t>(d + 1)}, {"size", call.shape(y)[d + 1] * size[d]}, {"method", method}});
  return y;
}

Layer up_sampling(Config& c, size_t rank) {
  const Sizes size = c.sizes("size", rank, 1, Sizes(rank, 2));
  std::string interpolation = "nearest";
  if (rank == 2)
    interpolation = c.choice("interpolation", {"nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"}, "nearest");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], rank + 1, where));
    std::vector<int64_t> dims = in[0].dims;
    for (size_t d = 0; d < rank; ++d) dims[d] *= size[d];
    return checked_shape(std::move(dims), where);
  };
  layer.build = [=](const BuildCall& call) {
    if (rank == 3) return repeat_voxels(call, size);
    if (interpolation != "nearest" && interpolation != "bilinear") return interpolated(call, size, interpolation);
    const ValueId y = call.add("upsample2d", {as_image(call, call.in(), rank)},
                               {{"size", op_sizes(size)}, {"interpolation", interpolation}});
    return as_output(call, y, rank);
  };
  return rank == 1 ? layer : with_data_format(c, layer);
}

constexpr std::array kLayers = {
    LayerClass{"ZeroPadding1D", [](Config& c) { return zero_padding(c, 1); }},
    LayerClass{"ZeroPadding2D", [](Config& c) { return zero_padding(c, 2); }},
    LayerClass{"Cropping1D", [](Config& c) { return cropping(c, 1); }},
    LayerClass{"Cropping2D", [](Config& c) { return cropping(c, 2); }},
    LayerClass{"UpSampling1D", [](Config& c) { return up_sampling(c, 1); }},
    LayerClass{"UpSampling2D", [](Config& c) { return up_sampling(c, 2); }},
    LayerClass{"UpSampling3D", [](Config& c) { return up_sampling(c, 3); }},
};

}  // namespace

std::span<const LayerClass> image_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
