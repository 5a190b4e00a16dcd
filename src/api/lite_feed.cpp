#include "api/lite_feed.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shrink/lite/fixed_point.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kSamplesAtOnce = 16;

double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double size = exponent == 0    ? std::ldexp(fraction, -24)
                      : exponent == 31 ? INFINITY
                                       : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000U) != 0 ? -size : size;
}

double bfloat_value(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

template <typename T>
double at(const void* data, int64_t i) {
  return static_cast<double>(static_cast<const T*>(data)[i]);
}

}  // namespace

double number_at(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kFloat32:
      return at<float>(data, i);
    case DType::kFloat64:
      return at<double>(data, i);
    case DType::kFloat16:
      return half_value(static_cast<const uint16_t*>(data)[i]);
    case DType::kBFloat16:
      return bfloat_value(static_cast<const uint16_t*>(data)[i]);
    case DType::kInt8:
      return at<int8_t>(data, i);
    case DType::kInt16:
      return at<int16_t>(data, i);
    case DType::kInt32:
      return at<int32_t>(data, i);
    case DType::kInt64:
      return at<int64_t>(data, i);
    case DType::kUInt16:
      return at<uint16_t>(data, i);
    case DType::kUInt32:
      return at<uint32_t>(data, i);
    case DType::kUInt64:
      return at<uint64_t>(data, i);
    default:
      return at<uint8_t>(data, i);
  }
}

double real_at(const void* data, const lite::Tensor& tensor, int64_t i) {
  const auto real = [&](int32_t q) {
    const lite::Quantization& s = tensor.quantization;
    return s.empty() ? double(q) : (q - s.zero()) * double{s.scale()};
  };
  switch (tensor.type) {
    case lite::Type::kFloat32:
      return at<float>(data, i);
    case lite::Type::kInt8:
      return real(static_cast<const int8_t*>(data)[i]);
    case lite::Type::kUInt8:
      return real(static_cast<const uint8_t*>(data)[i]);
    case lite::Type::kInt32:
      return at<int32_t>(data, i);
    case lite::Type::kInt64:
      return at<int64_t>(data, i);
    default:
      return at<uint8_t>(data, i);
  }
}

void fill_input(const void* from, DType dtype, const lite::Tensor& input, void* to) {
  const int64_t n = input.elements();
  const auto copy = [&] { std::memcpy(to, from, static_cast<size_t>(input.bytes())); };
  switch (input.type) {
    case lite::Type::kFloat32:
      if (dtype == DType::kFloat32) return copy();
      for (int64_t i = 0; i < n; ++i) static_cast<float*>(to)[i] = static_cast<float>(number_at(from, dtype, i));
      return;
    case lite::Type::kInt32:
      if (dtype == DType::kInt32) return copy();
      for (int64_t i = 0; i < n; ++i)
        static_cast<int32_t*>(to)[i] =
            lite::saturated(static_cast<int64_t>(std::clamp(number_at(from, dtype, i), -9e18, 9e18)));
      return;
    case lite::Type::kInt64:
      for (int64_t i = 0; i < n; ++i)
        static_cast<int64_t*>(to)[i] = static_cast<int64_t>(std::clamp(number_at(from, dtype, i), -9e18, 9e18));
      return;
    case lite::Type::kInt8:
    case lite::Type::kUInt8: {
      const bool wide = input.type == lite::Type::kUInt8;
      if (input.quantization.empty() || (wide ? dtype == DType::kUInt8 : dtype == DType::kInt8)) {
        for (int64_t i = 0; i < n; ++i)
          static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(static_cast<int64_t>(number_at(from, dtype, i)));
        return;
      }
      const int32_t offset = wide ? 128 : 0;
      for (int64_t i = 0; i < n; ++i) {
        const int8_t q = lite::quantized(static_cast<float>(number_at(from, dtype, i)), input.quantization.scale(),
                                         input.quantization.zero() - offset);
        static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(q + offset);
      }
      return;
    }
    default:
      for (int64_t i = 0; i < n; ++i) static_cast<uint8_t*>(to)[i] = number_at(from, dtype, i) != 0 ? 1 : 0;
  }
}

int64_t largest_of(const void* output, const lite::Tensor& tensor) {
  int64_t best = 0;
  const int64_t n = tensor.shape.empty() ? 1 : tensor.shape.back();
  for (int64_t i = 1; i < n; ++i)
    if (real_at(output, tensor, i) > real_at(output, tensor, best)) best = i;
  return best;
}

std::optional<bool> names_class(const void* output, const lite::Tensor& tensor, const void* target,
                                const TensorType& target_type) {
  const int64_t classes = tensor.elements(), size = target_type.shape.elements();
  if (classes == 1) {
    if (size != 1) return std::nullopt;
    const double label = number_at(target, target_type.dtype, 0);
    if (label != 0 && label != 1) return std::nullopt;
    return (real_at(output, tensor, 0) > 0.5) == (label == 1);
  }
  if (size == 1) return largest_of(output, tensor) == static_cast<int64_t>(number_at(target, target_type.dtype, 0));
  if (size != classes) return std::nullopt;
  int64_t best = 0;
  for (int64_t i = 1; i < size; ++i)
    if (number_at(target, target_type.dtype, i) > number_at(target, target_type.dtype, best)) best = i;
  return largest_of(output, tensor) == best;
}

std::vector<int64_t> spread_samples(int64_t samples, int64_t count) {
  count = std::min(samples, count);
  std::vector<int64_t> which(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    which[static_cast<size_t>(i)] =
        static_cast<int64_t>(static_cast<double>(i) * static_cast<double>(samples) / static_cast<double>(count));
  return which;
}

Result<LiteFeed> LiteFeed::open(const std::string& argument, const DataSpec& spec) {
  PLIMSOLL_ASSIGN(DataSet data, open_data(argument, spec));
  if (!spec.needs_targets) {
    data.targets.clear();
    data.weights.clear();
  }
  PLIMSOLL_ASSIGN(ColumnSource source, ColumnSource::create(std::move(data), {}));
  return LiteFeed(std::move(source));
}

Bytes LiteFeed::bytes() const {
  Bytes sum = source_.buffer_bytes();
  for (const TensorType& type : source_.input_types()) sum += type.bytes() * kSamplesAtOnce;
  for (const TensorType& type : source_.target_types()) sum += type.bytes() * kSamplesAtOnce;
  return sum;
}

Status LiteFeed::run(std::span<const int64_t> which, std::span<const lite::Program* const> programs, int threads,
                     const After& after, const std::atomic<bool>* stop,
                     const std::function<void(int64_t done)>& progress) {
  const auto buffer = [](const std::vector<TensorType>& types) {
    std::vector<std::vector<std::byte>> made;
    for (const TensorType& type : types) made.emplace_back(static_cast<size_t>(type.bytes() * kSamplesAtOnce));
    return made;
  };
  auto inputs = buffer(source_.input_types()), targets = buffer(source_.target_types());
  const auto at_once = static_cast<int64_t>(std::max(1, threads));
  std::vector<std::vector<lite::Buffers>> buffers(static_cast<size_t>(at_once));  // per thread, per program
  for (auto& own : buffers)
    for (const lite::Program* program : programs) own.push_back(program->make_buffers());
  const auto end = static_cast<int64_t>(which.size());
  for (int64_t first = 0; first < end;) {
    if (stop != nullptr && stop->load())
      return fail(ErrorCode::kInterrupted, fmt::format("interrupted after {} of {} samples", first, end));
    // As many as follow each other in the data.
    const int64_t sample = which[static_cast<size_t>(first)];
    int64_t count = 1;
    while (count < kSamplesAtOnce && first + count < end && which[static_cast<size_t>(first + count)] == sample + count)
      ++count;
    // Samples that do not follow each other are read one by one, until there is one for each thread.
    int64_t held = 0;
    const auto read = [&](int64_t from, int64_t n) -> Status {
      BatchBuffers into;
      for (size_t i = 0; i < inputs.size(); ++i)
        into.inputs.push_back(inputs[i].data() + held * source_.input_types()[i].bytes());
      for (size_t i = 0; i < targets.size(); ++i)
        into.targets.push_back(targets[i].data() + held * source_.target_types()[i].bytes());
      PLIMSOLL_TRY(source_.read(0, from, n, into));
      held += n;
      return {};
    };
    PLIMSOLL_TRY(read(sample, count));
    while (count == held && held < at_once && first + held < end) {
      PLIMSOLL_TRY(read(which[static_cast<size_t>(first + held)], 1));
      count = held;
    }
    for (int64_t done = 0; done < held; done += at_once) {
      const int64_t now = std::min(at_once, held - done);
#pragma omp parallel for num_threads(static_cast <int>(now)) schedule(static, 1) if (now > 1)
      for (int64_t t = 0; t < now; ++t) {
        for (size_t p = 0; p < programs.size(); ++p) {
          const lite::Buffers& own = buffers[static_cast<size_t>(t)][p];
          const lite::Model& model = programs[p]->model();
          for (size_t i = 0; i < inputs.size(); ++i) {
            const TensorType& type = source_.input_types()[i];
            fill_input(inputs[i].data() + (done + t) * type.bytes(), type.dtype, model.tensor(model.inputs[i]),
                       own.at[static_cast<size_t>(model.inputs[i])]);
          }
          programs[p]->run(own);
        }
      }
      for (int64_t t = 0; t < now; ++t) {
        std::vector<const std::byte*> own;
        for (size_t i = 0; i < targets.size(); ++i)
          own.push_back(targets[i].data() + (done + t) * source_.target_types()[i].bytes());
        PLIMSOLL_TRY(after(which[static_cast<size_t>(first + done + t)], buffers[static_cast<size_t>(t)], own));
      }
    }
    first += held;
    if (progress) progress(first);
  }
  return {};
}

}  // namespace plimsoll::engine
