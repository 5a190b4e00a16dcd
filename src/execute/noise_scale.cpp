#include "execute/noise_scale.h"

#include <fmt/format.h>

#include "model/values.h"

namespace plimsoll::engine {
namespace {

// The squared norm of the gradients summed so far, of all weights. Fails if the plan does not keep one of them: a sum
// without it would be a wrong number.
Result<double> squared_norm(const Session& session) {
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  double sum = 0;
  for (const Weight& weight : session.model().weights()) {
    const TensorView view = values[accumulated_value(weight.name)];
    if (!weight.trainable) continue;
    if (view.data == nullptr || view.type.dtype != DType::kFloat32)
      return fail(Error{ErrorCode::kUsage,
                        fmt::format("--noise-scale cannot be combined with the weight {}", weight.name),
                        {"its gradient is not kept as a whole in float32 between micro-batches"},
                        {"remove --noise-scale"}});
    const float* const gradient = view.as<const float>();
    for (int64_t i = 0; i < view.elements(); ++i) sum += static_cast<double>(gradient[i]) * gradient[i];
  }
  return sum;
}

}  // namespace

// The loss of a micro-batch is its share of the mean over the window, so the sum after all of them is the window's mean
// gradient, and the sum after the first one is that of the first times its share.
Status NoiseScale::look(const Session& session, int64_t step, int64_t samples, int64_t done, int64_t window) {
  if (step % kEvery != 0 || samples == window) return {};
  if (done == samples) {
    PLIMSOLL_ASSIGN(const double norm, squared_norm(session));
    const double share = static_cast<double>(samples) / static_cast<double>(window);
    first_ = norm / (share * share);
    first_samples_ = samples;
  } else if (done == window && first_samples_ > 0) {
    PLIMSOLL_ASSIGN(const double whole, squared_norm(session));
    const auto small = static_cast<double>(first_samples_), large = static_cast<double>(window);
    signal_ += (large * whole - small * first_) / (large - small);
    noise_ += (first_ - whole) / (1 / small - 1 / large);
    first_samples_ = 0;
    ++steps_;
  }
  return {};
}

std::optional<double> NoiseScale::samples() const {
  if (steps_ < kLeastSteps || signal_ <= 0 || noise_ <= 0) return std::nullopt;
  return noise_ / signal_;
}

}  // namespace plimsoll::engine
