// Times training steps of one model on one GPU, its batch already there, and prints one JSON line.
//
//   step_bench MODEL BATCH PRECISION [--steps N] [--budget BYTES] [--forbid LEVER] [--device gpu]
//
// ms is the median over `steps` steps, each timed by the wall clock between two synchronisations of 10 steps, so that
// steps follow each other as in training. opened_s, planned_s, ready_s and first_step_s count from the start of the
// process.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "api/job.h"
#include "execute/probe.h"
#include "plimsoll/plimsoll.h"
#include "search/build.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Uniform pixels, labels in range: never zeros, which run faster than data do.
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

// Each node's time, how far it is above its prediction, and the sums by op.
void print_profile(Session& session, int64_t batch) {
  const PhasePlan* phase = session.plan().phase(session.plan().gradient_phase());
  const auto seconds = require(Probe(session).measure_nodes(phase->name.kind, phase->samples, 10));
  std::map<std::string, std::pair<int, double>> by_op;
  double sum = 0;
  for (size_t n = 0; n < seconds.size(); ++n) {
    const Node& node = phase->graph.nodes[n];
    std::string what = node.op;
    if (node.body) {
      what += ":";
      for (size_t i = 0; i < node.body->nodes.size() && i < 6; ++i) what += " " + node.body->nodes[i].op;
      if (node.body->nodes.size() > 6) what += fmt::format(" +{}", node.body->nodes.size() - 6);
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

int run(int argc, char** argv) {
  const auto start = Clock::now();
  JobOptions job;
  job.model = argv[1];
  job.batch_size = std::atoll(argv[2]);
  job.precision = argv[3];
  job.device = "gpu";
  job.overrides.optimizer = "adam";
  job.overrides.loss = "sparse_categorical_crossentropy";
  int steps = 50;
  bool plan_only = false, profile = false;
  for (int i = 4; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--steps") == 0) steps = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--budget") == 0) job.budget = require(parse_bytes(argv[i + 1]));
    if (std::strcmp(argv[i], "--forbid") == 0) job.forbidden.insert(argv[i + 1]);
    if (std::strcmp(argv[i], "--device") == 0) job.device = argv[i + 1];
    if (std::strcmp(argv[i], "--profile") == 0) profile = std::strcmp(argv[i + 1], "1") == 0;
    if (std::strcmp(argv[i], "--plan-only") == 0) plan_only = std::strcmp(argv[i + 1], "1") == 0;
  }
  const Precision precision = require(parse_precision(job.precision));
  job.overrides.scale_loss = precision.compute == DType::kFloat16;
  const OpenModel open = require(open_model(job.model, job.overrides));
  const auto backend = require(open_backend(job));
  const double opened = seconds_since(start);
  const Budget budget = choose_budget(job, backend->device().info());
  SearchRequest request =
      base_request(job, open.model, backend->device(), precision, assumed_data_types(open.model, false), budget);
  request.find_least = false;
  const SearchResult found = require(search(request));
  const double planned = seconds_since(start);
  if (!found.fits) {
    fmt::print(stderr, "{}\n", does_not_fit(request, found).what);
    return 3;
  }
  if (plan_only) {
    for (const PhasePlan& phase : found.plan.phases) fmt::print("{}", print(phase.graph));
    return 0;
  }
  const auto session = require(Session::create(open.model, found.plan, *backend, request.graph));
  require(initialize_weights(*session, 7));
  const double ready = seconds_since(start);
  int64_t iteration = 0;
  const auto step = [&](bool again) {
    require(session->begin({job.batch_size, iteration++, 1e-3, 3}));
    for (int64_t done = 0; done < job.batch_size;) {
      const int64_t count = std::min(found.plan.batch.micro, job.batch_size - done);
      require(again && found.plan.batch.accumulation_steps() == 1
                  ? Probe(*session).accumulate_again(count)
                  : session->accumulate(count,
                                        [&](const BatchBuffers& into) { return fill_batch(open.model, count, into); }));
      done += count;
    }
    require(session->apply());
  };
  step(false);
  const double first_loss = session->tally("loss"), first = seconds_since(start);
  constexpr int kTogether = 10;
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) {
    step(true);
    session->tally("loss");
  }
  for (int i = 0; i < steps; i += kTogether) {
    const auto begin = Clock::now();
    for (int k = 0; k < kTogether; ++k) {
      step(true);
      if (k > 0) (void)require(session->collect());
    }
    session->tally("loss");
    times.push_back(seconds_since(begin) * 1e3 / kTogether);
  }
  std::sort(times.begin(), times.end());
  std::string levers;
  for (const LeverUse& lever : found.plan.levers)
    levers += fmt::format("{}{} {}", levers.empty() ? "" : ", ", lever.name, lever.count);
  if (profile) print_profile(*session, job.batch_size);
  fmt::print(
      R"({{"model": "{}", "batch": {}, "precision": "{}", "ms": {:.4f}, "best_ms": {:.4f}, "predicted_ms": {:.4f}, "opened_s": {:.2f}, "planned_s": {:.2f}, "ready_s": {:.2f}, "first_step_s": {:.2f}, "arena_mib": {:.0f}, "overhead_mib": {:.0f}, "overhead_bound_mib": {:.0f}, "driver_mib": {:.0f}, "planned_mib": {:.0f}, "host_mib": {:.0f}, "micro": {}, "levers": "{}", "first_loss": {:.5f}, "last_loss": {:.5f}}})"
      "\n",
      job.model.substr(job.model.rfind('/') + 1), job.batch_size, job.precision, times[times.size() / 2], times[0],
      found.plan.step_seconds * 1e3, opened, planned, ready, first,
      static_cast<double>(session->arena_peak_bytes()) / kMiB,
      static_cast<double>(session->overhead_measured_bytes()) / kMiB,
      static_cast<double>(found.plan.overhead_bytes) / kMiB, static_cast<double>(session->peak_held_bytes()) / kMiB,
      static_cast<double>(found.plan.peak_bytes()) / kMiB,
      static_cast<double>(found.plan.bytes_in(Space::kHost)) / kMiB, found.plan.batch.micro, levers, first_loss,
      session->tally("loss"));
  return 0;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: step_bench MODEL BATCH PRECISION [--steps N] [--budget BYTES] [--forbid LEVER]\n");
    return 2;
  }
  try {
    return plimsoll::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
