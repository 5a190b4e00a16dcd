// Times training steps of one model on one GPU, with its batch already on the device, and prints one JSON line.
//
//   step_bench MODEL BATCH PRECISION [--steps N] [--budget BYTES] [--forbid LEVER] [--device gpu]
//
// ms is the median over `steps` steps. The wall clock is read only every 10 steps, with a synchronisation, so that
// steps follow each other as in training. opened_s, planned_s, ready_s and first_step_s count from the start of the
// process.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "api/run.h"
#include "execute/probe.h"
#include "plimsoll/plimsoll.h"

namespace plimsoll::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Fills a batch with uniform random pixels and valid labels. Zeros would run faster than real data.
Status fill_batch(const Model& model, int64_t batch, const BatchBuffers& into) {
  uint32_t state = 12345;
  const auto next = [&] { return state = state * 1664525U + 1013904223U; };
  for (size_t i = 0; i < into.inputs.size(); ++i) {
    const int64_t count = batch * model.inputs()[i].sample.elements();
    if (is_floating(model.inputs()[i].dtype))
      for (int64_t k = 0; k < count; ++k)
        static_cast<float*>(into.inputs[i])[k] = static_cast<float>(next() >> 8) * 0x1p-24F;
    else
      for (int64_t k = 0; k < count; ++k)
        static_cast<int32_t*>(into.inputs[i])[k] = static_cast<int32_t>(next() % 1000);
  }
  for (size_t i = 0; i < into.targets.size(); ++i) {
    const Port& port = model.outputs()[i];
    const int64_t count = batch * port.target.elements();
    for (int64_t k = 0; k < count; ++k)
      static_cast<int32_t*>(into.targets[i])[k] =
          static_cast<int32_t>((next() >> 4) % static_cast<uint32_t>(port.classes));
  }
  return {};
}

// Prints the time of each node, its difference to the prediction, and the sums per op.
void print_profile(Session& session) {
  const PhasePlan* phase = session.plan().phase(session.plan().gradient_phase());
  const auto seconds = require(Probe(session).measure_nodes(phase->name.kind, phase->samples, 10));
  std::map<std::string, std::pair<int, double>> by_op;
  double sum = 0;
  for (size_t n = 0; n < seconds.size(); ++n) {
    const Node& node = phase->graph.nodes[n];
    std::string what = node.op;
    if (node.body) {
      std::map<std::string, int> ops;
      for (const Node& inner : node.body->nodes) ++ops[inner.op];
      what += ":";
      for (const auto& [op, count] : ops) what += count > 1 ? fmt::format(" {}x{}", count, op) : " " + op;
    }
    double bytes = 0;
    for (ValueId id : node.inputs) bytes += static_cast<double>(phase->graph.value(id).bytes());
    for (ValueId id : node.outputs) bytes += static_cast<double>(phase->graph.value(id).bytes());
    fmt::print(stderr, "{:9.1f} us {:9.1f} predicted {:6.2f} TB/s  {} [{}] {} {}\n", seconds[n] * 1e6,
               phase->nodes[n].seconds * 1e6, bytes / seconds[n] * 1e-12, what,
               to_text(phase->graph.type(node.outputs[0])), node.layer, phase->nodes[n].kernel);
    auto& [count, total] = by_op[what];
    ++count;
    total += seconds[n];
    sum += seconds[n];
  }
  std::vector<std::pair<std::string, std::pair<int, double>>> sorted(by_op.begin(), by_op.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.second > b.second.second; });
  for (const auto& [what, total] : sorted)
    fmt::print(stderr, "{:10.1f} us in {:3}  {}\n", total.second * 1e6, total.first, what);
  fmt::print(stderr, "{:10.1f} us in all nodes\n", sum * 1e6);
}

struct Flags {
  RunOptions run;
  int steps = 50;
  bool plan_only = false, profile = false;
};

Flags parse(int argc, char** argv) {
  Flags flags;
  RunOptions& run = flags.run;
  run.model = argv[1];
  run.batch_size = std::atoll(argv[2]);
  run.precision = argv[3];
  run.device = "gpu";
  run.seed = 7;
  run.data.reads_ahead = false;
  run.overrides.optimizer = "adam";
  run.overrides.learning_rate = 1e-3;
  run.overrides.loss = "sparse_categorical_crossentropy";
  run.overrides.scale_loss = require(parse_precision(run.precision)).compute == DType::kFloat16;
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--steps") flags.steps = std::stoi(value);
    if (name == "--budget") run.budget = require(parse_bytes(value));
    if (name == "--forbid") run.forbidden.insert(value);
    if (name == "--device") run.device = value;
    if (name == "--profile") flags.profile = value == "1";
    if (name == "--plan-only") flags.plan_only = value == "1";
  }
  return flags;
}

// Runs one optimizer step. `again`: on the last batch, which the device still has if the batch is not split.
void step(Run& run, bool again) {
  const int64_t batch = run.options().batch_size;
  require(run.begin(batch));
  if (again && run.found().plan.batch.accumulation_steps() == 1)
    require(Probe(run.session()).accumulate_again(batch));
  else
    require(run.accumulate(batch, [&](const BatchRequest& piece, const BatchBuffers& into) {
      return fill_batch(run.model(), piece.count, into);
    }));
  require(run.apply());
}

// Returns the milliseconds per step, each measured over 10 steps in a row.
std::vector<double> time_steps(Run& run, int steps) {
  constexpr int kTogether = 10;
  Session& session = run.session();
  for (int i = 0; i < kTogether; ++i) {
    step(run, true);
    session.tally("loss");
  }
  std::vector<double> times;
  for (int i = 0; i < steps; i += kTogether) {
    const auto begin = Clock::now();
    for (int k = 0; k < kTogether; ++k) {
      step(run, true);
      if (k > 0) (void)require(session.collect());
    }
    session.tally("loss");
    times.push_back(seconds_since(begin) * 1e3 / kTogether);
  }
  std::sort(times.begin(), times.end());
  return times;
}

std::string levers_text(const Plan& plan) {
  std::string levers;
  for (const LeverUse& lever : plan.levers)
    levers += fmt::format("{}{} {}", levers.empty() ? "" : ", ", lever.name, lever.count);
  return levers;
}

int run(const Flags& flags) {
  const auto start = Clock::now();
  const auto run = require(Run::open(flags.run));
  const double opened = seconds_since(start);
  require(run->search());
  const double planned = seconds_since(start);
  const Plan& plan = run->found().plan;
  if (!run->found().fits) {
    fmt::print(stderr, "{}\n", does_not_fit(run->request(), run->found()).what);
    return 3;
  }
  if (flags.plan_only) {
    for (const PhasePlan& phase : plan.phases) fmt::print("{}", print(phase.graph));
    return 0;
  }
  require(run->start());
  const double ready = seconds_since(start);
  step(*run, false);
  Session& session = run->session();
  const double first_loss = session.tally("loss"), first = seconds_since(start);
  const std::vector<double> times = time_steps(*run, flags.steps);
  const double last_loss = session.tally("loss");
  if (flags.profile) print_profile(session);
  const auto mib = [](Bytes bytes) { return static_cast<double>(bytes) / kMiB; };
  fmt::print(
      R"({{"model": "{}", "batch": {}, "precision": "{}", "ms": {:.4f}, "best_ms": {:.4f}, "predicted_ms": {:.4f}, "opened_s": {:.2f}, "planned_s": {:.2f}, "ready_s": {:.2f}, "first_step_s": {:.2f}, "arena_mib": {:.0f}, "overhead_mib": {:.0f}, "overhead_bound_mib": {:.0f}, "driver_mib": {:.0f}, "planned_mib": {:.0f}, "host_mib": {:.0f}, "micro": {}, "levers": "{}", "first_loss": {:.5f}, "last_loss": {:.5f}}})"
      "\n",
      flags.run.model.substr(flags.run.model.rfind('/') + 1), flags.run.batch_size, flags.run.precision,
      times[times.size() / 2], times[0], plan.step_seconds * 1e3, opened, planned, ready, first,
      mib(session.arena_peak_bytes()), mib(session.overhead_measured_bytes()), mib(plan.overhead_bytes),
      mib(session.peak_held_bytes()), mib(plan.peak_bytes()), mib(plan.bytes_in(Space::kHost)), plan.batch.micro,
      levers_text(plan), first_loss, last_loss);
  return 0;
}

}  // namespace
}  // namespace plimsoll::engine

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: step_bench MODEL BATCH PRECISION [--steps N] [--budget BYTES] [--forbid LEVER]\n");
    return 2;
  }
  try {
    return plimsoll::engine::run(plimsoll::engine::parse(argc, argv));
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
