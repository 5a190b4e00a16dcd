// Functions of keras.ops on images that move, cut or weigh pixels: crops, margins, patches, edges, grey images.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/operation.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

using Dims = std::vector<int64_t>;

bool channels_first(OpReader& r) {
  return r.config.choice("data_format", {"channels_last", "channels_first"}, "channels_last") == "channels_first";
}

// Runs a function of images [N,H,W,C] or volumes, whose channels may be the first dimension of the file.
Operands on_images(OpWriter& w, const OpArgument& x, size_t spatial, bool first,
                   const std::function<Operand(const Operand&)>& body) {
  const Operand in = x.get(w);
  const size_t rank = spatial + 2;
  if (w.rank(in) != rank)
    w.refuse(fmt::format("[{}] of the batch and a sample: it needs {} dimensions", fmt::join(w.dims(in), ","), rank));
  if (w.failed()) return {in};
  if (!first) return {body(in)};
  Dims last{0}, back{0, static_cast<int64_t>(rank) - 1};
  for (size_t d = 2; d < rank; ++d) last.push_back(static_cast<int64_t>(d));
  last.push_back(1);
  for (size_t d = 1; d + 1 < rank; ++d) back.push_back(static_cast<int64_t>(d));
  const Operand made = body(w.transpose(in, last));
  // Results of edges have one more dimension behind the channels.
  for (size_t d = rank; !w.failed() && d < w.rank(made); ++d) back.push_back(static_cast<int64_t>(d));
  return {w.failed() ? in : w.transpose(made, back)};
}

// Two of: the margin before, the margin after, the size of the result. Keras computes the third.
struct Edges {
  std::optional<int64_t> before, after, target;
};

std::optional<int64_t> optional_size(OpReader& r, const std::string& key) {
  const Json* value = r.config.value(key);
  const auto size = value ? as_integer(*value) : std::nullopt;
  if (value && (!size || *size < 0 || *size > kMostGeometry)) r.reject(fmt::format("{}={}", key, shown(*value)));
  return size;
}

// Crops images, or adds margins of zeros.
OpBody margins(OpReader& r, const std::string& what, bool crops) {
  const OpArgument x = r.operand("images", 0);
  const bool first = channels_first(r);
  std::array<Edges, 2> edges;
  const std::array<std::array<const char*, 3>, 2> names{
      {{"top_", "bottom_", "target_height"}, {"left_", "right_", "target_width"}}};
  for (size_t d = 0; d < 2; ++d)
    edges[d] = {optional_size(r, names[d][0] + what), optional_size(r, names[d][1] + what),
                optional_size(r, names[d][2])};
  return [=](OpWriter& w) {
    return on_images(w, x, 2, first, [&](const Operand& in) {
      Operand made = in;
      Dims pads(8, 0);
      for (size_t d = 0; d < 2; ++d) {
        const int64_t size = w.dims(in)[d + 1];
        const Edges& e = edges[d];
        if (!e.before + !e.after + !e.target != 1)
          w.fail("two of the margins and the size of the result must be given");
        if (w.failed()) return in;
        const int64_t change = e.target ? (crops ? size - *e.target : *e.target - size) : *e.before + *e.after;
        const int64_t before = e.before ? *e.before : change - *e.after, after = change - before;
        if (before < 0 || after < 0 || (crops && change >= size))
          w.fail(fmt::format("margins of {} and {} pixels of {}", before, after, size));
        if (w.failed()) return in;
        if (crops) made = w.slice(made, d + 1, before, size - change);
        pads[2 * d + 2] = before;
        pads[2 * d + 3] = after;
      }
      return crops ? made : w.move("pad", in, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
    });
  };
}

struct Patches {
  Dims size, strides, dilation;
  bool same = false;
};

// Patches without overlap are a transposition.
Operand tiles(OpWriter& w, const Operand& in, const Patches& p, const Dims& counts) {
  Operand made = in;
  Dims split{w.dims(in)[0]}, perm{0}, inside, to{w.dims(in)[0]};
  int64_t elements = w.dims(in).back();
  for (size_t d = 0; d < counts.size(); ++d) {
    made = w.slice(made, d + 1, 0, counts[d] * p.size[d]);
    perm.push_back(static_cast<int64_t>(split.size()));
    inside.push_back(static_cast<int64_t>(split.size()) + 1);
    split.insert(split.end(), {counts[d], p.size[d]});
    to.push_back(counts[d]);
    elements *= p.size[d];
  }
  inside.push_back(static_cast<int64_t>(split.size()));
  split.push_back(w.dims(in).back());
  perm.insert(perm.end(), inside.begin(), inside.end());
  to.push_back(elements);
  return w.reshape(w.transpose(w.reshape(made, split), perm), to);
}

// The patches of images or volumes [N,...,C], as channels in the order of the window, then C.
Operand patches(OpWriter& w, const Operand& in, const Patches& p) {
  constexpr int64_t kMostPositions = 256;
  const size_t spatial = p.size.size();
  const Dims from = w.dims(in);
  Dims counts, pads(2 * (spatial + 2), 0);
  bool apart = true;
  int64_t positions = 1;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t reach = (p.size[d] - 1) * p.dilation[d] + 1;
    const auto window = place_window(from[d + 1], reach, p.strides[d], p.same, "patches");
    if (!window || window->output < 1) w.fail(fmt::format("patches of {} pixels of {}", reach, from[d + 1]));
    if (w.failed()) return in;
    counts.push_back(window->output);
    pads[2 * d + 2] = window->before;
    pads[2 * d + 3] = window->after;
    apart = apart && p.strides[d] == p.size[d] && p.dilation[d] == 1 && window->before + window->after == 0;
    positions *= p.size[d];
  }
  if (apart) return tiles(w, in, p, counts);
  if (positions > kMostPositions)
    w.refuse(fmt::format("patches of {} pixels that overlap (the most are {})", positions, kMostPositions));
  if (w.failed()) return in;
  const bool padded = std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n > 0; });
  const Operand whole =
      padded ? w.move("pad", in, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}}) : in;
  Operands parts;
  for (int64_t at = 0; at < positions; ++at) {
    Dims begin(from.size(), 0), size = from, strides(from.size(), 1);
    int64_t rest = at;
    for (size_t d = spatial; d-- > 0; rest /= p.size[d]) {
      begin[d + 1] = rest % p.size[d] * p.dilation[d];
      size[d + 1] = counts[d];
      strides[d + 1] = p.strides[d];
    }
    parts.push_back(w.strided_slice(whole, begin, size, strides));
  }
  return w.concat(parts, spatial + 1);
}

// One number for all dimensions, or one for each.
Dims read_sizes(OpReader& r, const char* key, size_t count, const Dims& otherwise) {
  auto list = r.axes(key).value_or(otherwise);
  if (list.size() == 1) list.assign(count, list[0]);
  const bool good = list.size() == count &&
                    std::all_of(list.begin(), list.end(), [](int64_t n) { return n >= 1 && n <= kMostGeometry; });
  if (!good) r.reject(fmt::format("'{}' must be {} sizes, got {}", key, count, fmt::join(list, ",")));
  return good ? list : Dims(count, 1);
}

OpBody extract_patches(OpReader& r) {
  const OpArgument x = r.operand("images", 0);
  const Json* given = r.config.value("size");
  const size_t spatial = given && given->is_array() && given->size() == 3 ? 3 : 2;
  Patches p;
  p.size = read_sizes(r, "size", spatial, {});
  p.strides = read_sizes(r, "strides", spatial, p.size);
  p.dilation = read_sizes(r, "dilation_rate", spatial, Dims(spatial, 1));
  p.same = r.config.choice("padding", {"valid", "same"}, "valid") == "same";
  const bool first = channels_first(r);
  return [=](OpWriter& w) {
    return on_images(w, x, spatial, first, [&](const Operand& in) { return patches(w, w.floats(in), p); });
  };
}

// The windows of unfold and fold, and the margin of zeros around the image.
struct Windows {
  Patches patches;
  Dims margin;
};

Windows read_windows(OpReader& r) {
  Windows w;
  w.patches.size = read_sizes(r, "kernel_size", 2, {});
  w.patches.dilation = read_sizes(r, "dilation", 2, {1, 1});
  w.patches.strides = read_sizes(r, "stride", 2, {1, 1});
  w.margin = r.axes("padding").value_or(Dims{0, 0});
  if (w.margin.size() == 1) w.margin.push_back(w.margin[0]);
  if (w.margin.size() != 2 || std::min(w.margin[0], w.margin[1]) < 0 ||
      std::max(w.margin[0], w.margin[1]) > kMostGeometry) {
    r.reject("'padding' must be one or two sizes");
    w.margin = {0, 0};
  }
  return w;
}

// Patches of images [N,C,H,W], with the places as the last dimension.
OpBody unfold(OpReader& r) {
  const OpArgument x = r.operand("input", 0);
  const auto [p, margin] = read_windows(r);
  return [=, p = p, margin = margin](OpWriter& w) -> Operands {
    Operand in = w.floats(x.get(w));
    if (w.rank(in) != 4) w.fail("its input must be [batch, channels, height, width]");
    if (w.failed()) return {in};
    in = w.transpose(in, {0, 2, 3, 1});
    const Dims pads{0, 0, margin[0], margin[0], margin[1], margin[1], 0, 0};
    if (margin[0] + margin[1] > 0)
      in = w.move("pad", in, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
    const int64_t channels = w.dims(in).back();
    const Operand made = patches(w, in, p);
    if (w.failed()) return {in};
    const Dims at = w.dims(made);
    const Operand apart = w.reshape(made, {at[0], at[1] * at[2], p.size[0] * p.size[1], channels});
    return {w.reshape(w.transpose(apart, {0, 3, 2, 1}), {at[0], at[3], at[1] * at[2]})};
  };
}

// The number of windows along a dimension of `size` elements, margins included.
int64_t count_windows(const Patches& p, size_t d, int64_t size) {
  const int64_t room = size - p.dilation[d] * (p.size[d] - 1) - 1;
  return room < 0 ? 0 : room / p.strides[d] + 1;
}

// Adds up patches where they overlap: the reverse of unfold.
OpBody fold(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Dims size = read_sizes(r, "output_size", 2, {});
  const auto [p, margin] = read_windows(r);
  return [=, p = p, margin = margin](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w));
    const Dims from = w.dims(in);
    const int64_t height = size[0] + 2 * margin[0], width = size[1] + 2 * margin[1];
    const int64_t rows = count_windows(p, 0, height), columns = count_windows(p, 1, width);
    const int64_t positions = p.size[0] * p.size[1];
    if (from.size() != 3 || from[1] % positions != 0 || from[2] != rows * columns || rows * columns < 1)
      w.fail(
          fmt::format("[{}] is not [batch, channels * {}, {} * {}]", fmt::join(from, ","), positions, rows, columns));
    else if (positions > kMostConstants / from[2])
      w.refuse(fmt::format("{} patches of {} pixels", from[2], positions));
    if (w.failed()) return {in};
    Constant ids{Constant::Type::kInteger, false, Shape{positions * from[2]}, {}};
    for (int64_t k = 0; k < positions; ++k)
      for (int64_t at = 0; at < from[2]; ++at) {
        const int64_t row = at / columns * p.strides[0] + k / p.size[1] * p.dilation[0];
        const int64_t column = at % columns * p.strides[1] + k % p.size[1] * p.dilation[1];
        ids.values.push_back(static_cast<double>(row * width + column));
      }
    const int64_t channels = from[1] / positions;
    const Operand flat = w.reshape(in, {from[0], channels, positions * from[2]});
    const ValueId sums =
        w.nodes("scatter_add", {flat.id, w.constant(ids).id}, {{"axis", int64_t{2}}, {"size", height * width}})[0];
    const Operand whole = w.reshape(OpWriter::value(sums), {from[0], channels, height, width});
    return {w.slice(w.slice(whole, 2, margin[0], size[0]), 3, margin[1], size[1])};
  };
}

OpBody grayscale(OpReader& r) {
  const OpArgument x = r.operand("images", 0);
  const bool first = channels_first(r);
  return [=](OpWriter& w) {
    return on_images(w, x, 2, first, [&](const Operand& in) {
      const int64_t channels = w.dims(in)[3];
      if (channels != 1 && channels != 3) w.fail(fmt::format("images of {} channels, 1 or 3 were expected", channels));
      if (w.failed() || channels == 1) return in;
      const Operand numbers = w.floats(in);
      const auto part = [&](int64_t c, double weight) { return w.affine(w.slice(numbers, 3, c, 1), weight, 0); };
      return w.as_kind(w.add(w.add(part(0, 0.2989), part(1, 0.5870)), part(2, 0.1140)), in.kind);
    });
  };
}

// The derivative along one dimension, smoothed along the other. The images have a margin of one pixel.
Operand sobel(OpWriter& w, const Operand& x, size_t along, size_t across) {
  const auto part = [&](const Operand& a, size_t axis, int64_t at) {
    return w.slice(a, axis, at, w.dims(a)[axis] - 2);
  };
  const Operand slope = w.subtract(part(x, along, 2), part(x, along, 0));
  const Operand ends = w.add(part(slope, across, 0), part(slope, across, 2));
  Operand made = w.add(ends, w.affine(part(slope, across, 1), 2, 0));
  Dims to = w.dims(made);
  to.push_back(1);
  return w.reshape(made, to);
}

OpBody sobel_edges(OpReader& r) {
  const OpArgument x = r.operand("images", 0);
  const bool first = channels_first(r);
  return [=](OpWriter& w) {
    return on_images(w, x, 2, first, [&](const Operand& in) {
      if (w.dims(in)[1] < 2 || w.dims(in)[2] < 2) w.fail("images of one row or column");
      if (w.failed()) return in;
      const Operand wide =
          w.move("pad", w.floats(in),
                 {{"pads", Dims{0, 0, 1, 1, 1, 1, 0, 0}}, {"mode", std::string("reflect")}, {"value", 0.0}});
      return w.concat({sobel(w, wide, 1, 2), sobel(w, wide, 2, 1)}, 4);
    });
  };
}

// Overlapping parts of the last axis, as a new dimension before it.
OpBody extract_sequences(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const int64_t length = r.config.integer("sequence_length", 1, kMostGeometry);
  const int64_t stride = r.config.integer("sequence_stride", 1, kMostGeometry);
  return [=](OpWriter& w) -> Operands {
    const Operand in = x.get(w);
    const Dims from = w.dims(in);
    const int64_t count = from.empty() ? 0 : (from.back() - length) / stride + 1;
    if (from.size() < 2) w.refuse("parts of the batch");
    if (!w.failed() && (from.back() < length || count * length > kMostConstants))
      w.fail(fmt::format("{} sequences of {} elements of {}", count, length, from.back()));
    if (w.failed()) return {in};
    Constant ids{Constant::Type::kInteger, false, Shape{count * length}, {}};
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < length; ++j) ids.values.push_back(static_cast<double>(i * stride + j));
    Dims to = from;
    to.back() = count;
    to.push_back(length);
    return {w.reshape(w.gather(in, w.constant(ids), from.size() - 1), to)};
  };
}

constexpr std::array kOperations = {
    OpClass{"CropImages", [](OpReader& r) { return margins(r, "cropping", true); }},
    OpClass{"PadImages", [](OpReader& r) { return margins(r, "padding", false); }},
    OpClass{"ExtractPatches", extract_patches},
    OpClass{"Unfold", unfold},
    OpClass{"Fold", fold},
    OpClass{"RGBToGrayscale", grayscale},
    OpClass{"SobelEdges", sobel_edges},
    OpClass{"ExtractSequences", extract_sequences},
};

}  // namespace

std::span<const OpClass> image_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
