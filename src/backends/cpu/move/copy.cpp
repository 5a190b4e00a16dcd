// Recipes for ops that move elements without arithmetic: reshape, concat, slice, broadcast, fill, constant, pad2d,
// crop2d, and casts to types other than float32.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/fused/program.h"
#include "backends/cpu/half/convert.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/recipe.h"
#include "ops/build.h"

namespace plimsoll::engine::cpu {

namespace {

constexpr Bytes kGrainBytes = 128 * kKiB;  // fewer bytes are not worth another thread

// `count` strips of `bytes` each; source and destination have their own strides.
struct Strips {
  int64_t count;
  Bytes bytes, from_stride, to_stride;
};

void copy_strips(int threads, const Strips& s, const char* from, char* to) {
  parallel_ranges(threads, s.count, 1 + kGrainBytes / s.bytes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + i * s.to_stride, from + i * s.from_stride, static_cast<size_t>(s.bytes));
  });
}

Recipe reshape(const Problem& p) {
  const Bytes bytes = p.in(0).type.bytes();
  // Usually the plan places the view over its input, and there is nothing to copy.
  return own_recipe("view", 0, 0, [bytes, threads = p.machine.threads](const BoundNode& node) {
    return [=, from = input<const char>(node, 0), to = output<char>(node, 0)] {
      if (from == to) return;
      parallel_ranges(threads, bytes, kGrainBytes, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
      });
    };
  });
}

// The number of elements before an axis, and the bytes after it.
std::pair<int64_t, Bytes> around(const TensorType& type, size_t axis) {
  int64_t outer = 1;
  Bytes inner = size_of(type.dtype);
  for (size_t d = 0; d < type.shape.rank(); ++d) {
    if (d < axis) outer *= type.shape[d];
    if (d > axis) inner *= type.shape[d];
  }
  return {outer, inner};
}

Recipe concat(const Problem& p) {
  const auto axis = static_cast<size_t>(p.attrs().integer("axis"));
  const auto [outer, inner] = around(p.out(0).type, axis);
  std::vector<Strips> strips;
  for (size_t i = 0; i < p.inputs(); ++i) {
    const Bytes bytes = p.in_shape(i)[axis] * inner;
    strips.push_back({outer, bytes, bytes, p.out_shape(0)[axis] * inner});
  }
  return own_recipe(
      "concat", 0, p.machine.seconds(0, 1, p.traffic()), [strips, threads = p.machine.threads](const BoundNode& node) {
        return [=, from = std::vector<void*>(node.inputs.begin(), node.inputs.end()), to = output<char>(node, 0)] {
          char* at = to;
          for (size_t i = 0; i < strips.size(); ++i) {
            copy_strips(threads, strips[i], static_cast<const char*>(from[i]), at);
            at += strips[i].bytes;
          }
        };
      });
}

Recipe slice(const Problem& p) {
  const auto axis = static_cast<size_t>(p.attrs().integer("axis"));
  const auto [outer, inner] = around(p.in(0).type, axis);
  const Bytes bytes = p.out_shape(0)[axis] * inner, skipped = p.attrs().integer("begin") * inner;
  const Strips strips{outer, bytes, p.in_shape(0)[axis] * inner, bytes};
  return own_recipe("slice", 0, p.machine.seconds(0, 1, 2.0 * static_cast<double>(p.out(0).bytes())),
                    [strips, skipped, threads = p.machine.threads](const BoundNode& node) {
                      return [=, from = input<const char>(node, 0) + skipped, to = output<char>(node, 0)] {
                        copy_strips(threads, strips, from, to);
                      };
                    });
}

// pad2d and crop2d, split by rows of the image that is written.
Recipe pad_or_crop(const Problem& p) {
  const bool pad = p.node.op == "pad2d";
  const Shape x = p.in_shape(0), y = p.out_shape(0);
  const auto& pads = p.attrs().list("pads");
  const int64_t top = pad ? pads[0] : -pads[0], left = pad ? pads[2] : -pads[2], c = x[3];
  const int threads = p.machine.threads;
  return own_recipe(p.node.op, 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), to = output<float>(node, 0)] {
      parallel_ranges(threads, y[0] * y[1], 1 + kGrainBytes / (4 * y[2] * c), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t row = r % y[1] - top;
          float* line = to + r * y[2] * c;
          if (row < 0 || row >= x[1]) {
            std::fill_n(line, y[2] * c, 0.0F);
            continue;
          }
          const int64_t first = std::max<int64_t>(left, 0), last = std::min(y[2], x[2] + left);
          std::fill_n(line, first * c, 0.0F);
          std::copy_n(from + ((r / y[1] * x[1] + row) * x[2] + first - left) * c, (last - first) * c, line + first * c);
          std::fill_n(line + last * c, (y[2] - last) * c, 0.0F);
        }
      });
    };
  });
}

Recipe broadcast(const Problem& p) {
  const Shape x = p.in_shape(0), y = p.out_shape(0);
  const int64_t width = y.rank() == 0 ? 1 : y.back(), rows = y.elements() / width;
  const bool whole_rows = x.rank() > 0 && x.back() == width;
  std::vector<std::pair<int64_t, int64_t>> dims;  // extent in y and stride in x, for all but the last dimension
  int64_t stride = x.rank() == 0 ? 1 : x.back();
  for (size_t from_end = 2; from_end <= y.rank(); ++from_end) {
    const int64_t extent = from_end <= x.rank() ? x[x.rank() - from_end] : 1;
    dims.emplace_back(y[y.rank() - from_end], extent == 1 ? 0 : stride);
    stride *= extent;
  }
  const int threads = p.machine.threads;
  return own_recipe("broadcast", 0, p.machine.seconds(0, 1, p.traffic()), [=](const BoundNode& node) {
    return [=, from = input<const float>(node, 0), to = output<float>(node, 0)] {
      parallel_ranges(threads, rows, 1 + kGrainBytes / (4 * width), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          int64_t at = 0, index = r;
          for (const auto& [extent, step] : dims) {
            at += index % extent * step;
            index /= extent;
          }
          if (whole_rows) {
            std::copy_n(from + at, width, to + r * width);
          } else {
            std::fill_n(to + r * width, width, from[at]);
          }
        }
      });
    };
  });
}

float half_to_float(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  const float sign = (h & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN() : sign * std::numeric_limits<float>::infinity();
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

using Load = double (*)(const void*, int64_t);
using Store = void (*)(void*, int64_t, double);

template <typename T>
double load_number(const void* x, int64_t i) {
  return static_cast<double>(static_cast<const T*>(x)[i]);
}

// Truncates towards zero and clamps to the range of T; a NaN becomes 0.
template <typename T>
void store_number(void* y, int64_t i, double value) {
  if constexpr (std::is_integral_v<T>) {
    const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
    T result = static_cast<T>(0);
    if (value >= above) {
      result = std::numeric_limits<T>::max();
    } else if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
      result = std::numeric_limits<T>::min();
    } else if (!std::isnan(value)) {
      result = static_cast<T>(value);
    }
    static_cast<T*>(y)[i] = result;
  } else {
    static_cast<T*>(y)[i] = static_cast<T>(value);
  }
}

Load load_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return load_number<float>;
    case DType::kFloat64:
      return load_number<double>;
    case DType::kFloat16:
      return [](const void* x, int64_t i) {
        return static_cast<double>(half_to_float(static_cast<const uint16_t*>(x)[i]));
      };
    case DType::kBFloat16:
      return [](const void* x, int64_t i) {
        return static_cast<double>(std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(x)[i]} << 16));
      };
    case DType::kInt8:
      return load_number<int8_t>;
    case DType::kInt16:
      return load_number<int16_t>;
    case DType::kInt32:
      return load_number<int32_t>;
    case DType::kInt64:
      return load_number<int64_t>;
    case DType::kUInt8:
      return load_number<uint8_t>;
    case DType::kUInt16:
      return load_number<uint16_t>;
    case DType::kUInt32:
      return load_number<uint32_t>;
    case DType::kUInt64:
      return load_number<uint64_t>;
    case DType::kBool:
      return [](const void* x, int64_t i) { return static_cast<const uint8_t*>(x)[i] != 0 ? 1.0 : 0.0; };
  }
  return nullptr;
}

template <DType HALF>
void store_half(void* y, int64_t i, double value) {
  const auto number = static_cast<float>(value);
  narrow(HALF, &number, static_cast<uint16_t*>(y) + i, 1);
}

Store store_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return dtype == DType::kFloat16 ? store_half<DType::kFloat16> : store_half<DType::kBFloat16>;
    case DType::kFloat32:
      return store_number<float>;
    case DType::kFloat64:
      return store_number<double>;
    case DType::kInt8:
      return store_number<int8_t>;
    case DType::kInt16:
      return store_number<int16_t>;
    case DType::kInt32:
      return store_number<int32_t>;
    case DType::kInt64:
      return store_number<int64_t>;
    case DType::kUInt8:
      return store_number<uint8_t>;
    case DType::kUInt16:
      return store_number<uint16_t>;
    case DType::kUInt32:
      return store_number<uint32_t>;
    case DType::kUInt64:
      return store_number<uint64_t>;
    case DType::kBool:
      return [](void* y, int64_t i, double value) { static_cast<uint8_t*>(y)[i] = value != 0 ? 1 : 0; };
  }
  return nullptr;
}

bool is_integer_64(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kUInt64;
}

Result<Recipe> cast(const Problem& p) {
  if (auto tiled = tile_recipe(p)) return tiled;
  const DType from = p.in(0).type.dtype, to = p.out(0).type.dtype;
  if (from == to || (is_integer_64(from) && is_integer_64(to))) return reshape(p);  // the bits are the same
  const Load load = load_of(from);
  const Store store = store_of(to);
  const int64_t n = p.in_shape(0).elements();
  return own_recipe("cast", 0, p.machine.seconds(static_cast<double>(n), 0.01, p.traffic()),
                    [=, threads = p.machine.threads](const BoundNode& node) {
                      return [=, x = node.inputs[0], y = node.outputs[0]] {
                        parallel_ranges(threads, n, 16384, [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) store(y, i, load(x, i));
                        });
                      };
                    });
}

Result<Recipe> fill(const Problem& p) {
  const Store store = store_of(p.out(0).type.dtype);
  const Bytes size = size_of(p.out(0).type.dtype), bytes = p.out(0).type.bytes();
  uint64_t pattern = 0;
  store(&pattern, 0, p.attrs().real("value"));
  return own_recipe("fill", 0, p.machine.seconds(0, 1, p.traffic()),
                    [=, threads = p.machine.threads](const BoundNode& node) {
                      return [=, y = output<char>(node, 0)] {
                        parallel_ranges(threads, bytes / size, kGrainBytes / size, [&](int64_t begin, int64_t end) {
                          if (size == 4) {
                            std::fill(reinterpret_cast<uint32_t*>(y) + begin, reinterpret_cast<uint32_t*>(y) + end,
                                      static_cast<uint32_t>(pattern));
                            return;
                          }
                          for (int64_t i = begin; i < end; ++i)
                            std::memcpy(y + i * size, &pattern, static_cast<size_t>(size));
                        });
                      };
                    });
}

Result<Recipe> constant(const Problem& p) {
  const std::vector<double> values = *constant_values(p.attrs());  // the shape rule has checked them
  const std::vector<float> numbers(values.begin(), values.end());
  return own_recipe("constant", 0, p.machine.seconds(0, 1, p.traffic()), [numbers](const BoundNode& node) {
    return [numbers, y = output<float>(node, 0)] { std::copy(numbers.begin(), numbers.end(), y); };
  });
}

}  // namespace

Result<Recipe> shape_recipe(const Problem& p) {
  const std::string& op = p.node.op;
  if (op == "reshape" || op.starts_with("to_"))
    return reshape(p);  // to_host/to_device: the CPU has only the host's memory
  if (op == "concat") return concat(p);
  if (op == "slice") return slice(p);
  if (op == "broadcast") return broadcast(p);
  if (op == "cast") return cast(p);
  if (op == "fill") return fill(p);
  if (op == "constant") return constant(p);
  return pad_or_crop(p);
}

}  // namespace plimsoll::engine::cpu
