#include "model/channels_first.h"

#include <algorithm>
#include <numeric>

namespace plimsoll::engine {
namespace {

Shape channels_moved_last(const Shape& sample) {
  std::vector<int64_t> dims = sample.dims;
  if (!dims.empty()) std::rotate(dims.begin(), dims.begin() + 1, dims.end());
  return Shape(std::move(dims));
}

Shape channels_moved_first(const Shape& sample) {
  std::vector<int64_t> dims = sample.dims;
  if (!dims.empty()) std::rotate(dims.begin(), dims.end() - 1, dims.end());
  return Shape(std::move(dims));
}

// Moves the channels of a batch of images. If all sizes or the channels are 1, the elements keep their order.
ValueId moved(const BuildCall& call, ValueId image, bool to_last) {
  const Shape from = call.shape(image);
  if (from.rank() <= 2) return image;
  std::vector<int64_t> perm(from.rank());
  std::iota(perm.begin(), perm.end(), 0);
  if (to_last)
    std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  else
    std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  const int64_t channels = to_last ? from[1] : from.back(), pixels = from.elements() / (from[0] * channels);
  if (channels > 1 && pixels > 1) return call.add("transpose", {image}, {{"perm", perm}});
  std::vector<int64_t> dims;
  for (int64_t axis : perm) dims.push_back(from[static_cast<size_t>(axis)]);
  return call.add("reshape", {image}, {{"shape", dims}});
}

Layer channels_first(const Layer& inner) {
  Layer layer = inner;
  layer.shape = [inner](std::span<const Shape> in, Issues& issues) -> Result<LayerShape> {
    std::vector<Shape> last;
    for (const Shape& sample : in) last.push_back(channels_moved_last(sample));
    PLIMSOLL_ASSIGN(LayerShape made, inner.shape(last, issues));
    LayerShape shape = made;
    for (Shape& output : shape.outputs) output = channels_moved_first(output);
    shape.sublayers = {std::move(made)};
    return shape;
  };
  layer.build = [inner](const BuildCall& call) -> LayerValues {
    std::vector<ValueId> inputs;
    for (ValueId image : call.inputs) inputs.push_back(moved(call, image, true));
    const BuildCall last{call.b,         call.batch, call.precision, call.training, call.trainable,
                         call.call,      inputs,     call.masks,     call.weights,  call.computed.sublayers[0],
                         call.statistics};
    LayerValues made = inner.build(last);
    for (ValueId& output : made.outputs) output = moved(call, output, false);
    return made;
  };
  return layer;
}

}  // namespace

Layer with_data_format(Config& config, Layer layer) {
  const std::string format = config.choice("data_format", {"channels_last", "channels_first"}, "channels_last");
  return format == "channels_first" ? channels_first(layer) : layer;
}

}  // namespace plimsoll::engine
