#include "model/initializer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.h"
#include "model/config.h"
#include "model/names.h"
#include "model/orthogonal.h"

namespace plimsoll::engine {
namespace {

enum class Kind { kConstant, kUniform, kNormal, kTruncatedNormal, kOrthogonal, kIdentity, kList, kFourier };

struct Distribution {
  Kind kind = Kind::kConstant;
  double a = 0, b = 0;            // the constant or gain; or low and high; or mean and standard deviation
  std::vector<double> list = {};  // kList: one number per element of the last dimension; kFourier: the scaled window
  bool imaginary = false;         // kFourier
};

struct Fans {
  double in = 1, out = 1;
};

// keras/src/initializers/random_initializers.py, compute_fans.
Fans fans_of(const Shape& shape) {
  if (shape.rank() == 0) return {};
  if (shape.rank() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double field = 1;
  for (size_t i = 0; i + 2 < shape.rank(); ++i) field *= static_cast<double>(shape[i]);
  return {static_cast<double>(shape[shape.rank() - 2]) * field, static_cast<double>(shape.back()) * field};
}

// The fans by the axes that the initializer names, or by the position of the dimensions.
Fans read_fans(Config& c, const Shape& shape) {
  const Json *in = c.value("input_axes"), *out = c.value("output_axes");
  if (in == nullptr || out == nullptr) return fans_of(shape);
  const auto product = [&](const Json& axes) {
    double fan = 1;
    for (const Json& one : axes.is_array() ? axes : Json::array({axes})) {
      const auto axis = as_integer(one);
      const auto rank = static_cast<int64_t>(shape.rank());
      if (!axis || *axis < -rank || *axis >= rank) {
        c.issues().reject(fmt::format("{}: {} is not an axis of [{}]", c.where(), shown(one), to_text(shape)));
        return 1.0;
      }
      fan *= static_cast<double>(shape[static_cast<size_t>(*axis < 0 ? *axis + rank : *axis)]);
    }
    return fan;
  };
  return {product(*in), product(*out)};
}

Distribution scaled(const Fans& fans, double scale, const std::string& mode, const std::string& distribution) {
  const double fan = mode == "fan_in" ? fans.in : mode == "fan_out" ? fans.out : (fans.in + fans.out) / 2;
  scale /= std::max(1.0, fan);
  if (distribution == "uniform") return {Kind::kUniform, -std::sqrt(3 * scale), std::sqrt(3 * scale)};
  if (distribution == "untruncated_normal") return {Kind::kNormal, 0, std::sqrt(scale)};
  // The standard deviation of a normal distribution truncated at two standard deviations. Keras makes the same
  // correction.
  return {Kind::kTruncatedNormal, 0, std::sqrt(scale) / 0.87962566103423978};
}

struct Scaling {
  std::string_view class_name, function;
  double scale;
  const char *mode, *distribution;
};
constexpr Scaling kScalings[] = {
    {"GlorotUniform", "glorot_uniform", 1, "fan_avg", "uniform"},
    {"GlorotNormal", "glorot_normal", 1, "fan_avg", "truncated_normal"},
    {"HeUniform", "he_uniform", 2, "fan_in", "uniform"},
    {"HeNormal", "he_normal", 2, "fan_in", "truncated_normal"},
    {"LecunUniform", "lecun_uniform", 1, "fan_in", "uniform"},
    {"LecunNormal", "lecun_normal", 1, "fan_in", "truncated_normal"},
};

// The windows of scipy.signal.get_window that are sums of cosines, and their coefficients.
struct CosineWindow {
  std::string_view name;
  double a[3];
};
constexpr CosineWindow kWindows[] = {{"boxcar", {1, 0, 0}},
                                     {"box", {1, 0, 0}},
                                     {"ones", {1, 0, 0}},
                                     {"rect", {1, 0, 0}},
                                     {"rectangular", {1, 0, 0}},
                                     {"hann", {0.5, 0.5, 0}},
                                     {"han", {0.5, 0.5, 0}},
                                     {"hamming", {0.54, 0.46, 0}},
                                     {"hamm", {0.54, 0.46, 0}},
                                     {"ham", {0.54, 0.46, 0}},
                                     {"blackman", {0.42, 0.5, 0.08}},
                                     {"black", {0.42, 0.5, 0.08}},
                                     {"blk", {0.42, 0.5, 0.08}}};

// Keras's STFT: the kernel [T, 1, F] of a Fourier transform over a window of T steps.
std::optional<Distribution> fourier(Config& c, const Shape& shape) {
  Distribution d{Kind::kFourier};
  d.imaginary = c.choice("side", {"real", "imag"}, "real") == "imag";
  const std::string scaling = c.text("scaling", "");
  const bool periodic = c.flag("periodic", false);
  const std::string window = c.text("window", "");
  if (shape.rank() != 3 || shape[2] < 2) return std::nullopt;
  const int64_t steps = shape[0];
  d.list.assign(static_cast<size_t>(steps), 1);
  if (window.empty()) return d;
  const auto found = std::find_if(std::begin(kWindows), std::end(kWindows),
                                  [&](const CosineWindow& one) { return one.name == window; });
  if (found == std::end(kWindows)) return std::nullopt;
  const auto last = static_cast<double>(periodic ? steps : steps - 1);
  double squares = 0, sizes = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const double at = last == 0 ? 0 : (2 * static_cast<double>(i) / last - 1) * std::numbers::pi;
    double& value = d.list[static_cast<size_t>(i)];
    value = steps == 1 ? 1 : found->a[0] + found->a[1] * std::cos(at) + found->a[2] * std::cos(2 * at);
    squares += value * value;
    sizes += std::abs(value);
  }
  const double by = scaling == "density" ? std::sqrt(squares) : scaling == "spectrum" ? sizes : 1;
  for (double& value : d.list) value /= by;
  return d;
}

// A constant is a number, or a list of one number per element of the last dimension.
Distribution constant_value(Config& c) {
  const Json* value = c.value("value");
  if (value == nullptr || !value->is_array()) return {Kind::kConstant, c.real("value", 0), 0};
  Distribution d{Kind::kList};
  for (const Json& one : *value) {
    const auto number = as_number(one);
    if (!number) {
      c.issues().unknown(fmt::format("{}: value={}", c.where(), shown(*value)));
      break;
    }
    d.list.push_back(*number);
  }
  return d;
}

std::optional<Distribution> plain_distribution(const std::string& name, Config& c, const Shape& shape) {
  const auto is = [&](std::string_view class_name, std::string_view function) {
    return name == class_name || name == function;
  };
  if (is("Zeros", "zeros") || name == "zero") return Distribution{};
  if (is("Ones", "ones") || name == "one") return Distribution{Kind::kConstant, 1, 0};
  if (is("Constant", "constant")) return constant_value(c);
  if (is("STFT", "stft") || name == "STFTInitializer") return fourier(c, shape);
  if (is("RandomUniform", "random_uniform") || name == "uniform")
    return Distribution{Kind::kUniform, c.real("minval", -0.05), c.real("maxval", 0.05)};
  if (is("RandomNormal", "random_normal") || name == "normal")
    return Distribution{Kind::kNormal, c.real("mean", 0), c.real("stddev", 0.05)};
  if (is("TruncatedNormal", "truncated_normal"))
    return Distribution{Kind::kTruncatedNormal, c.real("mean", 0), c.real("stddev", 0.05)};
  if (is("Orthogonal", "orthogonal") || name == "OrthogonalInitializer")
    return Distribution{Kind::kOrthogonal, c.real("gain", 1), 0};
  if (is("Identity", "identity") || name == "IdentityInitializer")
    return Distribution{Kind::kIdentity, c.real("gain", 1), 0};
  return std::nullopt;
}

std::optional<Distribution> distribution_of(const Weight& weight, Issues& issues) {
  const KerasObject object = keras_object(weight.initializer);
  const std::string where = fmt::format("weight '{}'", weight.name);
  Config c(object.config, fmt::format("{}, initializer {}", where, object.name), issues);
  c.ignore({"seed", "name", "input_axes", "output_axes"});  // the axes are read where fans are counted
  std::optional<Distribution> found;
  if (!object.custom) {
    for (const Scaling& s : kScalings)
      if (object.name == s.class_name || object.name == s.function)
        found = scaled(read_fans(c, weight.shape), s.scale, s.mode, s.distribution);
    if (object.name == "VarianceScaling" || object.name == "variance_scaling") {
      const double scale = c.real("scale", 1);
      if (scale <= 0)
        issues.reject(fmt::format("{}: the scale of its initializer must be positive, got {}", where, scale));
      found =
          scaled(read_fans(c, weight.shape), scale, c.choice("mode", {"fan_in", "fan_out", "fan_avg"}, "fan_in"),
                 c.choice("distribution", {"truncated_normal", "untruncated_normal", "uniform"}, "truncated_normal"));
    }
    if (!found) found = plain_distribution(object.name, c, weight.shape);
  }
  const bool misfit =
      found && ((found->kind == Kind::kOrthogonal && weight.shape.rank() < 2) ||
                (found->kind == Kind::kIdentity && weight.shape.rank() != 2) ||
                (found->kind == Kind::kList &&
                 (weight.shape.rank() == 0 || weight.shape.back() != static_cast<int64_t>(found->list.size()))));
  if (!found || misfit) {
    issues.unknown(fmt::format("{}: initializer {} for the shape [{}]{}", where,
                               object.name.empty() ? shown(weight.initializer) : object.name, to_text(weight.shape),
                               found || object.custom ? "" : did_you_mean(initializer_names(), object.name)));
    if (object.custom) issues.custom_code();
    return std::nullopt;
  }
  c.finish();
  return found;
}

// The random numbers of one weight. Draw i does not depend on the order of the draws.
class Draws {
 public:
  Draws(uint64_t seed, std::string_view name) : key_(seed) {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
    for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    name_ = hash;
  }
  double unit(uint64_t index) const { return unit_of(words(index, 0)[0]); }
  double normal(uint64_t index) const { return box_muller(words(index, 0)); }
  // Redraws until the number is within two standard deviations, like TensorFlow.
  double truncated_normal(uint64_t index) const {
    for (uint32_t attempt = 0;; ++attempt)
      if (const double z = box_muller(words(index, attempt)); std::abs(z) <= 2) return z;
  }

 private:
  Philox::Words words(uint64_t index, uint32_t attempt) const {
    // An index has at most 46 bits; its upper bits share a word with the number of attempts.
    const auto high = static_cast<uint32_t>(index >> 32) | attempt << 14;
    return Philox::draw(
        key_, {static_cast<uint32_t>(index), high, static_cast<uint32_t>(name_), static_cast<uint32_t>(name_ >> 32)});
  }
  static double unit_of(uint32_t word) { return Philox::unit(word); }
  static double box_muller(const Philox::Words& w) {
    const double u = (static_cast<double>(w[0]) + 1) * 0x1p-32;  // (0, 1]
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * static_cast<double>(w[1]) * 0x1p-32);
  }

  uint64_t key_, name_ = 0;
};

// Makes orthonormal columns (rows if there are more columns than rows) from a normal matrix.
void orthogonal(const Draws& draws, const Shape& shape, double gain, std::span<double> out) {
  const auto columns = static_cast<size_t>(shape.back()), rows = out.size() / columns;
  const size_t vectors = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> q(vectors * length);
#pragma omp parallel for schedule(static) if (q.size() > 65536)
  for (size_t i = 0; i < q.size(); ++i) q[i] = draws.normal(i);
  make_orthonormal(q, vectors, length);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c)
      out[r * columns + c] = gain * (rows >= columns ? q[c * length + r] : q[r * length + c]);
}

template <typename T>
void fill(const Weight& weight, const Distribution& d, uint64_t seed, std::span<T> values) {
  const Draws draws(seed, weight.name);
  if (d.kind == Kind::kOrthogonal) {
    std::vector<double> matrix(values.size());
    orthogonal(draws, weight.shape, d.a, matrix);
    std::transform(matrix.begin(), matrix.end(), values.begin(), [](double v) { return static_cast<T>(v); });
    return;
  }
#pragma omp parallel for schedule(static) if (values.size() > 65536)
  for (size_t i = 0; i < values.size(); ++i) {
    double value = d.a;
    switch (d.kind) {
      case Kind::kUniform:
        value = d.a + (d.b - d.a) * draws.unit(i);
        break;
      case Kind::kNormal:
        value = d.a + d.b * draws.normal(i);
        break;
      case Kind::kTruncatedNormal:
        value = d.a + d.b * draws.truncated_normal(i);
        break;
      case Kind::kIdentity: {
        const auto columns = static_cast<size_t>(weight.shape.back());
        value = i / columns == i % columns ? d.a : 0;
        break;
      }
      case Kind::kList:
        value = d.list[i % d.list.size()];
        break;
      case Kind::kFourier: {
        const auto bands = static_cast<size_t>(weight.shape[2]),
                   step = i / bands / static_cast<size_t>(weight.shape[1]);
        const double angle =
            -std::numbers::pi * static_cast<double>(step * (i % bands)) / static_cast<double>(bands - 1);
        value = (d.imaginary ? std::sin(angle) : std::cos(angle)) * d.list[step];
        break;
      }
      case Kind::kConstant:
      case Kind::kOrthogonal:
        break;
    }
    values[i] = static_cast<T>(value);
  }
}

// Keras's LSTM with unit_forget_bias: of four gates, the bias of the second begins as ones. Returns the weight with the
// initializer of the other gates; nullopt if it is not such a bias.
std::optional<Weight> without_forget_bias(const Weight& weight) {
  if (text_member(weight.initializer, "class_name") != "UnitForgetBias") return std::nullopt;
  const Json* config = member(weight.initializer, "config");
  const Json* inner = config ? member(*config, "initializer") : nullptr;
  if (!inner || weight.shape.rank() != 1 || weight.shape[0] % 4 != 0) return std::nullopt;
  Weight other = weight;
  other.initializer = *inner;
  return other;
}

template <typename T>
Status initialize_as(const Weight& weight, uint64_t seed, std::span<T> values) {
  assert(static_cast<int64_t>(values.size()) == weight.shape.elements());
  const auto inner = without_forget_bias(weight);
  const Weight& drawn = inner ? *inner : weight;
  Issues issues;
  const auto distribution = distribution_of(drawn, issues);
  PLIMSOLL_TRY(issues.status());
  fill(drawn, *distribution, seed, values);
  const size_t units = values.size() / 4;
  if (inner) std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(units), units, T(1));
  return {};
}

}  // namespace

Status check_initializers(const Model& model) {
  Issues issues;
  for (const Weight& weight : model.weights())
    if (const auto inner = without_forget_bias(weight))
      distribution_of(*inner, issues);
    else
      distribution_of(weight, issues);
  return issues.status();
}

Status initialize(const Weight& weight, uint64_t seed, std::span<float> values) {
  return initialize_as(weight, seed, values);
}
Status initialize(const Weight& weight, uint64_t seed, std::span<double> values) {
  return initialize_as(weight, seed, values);
}

}  // namespace plimsoll::engine
