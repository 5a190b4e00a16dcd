// The first-order effect of weights on the loss over data.
#include <fmt/format.h>

#include <algorithm>

#include "cli/shrink.h"
#include "device/process_memory.h"
#include "model/config.h"

namespace plimsoll::engine {
namespace {

// A step of plain gradient descent with this rate changes each weight by its gradient. A power of two, so that the
// product is exact.
constexpr double kRate = 1.0;
constexpr const char* kPlainDescent = R"({"class_name": "SGD", "config": {"learning_rate": 1.0, "momentum": 0.0}})";

using Snapshot = std::map<std::string, std::vector<float>>;

Result<Snapshot> snapshot(const Session& session) {
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  Snapshot made;
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    const TensorView view = values[weight.name];
    std::vector<float>& to = made[weight.name];
    if (view.type.dtype == DType::kFloat64)
      to.assign(view.as<double>(), view.as<double>() + view.elements());
    else
      to.assign(view.as<float>(), view.as<float>() + view.elements());
  }
  return made;
}

Status restore(Session& session, const Snapshot& from) {
  for (const auto& [name, values] : from)
    PLIMSOLL_TRY(session.store(name, [&](const TensorView& view) -> Status {
      if (view.type.dtype == DType::kFloat64)
        std::copy(values.begin(), values.end(), view.as<double>());
      else
        std::copy(values.begin(), values.end(), view.as<float>());
      return {};
    }));
  return {};
}

}  // namespace

Result<Effects> measure_effects(const ShrinkFlags& flags, const std::string& path, int64_t batches) {
  RunOptions options = flags.options;
  options.model = path;
  options.mode = Mode::kTrain;
  options.overrides.optimizer = kPlainDescent;
  options.overrides.learning_rate.reset();
  options.note = nullptr;
  options.resident_before = std::max<Bytes>(0, resident_bytes() - flags.resident_at_start);
  options.data.reads_ahead = false;
  PLIMSOLL_ASSIGN(const auto run, Run::open(std::move(options)));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  PLIMSOLL_ASSIGN(const Snapshot start, snapshot(run->session()));
  Effects effects;
  for (const Weight& weight : run->model().weights())
    if (weight.trainable) effects[weight.name].assign(static_cast<size_t>(weight.shape.elements()), 0);
  BatchSource& data = *run->data().source;
  const int64_t size = run->options().batch_size, whole = data.samples() / std::max<int64_t>(1, size);
  for (int64_t i = 0; i < std::min(batches, std::max<int64_t>(1, whole)); ++i) {
    if (stop_requested().load()) return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
    const int64_t first = i * size, samples = std::min(size, data.samples() - first);
    PLIMSOLL_TRY(run->prepare(run->session().plan().gradient_phase(), samples));
    PLIMSOLL_TRY(run->step(samples, [&](const BatchRequest& request, const BatchBuffers& into) {
      return data.read(0, first + request.first, request.count, into);
    }));
    PLIMSOLL_ASSIGN(const Snapshot after, snapshot(run->session()));
    for (auto& [name, sums] : effects) {
      const auto before = start.find(name), now = after.find(name);
      if (before == start.end() || now == after.end()) continue;
      for (size_t k = 0; k < sums.size(); ++k) {
        const double gradient = (double{before->second[k]} - now->second[k]) / kRate;
        sums[k] += static_cast<float>(before->second[k] * gradient);
      }
    }
    PLIMSOLL_TRY(restore(run->session(), start));
  }
  return effects;
}

}  // namespace plimsoll::engine
