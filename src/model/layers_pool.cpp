// Pooling, over windows and over whole images.
#include <fmt/format.h>

#include <array>

#include "model/layer.h"

namespace plimsoll {
namespace {

struct Pool {
  Config::Pair size, strides;
  bool same = false;
  std::string where;

  Result<std::array<KernelWindow, 2>> place(const Shape& in) const {
    PLIMSOLL_TRY(need_rank(in, 3, where));
    std::array<KernelWindow, 2> windows;
    for (size_t d = 0; d < 2; ++d) {
      PLIMSOLL_ASSIGN(windows[d], place_window(in[d], size[d], strides[d], same, where));
    }
    return windows;
  }
};

Layer pooling(Config& c, const std::string& op) {
  Pool pool;
  pool.size = c.pair("pool_size", 1, Config::Pair{2, 2});
  pool.strides = c.pair("strides", 1, pool.size);
  pool.same = c.choice("padding", {"valid", "same"}, "valid") == "same";
  pool.where = c.where();
  c.choice("data_format", {"channels_last"}, "channels_last");
  // The position of a maximum is kept in one byte.
  constexpr int64_t kLargestMaxWindow = 255;
  if (op == "max_pool2d" && pool.size[0] * pool.size[1] > kLargestMaxWindow)
    c.issues().unknown(fmt::format("{}: pool_size={}x{}, more than {} elements", c.where(), pool.size[0], pool.size[1],
                                   kLargestMaxWindow));
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_ASSIGN(const auto windows, pool.place(in[0]));
    PLIMSOLL_ASSIGN(Shape output, checked_shape({windows[0].output, windows[1].output, in[0][2]}, pool.where));
    return LayerShape{std::move(output), {}};
  };
  layer.build = [=](const BuildCall& call) {
    const Shape& in = call.shape(call.in());
    const auto w = pool.place(Shape{in[1], in[2], in[3]});
    assert(w);
    return call.add(op, {call.in()},
                    {{"pool", std::vector<int64_t>{pool.size[0], pool.size[1]}},
                     {"strides", std::vector<int64_t>{pool.strides[0], pool.strides[1]}},
                     {"pads", std::vector<int64_t>{(*w)[0].before, (*w)[0].after, (*w)[1].before, (*w)[1].after}}});
  };
  return layer;
}

Layer global_pooling(Config& c, const std::string& op) {
  const bool keep = c.flag("keepdims", false);
  c.choice("data_format", {"channels_last"}, "channels_last");
  const std::string where = c.where();
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    PLIMSOLL_TRY(need_rank(in[0], 3, where));
    return LayerShape{keep ? Shape{1, 1, in[0][2]} : Shape{in[0][2]}, {}};
  };
  layer.build = [=](const BuildCall& call) {
    const ValueId y = call.add(op, {call.in()});
    if (!keep) return y;
    return call.add("reshape", {y}, {{"shape", std::vector<int64_t>{call.batch, 1, 1, call.shape(y).back()}}});
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"MaxPooling2D", [](Config& c) { return pooling(c, "max_pool2d"); }},
    LayerClass{"AveragePooling2D", [](Config& c) { return pooling(c, "avg_pool2d"); }},
    LayerClass{"GlobalMaxPooling2D", [](Config& c) { return global_pooling(c, "global_max_pool2d"); }},
    LayerClass{"GlobalAveragePooling2D", [](Config& c) { return global_pooling(c, "global_avg_pool2d"); }},
};

}  // namespace

std::span<const LayerClass> pooling_layers() {
  return kLayers;
}

}  // namespace plimsoll
