// Operations that change the shape of a tensor or the order of its elements. The batch stays dimension 0.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "model/operation.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

std::vector<int64_t> identity_order(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The target shape. The batch is written as -1 or null; `sizes` is the rest.
struct Target {
  bool batch_first = false;
  int64_t first = 0;
  std::vector<int64_t> sizes;
  std::string text;
};

Target read_target(OpReader& r, const char* key) {
  Target target;
  const Json* value = r.config.value(key);
  target.text = value ? shown(*value) : "nothing";
  const Json list = value && value->is_array() ? *value : Json::array({value ? *value : Json()});
  for (size_t i = 0; i < list.size(); ++i) {
    const auto n = as_integer(list[i]);
    if (i == 0) {
      target.batch_first = list[i].is_null() || (n && *n == -1);
      target.first = n.value_or(0);
      continue;
    }
    target.sizes.push_back(n.value_or(list[i].is_null() ? -1 : 0));
  }
  return target;
}

// The target shape of a tensor without a batch; nullopt if a size is not known.
std::optional<std::vector<int64_t>> whole_target(const Target& target) {
  std::vector<int64_t> to{target.first};
  to.insert(to.end(), target.sizes.begin(), target.sizes.end());
  if (std::any_of(to.begin(), to.end(), [](int64_t size) { return size < 1; })) return std::nullopt;
  return to;
}

OpBody reshape(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Target target = read_target(r, "newshape");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const std::vector<int64_t> from = w.dims(in);
    if (!in.batched) {
      const auto to = whole_target(target);
      const bool fits = to && checked_shape(*to, "") && Shape(*to).elements() == Shape(from).elements();
      if (!fits) w.refuse(fmt::format("newshape={} of [{}]", target.text, fmt::join(from, ",")));
      return {fits ? w.reshape(in, *to) : in};
    }
    int64_t rest = 1;
    for (size_t d = 1; d < from.size(); ++d) rest *= from[d];
    int64_t product = 1;
    bool good = target.batch_first;
    std::vector<int64_t> to{from[0]};
    for (int64_t size : target.sizes) {
      good = good && size > 0 && size <= rest / product;
      if (!good) break;
      product *= size;
      to.push_back(size);
    }
    if (!good || product != rest) {
      w.refuse(
          fmt::format("newshape={} of a sample with {} elements: the first dimension must be -1 and stay the batch",
                      target.text, rest));
      return {in};
    }
    return {w.reshape(in, to)};
  };
}

OpBody broadcast_to(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Target target = read_target(r, "shape");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (!in.batched) {
      const auto to = whole_target(target);
      if (to && checked_shape(*to, "") && !w.has_batch()) return {w.broadcast(in, *to)};
      w.refuse(fmt::format("shape={} of a constant", target.text));
      return {in};
    }
    std::vector<int64_t> to{w.dims(in)[0]};
    to.insert(to.end(), target.sizes.begin(), target.sizes.end());
    if (!target.batch_first || to.size() != w.rank(in)) {
      w.refuse(fmt::format("shape={}: the first dimension must be None and stay the batch", target.text));
      return {in};
    }
    return {w.broadcast(in, to)};
  };
}

// Applies a permutation, which must leave the batch in place.
Operand permuted(OpWriter& w, const Operand& x, const std::vector<int64_t>& perm) {
  std::vector<int64_t> ordered = perm;
  std::sort(ordered.begin(), ordered.end());
  if (ordered != identity_order(w.rank(x)))
    w.fail(fmt::format("axes {} do not list each of {} dimensions once", fmt::join(perm, ","), w.rank(x)));
  else if (x.batched && perm[0] != 0)
    w.refuse("it moves the batch, which must stay the first dimension");
  return w.failed() ? x : w.transpose(x, perm);
}

OpBody transpose(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto axes = r.axes("axes");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    std::vector<int64_t> perm = identity_order(w.rank(in));
    std::reverse(perm.begin(), perm.end());
    if (axes) perm = *axes;
    for (int64_t& p : perm)
      if (p < 0) p += static_cast<int64_t>(w.rank(in));
    return {permuted(w, in, perm)};
  };
}

OpBody swap_axes(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const int64_t first = r.config.integer("axis1", -64, 64), second = r.config.integer("axis2", -64, 64);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const auto a = w.axis(first, w.rank(in)), b = w.axis(second, w.rank(in));
    if (!a || !b) return {in};
    std::vector<int64_t> perm = identity_order(w.rank(in));
    std::swap(perm[*a], perm[*b]);
    return {w.transpose(in, perm)};
  };
}

OpBody move_axis(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto source = r.axes("source"), destination = r.axes("destination");
  if (!source || !destination || source->size() != destination->size())
    r.reject("'source' and 'destination' must be lists of the same length");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const size_t rank = w.rank(in);
    std::vector<int64_t> perm(rank, -1), rest = identity_order(rank);
    for (size_t i = 0; source && destination && i < std::min(source->size(), destination->size()); ++i) {
      const auto from = positive_axis((*source)[i], rank), to = positive_axis((*destination)[i], rank);
      if (!from || !to || perm[static_cast<size_t>(*to)] != -1)
        w.fail("its axes are outside of the tensor or repeated");
      if (w.failed()) return {in};
      perm[static_cast<size_t>(*to)] = *from;
      rest.erase(std::remove(rest.begin(), rest.end(), *from), rest.end());
    }
    size_t next = 0;
    for (int64_t& p : perm)
      if (p == -1) p = next < rest.size() ? rest[next++] : 0;
    return {permuted(w, in, perm)};
  };
}

OpBody expand_dims(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto axes = r.axes("axis");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const std::vector<int64_t> list = axes.value_or(std::vector<int64_t>{});
    std::vector<size_t> places;
    for (int64_t one : list) {
      const auto at = w.axis(one, w.rank(in) + list.size());
      if (!at) return {in};
      places.push_back(*at);
    }
    std::sort(places.begin(), places.end());
    std::vector<int64_t> to = w.dims(in);
    for (size_t i = 0; i < places.size(); ++i) {
      const size_t at = places[i];
      if (i > 0 && at == places[i - 1]) w.fail("an axis is listed twice");
      if (w.failed()) return {in};
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(at), 1);
    }
    return {w.reshape(in, to)};
  };
}

OpBody squeeze(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto axes = r.axes("axis");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const std::vector<int64_t> from = w.dims(in);
    std::vector<size_t> places;
    if (axes) {
      for (int64_t one : *axes)
        if (const auto at = w.axis(one, from.size())) places.push_back(*at);
    } else {
      for (size_t d = in.batched ? 1 : 0; d < from.size(); ++d)
        if (from[d] == 1) places.push_back(d);
    }
    for (size_t at : places)
      if (from[at] != 1) w.fail(fmt::format("dimension {} has {} elements, not 1", at, from[at]));
    return {w.failed() ? in : w.without(in, places)};
  };
}

Operand flipped(OpWriter& w, const Operand& x, const std::vector<size_t>& axes) {
  const std::vector<int64_t> size = w.dims(x);
  std::vector<int64_t> begin(size.size(), 0), strides(size.size(), 1);
  for (size_t d : axes) {
    begin[d] = size[d] - 1;
    strides[d] = -1;
  }
  return w.strided_slice(x, begin, size, strides);
}

OpBody flip(OpReader& r, std::optional<std::vector<int64_t>> axes) {
  const OpArgument x = r.operand("x", 0);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (!axes) w.refuse("axis=None, which includes the batch");
    std::vector<size_t> places;
    for (int64_t one : axes.value_or(std::vector<int64_t>{}))
      if (const auto at = w.axis(one, w.rank(in))) places.push_back(*at);
    return {w.failed() ? in : flipped(w, in, places)};
  };
}

OpBody rotate(OpReader& r) {
  const OpArgument x = r.operand("array", 0);
  const int64_t turns = ((r.config.integer("k", -1000, 1000, 1) % 4) + 4) % 4;
  const auto axes = r.axes("axes");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const std::vector<int64_t> plane = axes.value_or(std::vector<int64_t>{0, 1});
    if (plane.size() != 2) w.fail("it takes two axes");
    if (w.failed()) return {in};
    const auto a = w.axis(plane[0], w.rank(in)), b = w.axis(plane[1], w.rank(in));
    if (a && b && *a == *b) w.fail("its two axes must differ");
    if (w.failed() || turns == 0) return {in};
    // Keras 3.15.1 on TensorFlow returns something else than NumPy here.
    if (turns == 2 && w.dims(in)[*a] != w.dims(in)[*b]) w.refuse("half a turn of a plane that is not square");
    if (turns == 2) return {flipped(w, in, {*a, *b})};
    std::vector<int64_t> perm = identity_order(w.rank(in));
    std::swap(perm[*a], perm[*b]);
    if (turns == 1) return {w.transpose(flipped(w, in, {*b}), perm)};
    return {flipped(w, w.transpose(in, perm), {*b})};
  };
}

OpBody roll(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto shifts = r.axes("shift"), axes = r.axes("axis");
  return [=](OpWriter& w) -> Operands {
    Operand made = x.get(w);
    if (!axes) w.refuse("axis=None, which includes the batch");
    for (size_t i = 0; !w.failed() && i < axes->size(); ++i) {
      const auto at = w.axis((*axes)[i], w.rank(made));
      const std::vector<int64_t> list = shifts.value_or(std::vector<int64_t>{0});
      if (list.size() != 1 && list.size() != axes->size()) w.fail("'shift' and 'axis' have different lengths");
      if (!at || w.failed()) break;
      const int64_t size = w.dims(made)[*at], shift = ((list[list.size() == 1 ? 0 : i] % size) + size) % size;
      if (shift == 0) continue;
      made = w.concat({w.slice(made, *at, size - shift, shift), w.slice(made, *at, 0, size - shift)}, *at);
    }
    return {made};
  };
}

// Repeats blocks of `inner` whole dimensions: [.., d, ..] becomes [.., times*d, ..] (tile) or every element of the axis
// stands `times` times in a row (repeat).
Operand repeated(OpWriter& w, const Operand& x, size_t axis, int64_t times, bool elements) {
  if (times == 1) return x;
  std::vector<int64_t> with = w.dims(x), to = with;
  const auto at = static_cast<std::ptrdiff_t>(axis) + (elements ? 1 : 0);
  with.insert(with.begin() + at, 1);
  const Operand open = w.reshape(x, with);
  with[static_cast<size_t>(at)] = times;
  to[axis] *= times;
  return w.reshape(w.broadcast(open, with), to);
}

OpBody tile(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto repeats = r.axes("repeats");
  return [=](OpWriter& w) -> Operands {
    Operand made = x.get(w);
    std::vector<int64_t> times = repeats.value_or(std::vector<int64_t>{});
    const size_t rank = w.rank(made);
    if (times.size() < rank) times.insert(times.begin(), rank - times.size(), 1);
    if (times.size() > rank || times[0] != 1) w.refuse("repeats of the batch, which must stay the first dimension");
    for (size_t d = 1; !w.failed() && d < rank; ++d) {
      if (times[d] < 1 || times[d] > kMostGeometry)
        w.fail(fmt::format("repeats must lie between 1 and {}, got {}", kMostGeometry, times[d]));
      else
        made = repeated(w, made, d, times[d], false);
    }
    return {made};
  };
}

OpBody repeat(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto repeats = r.axes("repeats");
  const auto axes = r.axes("axis");
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    if (!axes || axes->size() != 1) w.refuse("axis=None, which includes the batch");
    const auto at = w.failed() ? std::nullopt : w.axis((*axes)[0], w.rank(in));
    if (!at) return {in};
    const std::vector<int64_t> times = repeats.value_or(std::vector<int64_t>{});
    const int64_t size = w.dims(in)[*at];
    Constant ids{Constant::Type::kInteger, false, {}, {}};
    for (size_t i = 0; i < times.size(); ++i) {
      if (times[i] < 0 || times[i] > kMostGeometry) w.fail(fmt::format("repeats={}", times[i]));
      if (times.size() > 1 && !w.failed())
        ids.values.insert(ids.values.end(), static_cast<size_t>(times[i]), static_cast<double>(i));
      if (ids.values.size() > static_cast<size_t>(kMostConstants)) w.fail("the result is too large");
      if (w.failed()) return {in};
    }
    if (times.size() == 1 && times[0] > 0) return {repeated(w, in, *at, times[0], true)};
    if (times.size() != static_cast<size_t>(size) || ids.values.empty()) {
      w.fail(fmt::format("{} repeats for a dimension of {}", times.size(), size));
      return {in};
    }
    ids.shape = Shape{static_cast<int64_t>(ids.values.size())};
    return {w.gather(in, w.constant(ids), *at)};
  };
}

// One pair of numbers per dimension: given as one integer, one pair, or a list of pairs.
std::optional<std::vector<int64_t>> read_pads(const Json& value, size_t rank) {
  std::vector<int64_t> pads;
  const auto pair = [&](const Json& one) {
    const auto a = as_integer(one.is_array() && one.size() == 2 ? one[0] : one);
    const auto b = as_integer(one.is_array() && one.size() == 2 ? one[1] : one);
    if (!a || !b || *a < 0 || *b < 0 || *a > kMostGeometry || *b > kMostGeometry) return false;
    pads.insert(pads.end(), {*a, *b});
    return true;
  };
  const bool list = value.is_array() && !value.empty() && value[0].is_array();
  const Json& only = list && value.size() == 1 ? value[0] : value;
  for (size_t d = 0; d < rank; ++d) {
    if (list && value.size() > 1 && value.size() != rank) return std::nullopt;
    if (!pair(list && value.size() > 1 ? value[d] : only)) return std::nullopt;
  }
  return pads;
}

OpBody pad(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Json* given = r.config.value("pad_width");
  const Json width = given ? *given : Json();
  const std::string mode = r.config.choice("mode", {"constant", "reflect", "symmetric"}, "constant");
  const auto filling = r.optional_operand("constant_values", 1);
  if (filling && (filling->tensor || filling->constant.shape.rank() > 0))
    r.refuse("constant_values that is not a number");
  const double value =
      filling && !filling->tensor && !filling->constant.values.empty() ? filling->constant.values[0] : 0;
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const auto pads = read_pads(width, w.rank(in));
    if (!pads)
      w.fail(fmt::format("pad_width={} of {} dimensions", shown(width), w.rank(in)));
    else if ((*pads)[0] != 0 || (*pads)[1] != 0)
      w.refuse("padding of the batch");
    if (w.failed()) return {in};
    return {w.move("pad", in, {{"pads", *pads}, {"mode", mode}, {"value", value}})};
  };
}

// Blocks of block_size x block_size pixels become channels, or the reverse, in TensorFlow's order.
OpBody space_and_depth(OpReader& r, bool to_depth) {
  const OpArgument x = r.operand("x", 0);
  const int64_t b = r.config.integer("block_size", 1, kMostGeometry);
  const bool first =
      r.config.choice("data_format", {"channels_last", "channels_first"}, "channels_last") == "channels_first";
  return [=](OpWriter& w) -> Operands {
    const Operand given = x.get(w);
    if (w.rank(given) != 4) w.fail(fmt::format("it takes images, got [{}]", fmt::join(w.dims(given), ",")));
    if (w.failed()) return {given};
    const Operand in = first ? w.transpose(given, {0, 2, 3, 1}) : given;
    const std::vector<int64_t> d = w.dims(in);
    if (to_depth ? d[1] % b != 0 || d[2] % b != 0 : d[3] % (b * b) != 0)
      w.fail(fmt::format("blocks of {} do not fit into [{}]", b, fmt::join(d, ",")));
    if (w.failed()) return {given};
    Operand made;
    if (to_depth) {
      made = w.transpose(w.reshape(in, {d[0], d[1] / b, b, d[2] / b, b, d[3]}), {0, 1, 3, 2, 4, 5});
      made = w.reshape(made, {d[0], d[1] / b, d[2] / b, b * b * d[3]});
    } else {
      made = w.transpose(w.reshape(in, {d[0], d[1], d[2], b, b, d[3] / (b * b)}), {0, 1, 3, 2, 4, 5});
      made = w.reshape(made, {d[0], d[1] * b, d[2] * b, d[3] / (b * b)});
    }
    return {first ? w.transpose(made, {0, 3, 1, 2}) : made};
  };
}

constexpr std::array kOperations = {
    OpClass{"Reshape", reshape},
    OpClass{"BroadcastTo", broadcast_to},
    OpClass{"Transpose", transpose},
    OpClass{"Swapaxes", swap_axes},
    OpClass{"Moveaxis", move_axis},
    OpClass{"ExpandDims", expand_dims},
    OpClass{"Squeeze", squeeze},
    OpClass{"Flip", [](OpReader& r) { return flip(r, r.axes("axis")); }},
    OpClass{"Fliplr", [](OpReader& r) { return flip(r, std::vector<int64_t>{1}); }},
    OpClass{"Flipud", [](OpReader& r) { return flip(r, std::vector<int64_t>{0}); }},
    OpClass{"Rot90", rotate},
    OpClass{"Roll", roll},
    OpClass{"Tile", tile},
    OpClass{"Repeat", repeat},
    OpClass{"Pad", pad},
    OpClass{"SpaceToDepth", [](OpReader& r) { return space_and_depth(r, true); }},
    OpClass{"DepthToSpace", [](OpReader& r) { return space_and_depth(r, false); }},
};

}  // namespace

std::span<const OpClass> shape_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
