// Operators that move elements, and reductions over axes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "shrink/lite/fixed_point.h"
#include "shrink/lite/kernels.h"

namespace plimsoll::engine::lite {
namespace {

// Elements keep their bytes, so the types and the scales must be equal.
Status need_same(const Prepare& p, size_t input) {
  const Tensor &x = p.in(input), &y = p.out();
  if (x.type != y.type) return fail(bad_operator(p, "its input and its output have different types"));
  if (x.type != Type::kInt8 && x.type != Type::kUInt8) return {};
  if (x.quantization.scales != y.quantization.scales || x.quantization.zeros != y.quantization.zeros)
    return fail(not_supported(p, "its input and its output have different scales"));
  return {};
}

std::vector<int64_t> strides_of(const std::vector<int32_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// Calls move(from, to) for every element of a block of `size`; the steps say how the two positions move.
template <typename Move>
void walk(const std::vector<int64_t>& size, const std::vector<int64_t>& from_step, const std::vector<int64_t>& to_step,
          const Move& move) {
  int64_t all = 1, from = 0, to = 0;
  for (const int64_t n : size) all *= n;
  std::vector<int64_t> index(size.size());
  for (int64_t i = 0; i < all; ++i) {
    move(from, to);
    for (size_t d = size.size(); d-- > 0;) {
      from += from_step[d];
      to += to_step[d];
      if (++index[d] < size[d]) break;
      from -= from_step[d] * size[d];
      to -= to_step[d] * size[d];
      index[d] = 0;
    }
  }
}

Kernel move_kernel(const Prepare& p, std::vector<int64_t> size, std::vector<int64_t> from_step,
                   std::vector<int64_t> to_step, int64_t from_begin, int64_t to_begin) {
  const int32_t xi = p.at(0), yi = p.out_at();
  const Bytes element = size_of(p.out().type);
  return [=](const Buffers& b) {
    const std::byte* x = b.as<std::byte>(xi) + from_begin * element;
    std::byte* y = b.as<std::byte>(yi) + to_begin * element;
    walk(size, from_step, to_step, [&](int64_t from, int64_t to) {
      std::memcpy(y + to * element, x + from * element, static_cast<size_t>(element));
    });
  };
}

std::vector<int64_t> widened(const std::vector<int32_t>& list) {
  return {list.begin(), list.end()};
}

Result<Kernel> reshape(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 2));
  PLIMSOLL_TRY(need_same(p, 0));
  if (p.in(0).elements() != p.out().elements()) return fail(bad_operator(p, "its output has another size"));
  const int32_t xi = p.at(0), yi = p.out_at();
  const auto bytes = static_cast<size_t>(p.out().bytes());
  return Kernel([=](const Buffers& b) { std::memcpy(b.as<std::byte>(yi), b.as<std::byte>(xi), bytes); });
}

Result<Kernel> transpose(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  PLIMSOLL_TRY(need_same(p, 0));
  PLIMSOLL_ASSIGN(const auto perm, constant_list(p, 1));
  const auto& shape = p.in(0).shape;
  std::vector<int64_t> sorted = perm, expected(shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(expected.begin(), expected.end(), 0);
  if (sorted != expected) return fail(bad_operator(p, "its dimensions are not a permutation"));
  const auto steps = strides_of(shape);
  std::vector<int64_t> size, from;
  for (const int64_t d : perm) {
    size.push_back(shape[static_cast<size_t>(d)]);
    from.push_back(steps[static_cast<size_t>(d)]);
  }
  PLIMSOLL_TRY(need_shape(p, size));
  return move_kernel(p, size, from, strides_of(p.out().shape), 0, 0);
}

Result<Kernel> slice(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 3, 3));
  PLIMSOLL_TRY(need_same(p, 0));
  PLIMSOLL_ASSIGN(const auto begin, constant_list(p, 1));
  PLIMSOLL_ASSIGN(auto size, constant_list(p, 2));
  const auto& shape = p.in(0).shape;
  if (begin.size() != shape.size() || size.size() != shape.size())
    return fail(bad_operator(p, "its ranges do not fit"));
  const auto steps = strides_of(shape);
  int64_t first = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (begin[d] < 0 || begin[d] > shape[d]) return fail(bad_operator(p, "its ranges do not fit"));
    if (size[d] == -1) size[d] = shape[d] - begin[d];
    if (size[d] < 1 || size[d] > shape[d] - begin[d]) return fail(bad_operator(p, "its ranges do not fit"));
    first += begin[d] * steps[d];
  }
  PLIMSOLL_TRY(need_shape(p, size));
  return move_kernel(p, size, steps, strides_of(p.out().shape), first, 0);
}

Result<Kernel> pad(Prepare& p) {
  const bool given = p.node.op == Op::kPadV2;
  PLIMSOLL_TRY(need_inputs(p, given ? 3 : 2, given ? 3 : 2));
  PLIMSOLL_TRY(need_same(p, 0));
  PLIMSOLL_ASSIGN(const auto pads, constant_list(p, 1));
  const auto& shape = p.in(0).shape;
  if (pads.size() != 2 * shape.size()) return fail(bad_operator(p, "its padding does not fit"));
  const auto to = strides_of(p.out().shape);
  if (to.size() != shape.size()) return fail(bad_operator(p, "its padding does not fit"));
  std::vector<int64_t> out;
  int64_t first = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    constexpr int64_t kMost = int64_t{1} << 31;
    if (pads[2 * d] < 0 || pads[2 * d + 1] < 0 || pads[2 * d] > kMost || pads[2 * d + 1] > kMost)
      return fail(bad_operator(p, "its padding does not fit"));
    out.push_back(shape[d] + pads[2 * d] + pads[2 * d + 1]);
  }
  PLIMSOLL_TRY(need_shape(p, out));
  for (size_t d = 0; d < shape.size(); ++d) first += pads[2 * d] * to[d];
  std::array<std::byte, 8> fill{};
  const Bytes element = size_of(p.out().type);
  const auto& q = p.out().quantization;
  if (given) {
    if (!p.in(2).constant() || p.in(2).bytes() != element) return fail(not_supported(p, "its filling is computed"));
    std::memcpy(fill.data(), p.in(2).data.data(), static_cast<size_t>(element));
  } else if (!q.empty()) {
    fill[0] = static_cast<std::byte>(static_cast<uint8_t>(q.zero()));
  }
  const int32_t yi = p.out_at();
  const int64_t n = p.out().elements();
  const Kernel move = move_kernel(p, widened(shape), strides_of(shape), to, 0, first);
  return Kernel([=](const Buffers& b) {
    std::byte* y = b.as<std::byte>(yi);
    for (int64_t i = 0; i < n; ++i) std::memcpy(y + i * element, fill.data(), static_cast<size_t>(element));
    move(b);
  });
}

Result<Kernel> concat(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 1, 1 << 20));
  const size_t rank = p.out().shape.size();
  int64_t axis = p.options().axis;
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (axis < 0 || axis >= static_cast<int64_t>(rank)) return fail(bad_operator(p, "its axis does not exist"));
  if (p.options().activation != Activation::kNone) return fail(not_supported(p, "a fused activation"));
  const auto at = static_cast<size_t>(axis);
  struct Part {
    int32_t tensor = 0;
    int64_t bytes = 0;
  };
  std::vector<Part> parts;
  int64_t total = 0, outer = 1;
  Bytes inner = size_of(p.out().type);
  for (size_t d = 0; d < rank; ++d)
    if (d != at) (d < at ? outer : inner) *= p.out().shape[d];
  for (size_t i = 0; i < p.inputs(); ++i) {
    if (!p.has(i)) return fail(bad_operator(p, "an input is missing"));
    PLIMSOLL_TRY(need_same(p, i));
    const auto& shape = p.in(i).shape;
    if (shape.size() != rank) return fail(bad_operator(p, "its parts do not fit"));
    for (size_t d = 0; d < rank; ++d)
      if (d != at && shape[d] != p.out().shape[d]) return fail(bad_operator(p, "its parts do not fit"));
    total += shape[at];
    parts.push_back({p.at(i), shape[at] * inner});
  }
  if (total != p.out().shape[at]) return fail(bad_operator(p, "its parts do not fit"));
  const int32_t yi = p.out_at();
  return Kernel([=](const Buffers& b) {
    std::byte* y = b.as<std::byte>(yi);
    for (int64_t o = 0; o < outer; ++o)
      for (const Part& part : parts) {
        std::memcpy(y, b.as<std::byte>(part.tensor) + o * part.bytes, static_cast<size_t>(part.bytes));
        y += part.bytes;
      }
  });
}

Result<Kernel> gather(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  PLIMSOLL_TRY(need_same(p, 0));
  const auto &table = p.in(0).shape, &ids = p.in(1).shape;
  int64_t axis = p.options().axis;
  if (axis < 0) axis += static_cast<int64_t>(table.size());
  if (axis < 0 || axis >= static_cast<int64_t>(table.size())) return fail(bad_operator(p, "its axis does not exist"));
  if (p.in(1).type != Type::kInt32) return fail(not_supported(p, "indices that are not int32"));
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> shape(table.begin(), table.begin() + axis);
  shape.insert(shape.end(), ids.begin(), ids.end());
  shape.insert(shape.end(), table.begin() + axis + 1, table.end());
  PLIMSOLL_TRY(need_shape(p, shape));
  int64_t outer = 1;
  Bytes inner = size_of(p.out().type);
  for (size_t d = 0; d < table.size(); ++d)
    if (d != at) (d < at ? outer : inner) *= table[d];
  const int64_t rows = table[at], n = p.in(1).elements();
  const int32_t xi = p.at(0), ii = p.at(1), yi = p.out_at();
  return Kernel([=](const Buffers& b) {
    std::byte* y = b.as<std::byte>(yi);
    const int32_t* list = b.as<int32_t>(ii);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < n; ++i, y += inner) {
        if (list[i] < 0 || list[i] >= rows)
          std::memset(y, 0, static_cast<size_t>(inner));
        else
          std::memcpy(y, b.as<std::byte>(xi) + (o * rows + list[i]) * inner, static_cast<size_t>(inner));
      }
  });
}

// MEAN, SUM and REDUCE_MAX.
Result<Kernel> reduce(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  PLIMSOLL_ASSIGN(const auto axes, constant_list(p, 1));
  const auto& shape = p.in(0).shape;
  std::vector<bool> gone(shape.size());
  for (int64_t axis : axes) {
    if (axis < 0) axis += static_cast<int64_t>(shape.size());
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return fail(bad_operator(p, "its axis does not exist"));
    gone[static_cast<size_t>(axis)] = true;
  }
  std::vector<int64_t> out, to(shape.size());
  int64_t count = 1, step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (gone[d]) {
      count *= shape[d];
    } else {
      to[d] = step;
      step *= shape[d];
    }
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (!gone[d])
      out.push_back(shape[d]);
    else if (p.options().keep_dims)
      out.push_back(1);
  PLIMSOLL_TRY(need_shape(p, out));
  const Op op = p.node.op;
  const int32_t xi = p.at(0), yi = p.out_at();
  const auto size = widened(shape), from = strides_of(shape);
  const int64_t n = p.out().elements();
  if (p.floats()) {
    p.scratch = n * 8;
    return Kernel([=](const Buffers& b) {
      auto* sums = reinterpret_cast<double*>(b.room);
      const float* x = b.as<float>(xi);
      std::fill_n(sums, n, op == Op::kReduceMax ? -INFINITY : 0.0);
      walk(size, from, to, [&](int64_t i, int64_t o) {
        if (op == Op::kReduceMax)
          sums[o] = std::max<double>(sums[o], x[i]);
        else
          sums[o] += x[i];
      });
      for (int64_t o = 0; o < n; ++o)
        b.as<float>(yi)[o] = static_cast<float>(op == Op::kMean ? sums[o] / static_cast<double>(count) : sums[o]);
    });
  }
  if (!p.int8() || op == Op::kSum) return fail(not_supported(p, fmt::format("type {}", name_of(p.in(0).type))));
  if (op == Op::kReduceMax) PLIMSOLL_TRY(need_same(p, 0));
  p.scratch = n * 8;
  const Quantization &qx = p.in(0).quantization, &qo = p.out().quantization;
  const double factor = double{qx.scale()} / double{qo.scale()};
  const int32_t zx = qx.zero(), zo = qo.zero();
  return Kernel([=](const Buffers& b) {
    auto* sums = reinterpret_cast<int64_t*>(b.room);
    const int8_t* x = b.as<int8_t>(xi);
    std::fill_n(sums, n, op == Op::kReduceMax ? -128 : 0);
    walk(size, from, to, [&](int64_t i, int64_t o) {
      if (op == Op::kReduceMax)
        sums[o] = std::max<int64_t>(sums[o], x[i]);
      else
        sums[o] += x[i];
    });
    for (int64_t o = 0; o < n; ++o) {
      if (op == Op::kReduceMax) {
        b.as<int8_t>(yi)[o] = static_cast<int8_t>(sums[o]);
        continue;
      }
      const double mean = static_cast<double>(sums[o] - count * zx) / static_cast<double>(count);
      b.as<int8_t>(yi)[o] = Clamp()(static_cast<int64_t>(std::round(mean * factor)) + zo);
    }
  });
}

// Nearest neighbours and bilinear, of images.
Result<Kernel> resize(Prepare& p) {
  PLIMSOLL_TRY(need_inputs(p, 2, 2));
  PLIMSOLL_ASSIGN(const auto size, constant_list(p, 1));
  const auto& in = p.in(0).shape;
  if (in.size() != 4 || size.size() != 2) return fail(bad_operator(p, "its input is not an image"));
  PLIMSOLL_TRY(need_shape(p, {in[0], size[0], size[1], in[3]}));
  const bool nearest = p.node.op == Op::kResizeNearest, centers = p.options().half_pixel_centers;
  const int64_t samples = in[0], h = in[1], w = in[2], c = in[3], oh = size[0], ow = size[1];
  const int32_t xi = p.at(0), yi = p.out_at();
  const float sy = static_cast<float>(h) / static_cast<float>(oh), sx = static_cast<float>(w) / static_cast<float>(ow);
  const auto at = [centers](int64_t i, float scale) {
    return centers ? (static_cast<float>(i) + 0.5F) * scale : static_cast<float>(i) * scale;
  };
  if (nearest) {
    PLIMSOLL_TRY(need_same(p, 0));
    const Bytes pixel = c * size_of(p.out().type);
    return Kernel([=](const Buffers& b) {
      std::byte* y = b.as<std::byte>(yi);
      for (int64_t s = 0; s < samples; ++s)
        for (int64_t i = 0; i < oh; ++i)
          for (int64_t j = 0; j < ow; ++j, y += pixel) {
            const int64_t r = std::clamp<int64_t>(static_cast<int64_t>(std::floor(at(i, sy))), 0, h - 1);
            const int64_t q = std::clamp<int64_t>(static_cast<int64_t>(std::floor(at(j, sx))), 0, w - 1);
            std::memcpy(y, b.as<std::byte>(xi) + ((s * h + r) * w + q) * pixel, static_cast<size_t>(pixel));
          }
    });
  }
  if (!p.floats()) return fail(not_supported(p, fmt::format("type {}", name_of(p.in(0).type))));
  return Kernel([=](const Buffers& b) {
    float* y = b.as<float>(yi);
    const float half = centers ? 0.5F : 0.0F;
    for (int64_t s = 0; s < samples; ++s)
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j, y += c) {
          const float fy = at(i, sy) - half, fx = at(j, sx) - half;
          const auto y0 = static_cast<int64_t>(std::floor(fy)), x0 = static_cast<int64_t>(std::floor(fx));
          const float ty = fy - static_cast<float>(y0), tx = fx - static_cast<float>(x0);
          const auto row = [&](int64_t r) { return std::clamp<int64_t>(r, 0, h - 1); };
          const auto column = [&](int64_t q) { return std::clamp<int64_t>(q, 0, w - 1); };
          const auto pixel = [&](int64_t r, int64_t q) {
            return b.as<float>(xi) + ((s * h + row(r)) * w + column(q)) * c;
          };
          const float *a = pixel(y0, x0), *d = pixel(y0, x0 + 1), *e = pixel(y0 + 1, x0), *f = pixel(y0 + 1, x0 + 1);
          for (int64_t k = 0; k < c; ++k)
            y[k] = (a[k] * (1 - tx) + d[k] * tx) * (1 - ty) + (e[k] * (1 - tx) + f[k] * tx) * ty;
        }
  });
}

constexpr std::array kKernels = {
    KernelRow{Op::kReshape, reshape},
    KernelRow{Op::kTranspose, transpose},
    KernelRow{Op::kSlice, slice},
    KernelRow{Op::kPad, pad},
    KernelRow{Op::kPadV2, pad},
    KernelRow{Op::kConcat, concat},
    KernelRow{Op::kGather, gather},
    KernelRow{Op::kMean, reduce},
    KernelRow{Op::kSum, reduce},
    KernelRow{Op::kReduceMax, reduce},
    KernelRow{Op::kResizeNearest, resize},
    KernelRow{Op::kResizeBilinear, resize},
};

}  // namespace

std::span<const KernelRow> movement_kernels() {
  return kKernels;
}

}  // namespace plimsoll::engine::lite
