#include "api/shrink_price.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/json.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

Result<std::unique_ptr<Run>> planned(const HeldModel& held, RunOptions options, Mode mode) {
  options.mode = mode;
  options.note = nullptr;
  options.weights_from_caller = true;
  options.overrides = held.options;
  options.overrides.needs_loss = mode == Mode::kTrain;
  options.overrides.needs_training = mode == Mode::kTrain;
  if (mode != Mode::kTrain) options.automatic_batch = false;
  PLIMSOLL_ASSIGN(OpenModel open, open_description(held.description, options.model, options.overrides));
  PLIMSOLL_ASSIGN(auto run, Run::open(std::move(open), options));
  PLIMSOLL_TRY(run->search());
  return run;
}

PhasePrice phase_price(const Run& run, bool trains) {
  const Plan& plan = run.found().plan;
  const PhasePlan* predict = plan.phase(PhaseKind::kPredict);
  const double seconds = trains || predict == nullptr ? plan.step_seconds : predict->seconds;
  return {run.found().fits, plan.peak_bytes(), plan.arena_bytes, seconds};
}

// The name of the kernel for a convolution of that many channels; "" if there is none.
std::string kernel_for(const Device& device, int64_t channels) {
  GraphBuilder b = make_builder();
  const ValueId x = b.input("x", {DType::kFloat32, {32, 16, 16, channels}}, Category::kActivations, false);
  const ValueId w = b.input("w", {DType::kFloat32, {3, 3, channels, channels}}, Category::kWeights, false);
  b.output(b.add1("conv2d", {x, w},
                  {{"strides", AttrList{1, 1}},
                   {"pads", AttrList{1, 1, 1, 1}},
                   {"dilations", AttrList{1, 1}},
                   {"groups", int64_t{1}}}));
  if (!b.status()) return "";
  const auto offer = device.offer(b.graph(), b.graph().nodes.back());
  return offer ? offer->kernel : "";
}

}  // namespace

Result<ShrinkPrice> price_shrunk(const HeldModel& held, const KerasArchive* source, const RunOptions& options) {
  ShrinkPrice price;
  for (const Weight& weight : held.model.weights()) price.parameters += weight.shape.elements();
  price.file = file_bytes(held, source);
  PLIMSOLL_ASSIGN(price.multiplications, multiplications(held.model));
  if (held.options.needs_training) {
    PLIMSOLL_ASSIGN(const auto run, planned(held, options, Mode::kTrain));
    price.training = phase_price(*run, true);
    price.batch = run->options().batch_size;
  }
  RunOptions predicts = options;
  if (price.batch > 0) predicts.batch_size = price.batch;
  PLIMSOLL_ASSIGN(const auto run, planned(held, predicts, Mode::kPredict));
  price.inference = phase_price(*run, false);
  price.batch = predicts.batch_size;
  return price;
}

int64_t preferred_multiple(const Device& device) {
  constexpr int64_t kWide = 128, kMost = 32;
  const std::string best = kernel_for(device, kWide);
  if (best.empty()) return 1;
  for (int64_t multiple = 1; multiple <= kMost; multiple *= 2)
    if (kernel_for(device, kWide - multiple) == best) return multiple;
  return 1;
}

nlohmann::ordered_json price_json(const ShrinkPrice& price) {
  const auto phase = [](const PhasePrice& one) {
    return ordered_object({{"fits", one.fits},
                           {"peak_bytes", one.peak_bytes},
                           {"arena_bytes", one.arena_bytes},
                           {"seconds", one.seconds}});
  };
  auto made = ordered_object({{"parameters", price.parameters},
                              {"file_bytes", price.file.whole},
                              {"file_bytes_without_optimizer", price.file.without_state},
                              {"multiplications", price.multiplications},
                              {"batch", price.batch}});
  if (price.training) made["training"] = phase(*price.training);
  made["inference"] = phase(price.inference);
  return made;
}

std::string price_table(const ShrinkPrice& before, const ShrinkPrice& after) {
  std::string text;
  const auto row = [&](const std::string& name, const std::string& a, const std::string& b, double x, double y) {
    text += fmt::format("{:<34}{:>14}{:>14}{:>8}\n", name, a, b, x > 0 ? fmt::format("{:.0f} %", 100 * y / x) : "");
  };
  const auto bytes = [&](const std::string& name, Bytes a, Bytes b) {
    row(name, format_bytes(a), format_bytes(b), static_cast<double>(a), static_cast<double>(b));
  };
  const auto seconds = [&](const std::string& name, double a, double b) {
    row(name, fmt::format("{:.3g} ms", 1e3 * a), fmt::format("{:.3g} ms", 1e3 * b), a, b);
  };
  text += fmt::format("{:<34}{:>14}{:>14}\n", "", "before", "after");
  row("parameters", fmt::format("{}", before.parameters), fmt::format("{}", after.parameters),
      static_cast<double>(before.parameters), static_cast<double>(after.parameters));
  bytes("file", before.file.whole, after.file.whole);
  bytes("file without optimizer state", before.file.without_state, after.file.without_state);
  row("multiplications per sample", fmt::format("{:.4g}", before.multiplications),
      fmt::format("{:.4g}", after.multiplications), before.multiplications, after.multiplications);
  if (before.training && after.training) {
    bytes(fmt::format("training peak (batch {})", after.batch), before.training->peak_bytes,
          after.training->peak_bytes);
    bytes("  of it the arena", before.training->arena_bytes, after.training->arena_bytes);
    seconds("training step, estimated", before.training->seconds, after.training->seconds);
  }
  bytes(fmt::format("prediction peak (batch {})", after.batch), before.inference.peak_bytes,
        after.inference.peak_bytes);
  bytes("  of it the arena", before.inference.arena_bytes, after.inference.arena_bytes);
  seconds("predicted batch, estimated", before.inference.seconds, after.inference.seconds);
  return text;
}

}  // namespace plimsoll::engine
