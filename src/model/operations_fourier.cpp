// Fourier transforms of keras.ops: fft, fft2, ifft2, rfft, irfft, stft, istft. Keras keeps a complex number as two real
// tensors, and so do we. A transform is a product with the matrices of cosines and sines, which are made in the graph.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "model/einsum.h"
#include "model/operation.h"

namespace plimsoll::engine {
namespace {

using Dims = std::vector<int64_t>;

// j * k must be an exact number in float32 for all j and k.
constexpr int64_t kMostPoints = 4096;

struct Complex {
  Operand real, imag;
};

Operand counted(OpWriter& w, const Dims& shape, int64_t axis, DType dtype) {
  Operand made = OpWriter::value(
      w.nodes("iota", {}, {{"shape", shape}, {"axis", axis}, {"dtype", std::string(name_of(dtype))}})[0]);
  made.batched = false;
  return made;
}

// cos and sin of 2 pi j k / points, for j < rows and k < columns.
Complex waves(OpWriter& w, int64_t rows, int64_t columns, int64_t points, DType dtype) {
  const Dims shape{rows, columns};
  const Operand turns = w.multiply(counted(w, shape, 0, dtype), counted(w, shape, 1, dtype));
  const auto n = static_cast<double>(points);
  // Whole turns are taken off first, because a large angle has few digits.
  const Operand whole = w.unary("floor", w.affine(turns, 1 / n, 0));
  const Operand angle = w.affine(w.subtract(turns, w.affine(whole, n, 0)), 2 * std::numbers::pi / n, 0);
  return {w.unary("cos", angle), w.unary("sin", angle)};
}

// x[..., j] m[j, k]
Operand times(OpWriter& w, const Operand& x, const Operand& matrix) {
  std::string outer;
  for (size_t d = 0; d + 1 < w.rank(x); ++d) outer += static_cast<char>('a' + d);
  return OpWriter::value(einsum(w.call().b, {{outer + "y", "yz"}, outer + "z"}, {x.id, matrix.id}));
}

// The transform of the last dimension.
Complex transform(OpWriter& w, const Complex& x) {
  const int64_t n = w.dims(x.real).back();
  const auto [cos, sin] = waves(w, n, n, n, w.dtype(x.real));
  return {w.add(times(w, x.real, cos), times(w, x.imag, sin)),
          w.subtract(times(w, x.imag, cos), times(w, x.real, sin))};
}

Complex real_transform(OpWriter& w, const Operand& x) {
  const int64_t n = w.dims(x).back();
  const auto [cos, sin] = waves(w, n, n / 2 + 1, n, w.dtype(x));
  return {times(w, x, cos), w.affine(times(w, x, sin), -1, 0)};
}

// The real signal of `points` elements that has these frequencies.
Operand real_inverse(OpWriter& w, const Complex& x, int64_t points) {
  const int64_t count = points / 2 + 1;
  Constant share{Constant::Type::kFloat, false, Shape{count}, {}};
  for (int64_t k = 0; k < count; ++k)  // each frequency stands for itself and for its conjugate, if that is another one
    share.values.push_back((k == 0 || 2 * k == points ? 1.0 : 2.0) / static_cast<double>(points));
  const auto [cos, sin] = waves(w, count, points, points, w.dtype(x.real));
  const auto shared = [&](const Operand& a) { return w.multiply(a, w.floats(w.constant(share), w.dtype(a))); };
  return w.subtract(times(w, shared(x.real), cos), times(w, shared(x.imag), sin));
}

Operand swapped(OpWriter& w, const Operand& x) {
  Dims perm;
  for (size_t d = 0; d < w.rank(x); ++d) perm.push_back(static_cast<int64_t>(d));
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return w.transpose(x, perm);
}

Complex transform_2d(OpWriter& w, const Complex& x) {
  const Complex rows = transform(w, x);
  const Complex made = transform(w, {swapped(w, rows.real), swapped(w, rows.imag)});
  return {swapped(w, made.real), swapped(w, made.imag)};
}

// The last dimension with `size` elements: what is too long is cut off, what is too short is filled with zeros.
Operand fitted(OpWriter& w, const Operand& x, int64_t size) {
  const size_t last = w.rank(x) - 1;
  const int64_t from = w.dims(x)[last];
  if (from >= size) return w.slice(x, last, 0, size);
  Dims pads(2 * (last + 1), 0);
  pads.back() = size - from;
  return w.move("pad", x, {{"pads", pads}, {"mode", std::string("constant")}, {"value", 0.0}});
}

// Whether the last `count` dimensions belong to the samples and are short enough.
bool fits(OpWriter& w, const Operand& x, size_t count) {
  const Dims from = w.dims(x);
  if (!x.batched) w.refuse("a constant");
  if (from.size() <= count) w.refuse("a transform over the batch");
  for (size_t d = from.size() - std::min(count, from.size()); !w.failed() && d < from.size(); ++d)
    if (from[d] > kMostPoints) w.refuse(fmt::format("{} elements (the most are {})", from[d], kMostPoints));
  return !w.failed();
}

// Two real tensors of one shape.
std::optional<Complex> read_complex(OpWriter& w, const std::vector<OpArgument>& parts, size_t dimensions) {
  if (parts.size() != 2) w.fail("its argument must be a tuple of two tensors, the real and the imaginary part");
  if (w.failed()) return std::nullopt;
  const DType dtype = w.call().precision;
  const Complex made{w.floats(parts[0].get(w), dtype), w.floats(parts[1].get(w), dtype)};
  if (!fits(w, made.real, dimensions) || !fits(w, made.imag, dimensions)) return std::nullopt;
  if (w.dims(made.real) != w.dims(made.imag))
    w.fail(fmt::format("its real part is [{}], but its imaginary part is [{}]", fmt::join(w.dims(made.real), ","),
                       fmt::join(w.dims(made.imag), ",")));
  return w.failed() ? std::nullopt : std::optional(made);
}

Operands both(const Complex& x) {
  return {x.real, x.imag};
}

// A result after an error.
Operands nothing(OpWriter& w, const OpArgument& x, size_t outputs) {
  return Operands(outputs, x.get(w));
}

OpBody complex_operation(OpReader& r, size_t dimensions, bool inverse) {
  const auto parts = r.operands("x", 0);
  r.outputs = 2;
  if (parts.empty()) return nullptr;
  return [=](OpWriter& w) -> Operands {
    auto x = read_complex(w, parts, dimensions);
    if (!x) return nothing(w, parts[0], 2);
    if (inverse) x->imag = w.affine(x->imag, -1, 0);  // the conjugate of the transform of the conjugate
    Complex made = dimensions == 1 ? transform(w, *x) : transform_2d(w, *x);
    if (!inverse) return both(made);
    const Dims from = w.dims(x->real);
    const double share = 1 / static_cast<double>(from[from.size() - 1] * from[from.size() - 2]);
    return {w.affine(made.real, share, 0), w.affine(made.imag, -share, 0)};
  };
}

std::optional<int64_t> read_length(OpReader& r, const char* key) {
  if (!r.config.value(key)) return std::nullopt;
  return r.config.integer(key, 1, kMostPoints);
}

OpBody rfft(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const auto length = read_length(r, "fft_length");
  r.outputs = 2;
  return [=](OpWriter& w) -> Operands {
    Operand in = w.floats(x.get(w), w.call().precision);
    if (w.rank(in) < 2) w.refuse("a transform over the batch");
    if (w.failed()) return nothing(w, x, 2);
    if (length) in = fitted(w, in, *length);
    return fits(w, in, 1) ? both(real_transform(w, in)) : nothing(w, x, 2);
  };
}

OpBody irfft(OpReader& r) {
  const auto parts = r.operands("x", 0);
  const auto length = read_length(r, "fft_length");
  if (parts.empty()) return nullptr;
  return [=](OpWriter& w) -> Operands {
    const auto x = read_complex(w, parts, 1);
    if (!x) return nothing(w, parts[0], 1);
    const int64_t points = length.value_or(2 * (w.dims(x->real).back() - 1));
    if (points < 1 || points > kMostPoints) w.fail(fmt::format("a signal of {} elements", points));
    if (w.failed()) return nothing(w, parts[0], 1);
    const int64_t count = points / 2 + 1;
    return {real_inverse(w, {fitted(w, x->real, count), fitted(w, x->imag, count)}, points)};
  };
}

// Parts of a signal that overlap, and what each is multiplied with.
struct Frames {
  int64_t length = 1, stride = 1, points = 1;
  bool center = true;
  std::optional<std::vector<double>> window;  // `points` numbers

  // The positions of the frames in a signal, as [count * points] integers.
  Operand positions(OpWriter& w, int64_t count) const {
    const Dims shape{count, points};
    const Operand frame = counted(w, shape, 0, DType::kFloat32), inside = counted(w, shape, 1, DType::kFloat32);
    return w.integers(w.reshape(w.add(w.affine(frame, static_cast<double>(stride), 0), inside), {count * points}));
  }

  Operand weighted(OpWriter& w, const Operand& frames, const std::vector<double>& by) const {
    const Constant weights{Constant::Type::kFloat, false, Shape{points}, by};
    return w.multiply(frames, w.floats(w.constant(weights), w.dtype(frames)));
  }
};

Frames read_frames(OpReader& r) {
  Frames f;
  f.length = r.config.integer("sequence_length", 1, kMostPoints);
  f.stride = r.config.integer("sequence_stride", 1, int64_t{1} << 20);
  f.points = r.config.integer("fft_length", 1, kMostPoints);
  f.center = r.config.flag("center", true);
  const Json* value = r.config.value("window");
  const std::string name = value && value->is_string() ? value->get<std::string>() : "";
  if (value && name != "hann" && name != "hamming") r.refuse("window=" + shown(*value));
  if (f.points < f.length) r.reject("'fft_length' must not be less than 'sequence_length'");
  if (!value || f.points < f.length) return f;
  const double base = name == "hann" ? 0.5 : 0.54;
  f.window.emplace(static_cast<size_t>(f.points), 0.0);
  const int64_t before = (f.points - f.length) / 2;
  const double step = 2 * std::numbers::pi / static_cast<double>(f.length - f.length % 2);  // as TensorFlow
  for (int64_t i = 0; i < f.length; ++i)
    (*f.window)[static_cast<size_t>(before + i)] =
        f.length == 1 ? 1 : base - (1 - base) * std::cos(step * static_cast<double>(i));
  return f;
}

OpBody stft(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  const Frames f = read_frames(r);
  r.outputs = 2;
  return [=](OpWriter& w) -> Operands {
    Operand in = w.floats(x.get(w), w.call().precision);
    if (w.rank(in) < 2 || !in.batched) w.refuse("frames of the batch");
    const int64_t margin = f.center ? f.points / 2 : 0;
    const int64_t size = w.failed() ? 0 : w.dims(in).back() + 2 * margin;
    if (!w.failed() && (size < f.points || margin >= size - 2 * margin))
      w.fail(fmt::format("frames of {} elements of {}", f.points, size - 2 * margin));
    if (!w.failed() && size >= (int64_t{1} << 24)) w.refuse(fmt::format("a signal of {} elements", size));
    if (w.failed()) return nothing(w, x, 2);
    const size_t last = w.rank(in) - 1;
    Dims pads(2 * (last + 1), 0), to = w.dims(in);
    pads[2 * last] = pads[2 * last + 1] = margin;
    if (margin > 0) in = w.move("pad", in, {{"pads", pads}, {"mode", std::string("reflect")}, {"value", 0.0}});
    to.back() = (size - f.points) / f.stride + 1;
    to.push_back(f.points);
    Operand frames = w.reshape(w.gather(in, f.positions(w, to[last]), last), to);
    if (f.window) frames = f.weighted(w, frames, *f.window);
    return both(real_transform(w, frames));
  };
}

// The window divided by the sum of the squares of all windows over a position, as TensorFlow's
// inverse_stft_window_fn.
std::vector<double> inverse_window(const Frames& f) {
  std::vector<double> made;
  for (int64_t i = 0; i < f.points; ++i) {
    double sum = 0;
    for (int64_t at = i % f.stride; at < f.points; at += f.stride)
      sum += (*f.window)[static_cast<size_t>(at)] * (*f.window)[static_cast<size_t>(at)];
    made.push_back((*f.window)[static_cast<size_t>(i)] / sum);
  }
  return made;
}

OpBody istft(OpReader& r) {
  const auto parts = r.operands("x", 0);
  const Frames f = read_frames(r);
  const Json* given = r.config.value("length");
  const auto wanted = given ? as_integer(*given) : std::nullopt;
  if (given && (!wanted || *wanted < 1 || *wanted > kMostGeometry)) r.reject("length=" + shown(*given));
  if (parts.empty()) return nullptr;
  return [=](OpWriter& w) -> Operands {
    const auto x = read_complex(w, parts, 1);
    if (!x) return nothing(w, parts[0], 1);
    const Dims from = w.dims(x->real);
    const int64_t count = from[from.size() - std::min<size_t>(2, from.size())], margin = f.points / 2;
    if (from.size() < 3) w.refuse("frames of the batch");
    const int64_t size = f.points + f.stride * (count - 1), begin = f.center ? margin : 0;
    if (!w.failed() && size >= (int64_t{1} << 24)) w.refuse(fmt::format("a signal of {} elements", size));
    const int64_t end = std::min(size, wanted ? begin + *wanted : f.center ? size - margin : size);
    if (!w.failed() && end <= begin) w.fail("its result has no elements");
    const std::vector<double> window = f.window ? inverse_window(f) : std::vector<double>();
    if (std::any_of(window.begin(), window.end(), [](double v) { return !std::isfinite(v); }))
      w.refuse(
          fmt::format("windows that are 0 where they overlap: {} elements, one window per {}", f.points, f.stride));
    if (w.failed()) return nothing(w, parts[0], 1);
    const int64_t kept = f.points / 2 + 1;
    Operand frames = real_inverse(w, {fitted(w, x->real, kept), fitted(w, x->imag, kept)}, f.points);
    if (f.window) frames = f.weighted(w, frames, window);
    Dims flat(from.begin(), from.end() - 2);
    const auto axis = static_cast<int64_t>(flat.size());
    flat.push_back(count * f.points);
    const Operand line = w.reshape(frames, flat);
    const Operand whole = OpWriter::value(
        w.nodes("scatter_add", {line.id, f.positions(w, count).id}, {{"axis", axis}, {"size", size}})[0]);
    return {w.slice(whole, flat.size() - 1, begin, end - begin)};
  };
}

constexpr std::array kOperations = {
    OpClass{"FFT", [](OpReader& r) { return complex_operation(r, 1, false); }},
    OpClass{"FFT2", [](OpReader& r) { return complex_operation(r, 2, false); }},
    OpClass{"IFFT2", [](OpReader& r) { return complex_operation(r, 2, true); }},
    OpClass{"RFFT", rfft},
    OpClass{"IRFFT", irfft},
    OpClass{"STFT", stft},
    OpClass{"ISTFT", istft},
};

}  // namespace

std::span<const OpClass> fourier_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
