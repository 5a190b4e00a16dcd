#include "cli/calibrate.h"

#include <fmt/format.h>

#include <optional>

#include "api/builtin.h"
#include "api/calibration.h"
#include "base/json.h"
#include "base/json_text.h"
#include "execute/kernel_times.h"
#include "execute/probe.h"
#include "execute/random_batch.h"

namespace plimsoll::engine {
namespace {

// A model whose kernels were timed.
struct Timed {
  std::string model;
  int64_t batch = 0;
  double measured_step = 0, predicted_before = 0, predicted_after = 0;
  std::vector<KernelTime> kernels;
};

struct Measured {
  std::vector<Timed> models;
  MachineRates rates;
  DeviceInfo device;
  std::optional<Calibration> calibration;  // of the device, before and then with this run's measurements
};

Result<std::unique_ptr<Run>> planned_run(RunOptions options) {
  PLIMSOLL_ASSIGN(auto run, Run::open(std::move(options)));
  PLIMSOLL_TRY(run->plan());
  return run;
}

Result<Timed> time_model(const RunOptions& options, Measured& measured) {
  RunOptions uncalibrated = options;
  uncalibrated.calibration.clear();
  PLIMSOLL_ASSIGN(const auto run, planned_run(std::move(uncalibrated)));
  if (!measured.calibration) {
    measured.device = run->device();
    PLIMSOLL_ASSIGN(measured.calibration, calibration_to_extend(options, measured.device));
    measured.rates = run->backend().measure_rates();
    measured.calibration->set_rates(measured.rates);
  }
  PLIMSOLL_TRY(run->start());
  Session& session = run->session();
  const Plan& plan = session.plan();
  const PhasePlan* phase = plan.phase(plan.gradient_phase());
  if (phase == nullptr) return fail(ErrorCode::kInternal, "a plan to train with has no phase with gradients");
  const RandomBatch batch(run->model(), run->request().graph.data, *phase, plan.batch.micro);
  // A GPU repeats the batch that it has: a run reads ahead, so its steps do not wait for the copy from the host.
  bool on_device = false;
  const auto step = [&]() -> Status {
    if (on_device) {
      PLIMSOLL_TRY(run->begin(plan.batch.effective));
      PLIMSOLL_TRY(Probe(session).accumulate_again(plan.batch.effective));
      PLIMSOLL_TRY(run->apply());
    } else {
      PLIMSOLL_TRY(run->step(plan.batch.effective, [&](const BatchRequest& piece, const BatchBuffers& into) -> Status {
        batch.read(piece.count, into);
        return {};
      }));
      on_device = run->device().own_memory && plan.batch.accumulation_steps() == 1;
    }
    PLIMSOLL_TRY(session.collect());
    return run->backend().finish();
  };
  PLIMSOLL_ASSIGN(TimedStep times, time_kernels(session, step, {}));
  constexpr double kCalm = 1.3;  // on an idle machine, most steps are nearly as fast as the fastest
  if (times.seconds > kCalm * times.least_seconds)
    options.tell(
        fmt::format("note: three of four steps took more than {:.1f} times as long as the fastest: other programs may "
                    "use the machine. "
                    "Calibrate again while it is idle",
                    times.seconds / times.least_seconds));
  return Timed{plan.model, plan.batch.effective, times.seconds, plan.step_seconds, 0, std::move(times.kernels)};
}

// Without a model, these shapes are measured.
std::vector<std::string> models_of(const RunOptions& options) {
  if (!options.model.empty()) return {options.model};
  std::vector<std::string> names;
  for (const BuiltinModel& model : builtin_models()) names.push_back(model.name);
  return names;
}

std::string text_of(const Measured& measured, const Calibration& calibration, size_t added, const std::string& path) {
  const auto rate = [](double value, const char* unit) {
    return value > 0 ? fmt::format("{:.1f} G{}", value * 1e-9, unit) : std::string("not measured");
  };
  std::string text =
      fmt::format("device    {}\nreaches   {} in float32, {} of memory traffic\n", measured.device.name,
                  rate(measured.rates.flops_per_second, "flop/s"), rate(measured.rates.bytes_per_second, "B/s"));
  for (const Timed& timed : measured.models)
    text += fmt::format(
        "{}, batch {}: a step took {:.2f} ms; predicted {:.2f} ms without this calibration, {:.2f} ms with it\n",
        timed.model, timed.batch, timed.measured_step * 1e3, timed.predicted_before * 1e3, timed.predicted_after * 1e3);
  return text + fmt::format("calibration {}: {} kernels, {} of them from this run, in {}\n", calibration.digest(),
                            calibration.kernels().size(), added, path);
}

nlohmann::ordered_json json_of(const Measured& measured, const Calibration& calibration, size_t added,
                               const std::string& path) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const Timed& timed : measured.models)
    steps.push_back(ordered_object({{"model", timed.model},
                                    {"batch", timed.batch},
                                    {"measured_seconds", timed.measured_step},
                                    {"predicted_seconds_before", timed.predicted_before},
                                    {"predicted_seconds", timed.predicted_after}}));
  return ordered_object({{"device", measured.device.name},
                         {"flops_per_second", measured.rates.flops_per_second},
                         {"bytes_per_second", measured.rates.bytes_per_second},
                         {"steps", steps},
                         {"calibration", calibration.digest()},
                         {"kernels", calibration.kernels().size()},
                         {"added", added},
                         {"file", path}});
}

}  // namespace

Result<int> calibrate(const CommonFlags& flags) {
  RunOptions options = flags.options;
  if (options.calibration.empty())
    return fail(Error{ErrorCode::kUsage,
                      "--calibrate cannot be combined with --calibration none: it needs a file to write",
                      {},
                      {"remove --calibration", "--calibration FILE"}});
  Measured measured;
  const RunOptions asked = options;
  for (const std::string& model : models_of(asked)) {
    options.model = model;
    message(flags, fmt::format("timing {}", model));
    PLIMSOLL_ASSIGN(Timed timed, time_model(options, measured));
    measured.models.push_back(std::move(timed));
  }
  Calibration& calibration = *measured.calibration;
  size_t added = 0;
  for (const Timed& timed : measured.models) added += calibration.add(timed.kernels);
  PLIMSOLL_ASSIGN(const std::string path, save_calibration(asked, measured.device, calibration));
  const auto names = models_of(asked);
  for (size_t i = 0; i < names.size(); ++i) {
    options.model = names[i];
    PLIMSOLL_ASSIGN(const auto run, planned_run(options));
    measured.models[i].predicted_after = run->found().plan.step_seconds;
  }
  answer(flags.json ? json_text(json_of(measured, calibration, added, path)) + "\n"
                    : text_of(measured, calibration, added, path));
  return 0;
}

}  // namespace plimsoll::engine
