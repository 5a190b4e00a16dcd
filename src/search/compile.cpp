#include "search/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "levers/relu_pooling.h"
#include "plan/order.h"
#include "search/micro_batch.h"
#include "search/prefetch.h"

namespace plimsoll::engine {
namespace {

// Applies the joint-graph levers to a phase that reads a batch, and adds their counts to `counted`.
Graph apply_joint_levers(Graph graph, const SearchRequest& request, const LeverSettings& settings,
                         std::map<std::string_view, int64_t>& counted) {
  graph = mask_relu_after_pooling(graph).graph;  // not a lever: it saves bytes at no cost, so it is always done
  for (const Lever& lever : *request.levers) {
    if (lever.stage != LeverStage::kJointGraph || settings.of(lever.name) == 0) continue;
    Rewritten rewritten = lever.rewrite(std::move(graph), *request.device, settings.of(lever.name));
    int64_t& count = counted[lever.name];
    count = std::max(count, rewritten.count);
    graph = std::move(rewritten.graph);
  }
  return graph;
}

// Returns where offload is in the table, or its end.
size_t offload_of(const LeverTable& table) {
  const auto is_offload = [](const Lever& lever) { return lever.name == kOffload; };
  return static_cast<size_t>(std::find_if(table.begin(), table.end(), is_offload) - table.begin());
}

Bytes most_live(const std::vector<LoweredPhase>& phases) {
  Bytes most = 0;
  for (const LoweredPhase& phase : phases) most = std::max(most, phase.live);
  return most;
}

}  // namespace

Result<Compiler> Compiler::create(const SearchRequest& request, const LeverSettings& settings) {
  Compiler compiler(request, settings);
  if (request.batch > 0) PLIMSOLL_TRY(compiler.add_training());
  compiler.order_phases();
  compiler.training_ = std::move(compiler.phases_);
  compiler.phases_.clear();
  compiler.counted_in_training_ = std::move(compiler.counted_);
  PLIMSOLL_TRY(compiler.lay_out_persistent());
  return compiler;
}

double Compiler::seconds_of_copies(int64_t offload_percent) const {
  double bytes = 0;
  for (const LoweredPhase& phase : training_)
    bytes += phase.repeats * bytes_to_offload(phase.live, most_live(training_), offload_percent);
  return bytes / request_->device->host_bytes_per_second();
}

std::vector<RecomputePoint> Compiler::recompute_points() {
  const Bytes most = most_live(training_);
  std::vector<RecomputePoint> phases;  // the present state of each phase
  for (const LoweredPhase& phase : training_) {
    steps_.push_back({RecomputePath(phase.graph, *request_->device), {}});
    phases.push_back({0, phase.graph.seconds(), phase.live});
  }
  std::vector<RecomputePoint> points;
  bool reached = true;
  for (const int64_t percent : kRecomputePercents) {
    const Bytes cap = share_kept(most, percent);
    RecomputePoint point{percent, 0, 0};
    for (size_t i = 0; reached && i < training_.size(); ++i) {
      if (training_[i].samples > 0 && training_[i].live > cap) {
        RecomputePath& path = steps_[i].path;
        reached = path.reach(cap);
        if (!reached) break;
        steps_[i].marks[percent] = path.mark();
        phases[i] = {percent, path.seconds(), path.live()};
      }
      point.compute_seconds += training_[i].repeats * phases[i].compute_seconds;
      point.live = std::max(point.live, phases[i].live);
    }
    if (!reached) break;
    point.compute_seconds = rounded_seconds(point.compute_seconds);
    while (!points.empty() && points.back().compute_seconds >= point.compute_seconds &&
           points.back().live >= point.live)
      points.pop_back();
    if (points.empty() || point.live < points.back().live) points.push_back(point);
  }
  return points;
}

int64_t Compiler::nodes() const {
  size_t count = 0;
  for (const LoweredPhase& phase : training_) count += phase.graph.graph.nodes.size();
  return static_cast<int64_t>(count);
}

const std::vector<RecomputeUnits>& Compiler::units() {
  if (units_.empty())
    for (const LoweredPhase& phase : training_) units_.emplace_back(phase.graph, *request_->device);
  return units_;
}

double Compiler::least_seconds() {
  double seconds = 0;
  for (size_t i = 0; i < training_.size(); ++i) seconds += training_[i].repeats * units()[i].least_seconds();
  return rounded_seconds(seconds);
}

Bytes Compiler::least_live() {
  Bytes live = 0;
  for (size_t i = 0; i < training_.size(); ++i)
    live = std::max(live, training_[i].samples > 0 ? least_live_bytes(units()[i]) : training_[i].live);
  return live;
}

double Compiler::least_seconds_for(const Plan& plan) {
  double seconds = 0;
  for (size_t i = 0; i < training_.size(); ++i) {  // the training phases are the plan's first
    const Bytes cap = plan.phases[i].live_set_bytes - plan.persistent_bytes;
    seconds += training_[i].repeats * (units()[i].seconds + least_recompute_seconds(units()[i], cap).value_or(0));
  }
  return std::min(rounded_seconds(seconds), plan.compute_seconds);
}

std::optional<Compiler::Outline> Compiler::outline(const LeverSettings& settings, bool last) {
  plan_ = {};
  settings_ = settings;
  const size_t levers = request_->levers->size();
  const size_t offload = offload_of(*request_->levers);
  if (settings.of(kOffload) != 0 && !last) {
    if (!prepare_offload(settings, offload)) return std::nullopt;
    phases_ = before_offload_->phases;
    counted_ = before_offload_->counted;
    if (!rewrite_ordered(settings, offload, levers)) return std::nullopt;
  } else {
    phases_ = last ? std::move(training_) : training_;
    counted_ = counted_in_training_;
    if (!rewrite_ordered(settings, 0, levers)) return std::nullopt;
  }
  Outline outline;
  BoundCounts counts;
  int64_t samples = 0;
  for (const LoweredPhase& phase : phases_) {
    outline.compute_seconds += phase.repeats * phase.graph.seconds();
    counts += {static_cast<int64_t>(phase.graph.graph.nodes.size()), phase.graph.primitives()};
    samples = std::max(samples, phase.samples);
  }
  outline.compute_seconds = rounded_seconds(outline.compute_seconds);
  outline.peak_bytes = std::max(
      least_arena(most_live(phases_)) + request_->device->overhead_bound(counts) + least_data_bytes(*request_, samples),
      request_->device->planning_bound(counts.nodes));
  return outline;
}

Result<Plan> Compiler::pack() {
  plan_phases();
  // Keras weights a loss that is a sum over its batch by the samples of the batch, so its parts say something else.
  const auto& outputs = request_->model->outputs();
  const bool whole = std::any_of(outputs.begin(), outputs.end(), [](const Port& port) { return port.loss_is_sum; });
  PLIMSOLL_TRY(add_inference(request_->evaluate_batch, request_->evaluate_samples, whole, evaluate_phase));
  PLIMSOLL_TRY(add_inference(request_->predict_batch, request_->predict_samples, false, predict_phase));
  return finish();
}

Result<std::optional<Plan>> Compiler::compile(const LeverSettings& settings, bool last) {
  if (!outline(settings, last)) return std::optional<Plan>();
  PLIMSOLL_ASSIGN(Plan plan, pack());
  return std::optional<Plan>(std::move(plan));
}

// The order of the nodes does not depend on the settings of the kOrderedGraph levers, so it is computed once.
void Compiler::order_phases() {
  for (LoweredPhase& phase : phases_) {
    phase.graph = reorder_for_memory(std::move(phase.graph));
    phase.live = live_set_of(phase.graph);
    phase.is_ordered = true;
  }
}

// Applies the levers before offload to the training phases, unless that has been done for these settings. Returns false
// if one of them cannot reach its setting.
bool Compiler::prepare_offload(const LeverSettings& settings, size_t offload) {
  const LeverSettings before = settings.with(kOffload, 0);
  if (before_offload_ && before_offload_->settings == before) return true;
  before_offload_.reset();
  phases_ = training_;
  counted_ = counted_in_training_;
  if (!rewrite_ordered(before, 0, offload)) return false;
  before_offload_ = BeforeOffload{before, std::move(phases_), counted_};
  phases_.clear();
  return true;
}

std::vector<Bytes> Compiler::least_peaks_offloaded(const LeverSettings& settings) {
  if (!prepare_offload(settings, offload_of(*request_->levers))) return {};
  const Bytes most = most_live(before_offload_->phases);
  std::vector<Bytes> caps, peaks;
  for (const int64_t percent : kOffloadPercents) caps.push_back(share_kept(most, percent));
  peaks.assign(caps.size(), 0);
  for (const LoweredPhase& phase : before_offload_->phases) {
    // Caps that the phase keeps without offload leave it as it is.
    const auto whole = static_cast<size_t>(
        std::find_if(caps.begin(), caps.end(), [&](Bytes cap) { return cap < phase.live; }) - caps.begin());
    std::vector<Bytes> live(std::min(phase.samples == 0 ? caps.size() : whole, peaks.size()), phase.live);
    if (live.size() < peaks.size())
      for (const Bytes least : least_live_offloaded(phase.graph, *request_->device, std::span(caps).subspan(whole)))
        live.push_back(least);
    peaks.resize(std::min(peaks.size(), live.size()));
    for (size_t i = 0; i < peaks.size(); ++i) peaks[i] = std::max(peaks[i], least_peak(live[i]));
  }
  return peaks;
}

// Applies kOrderedGraph levers, the ones from first_lever up to last_lever in the table, to phases_. Returns false if
// one of them cannot reach its setting.
bool Compiler::rewrite_ordered(const LeverSettings& settings, size_t first_lever, size_t last_lever) {
  for (size_t l = first_lever; l < last_lever; ++l) {
    const Lever& lever = (*request_->levers)[l];
    const int64_t setting = settings.of(lever.name);
    if (lever.stage != LeverStage::kOrderedGraph || setting == 0) continue;
    const Bytes most = most_live(phases_);
    for (size_t i = 0; i < phases_.size(); ++i) {
      LoweredPhase& phase = phases_[i];
      if (phase.samples == 0) continue;
      // The path has the graph too. One copy less is held while the rewritten graph is made.
      const bool from_path =
          lever.name == kRecompute && i < steps_.size() && !training_.empty() && phase.live > share_kept(most, setting);
      if (from_path) phase.graph = {};
      auto rewritten = rewrite_phase(lever, i, most, setting);
      if (!rewritten) return false;
      if (rewritten->values == 0 && from_path) phase.graph = training_[i].graph;
      if (rewritten->values == 0) continue;
      phase.graph = std::move(rewritten->graph);
      phase.live = live_set_of(phase.graph);
      int64_t& count = counted_[lever.name];
      count = std::max(count, rewritten->values);
    }
  }
  return true;
}

std::optional<RewrittenPhase> Compiler::rewrite_phase(const Lever& lever, size_t phase, Bytes most,
                                                      int64_t setting) const {
  const LoweredPhase& lowered = phases_[phase];
  if (lever.name == kRecompute && phase < steps_.size() && lowered.live > share_kept(most, setting)) {
    // The path need not be taken once more.
    const auto mark = steps_[phase].marks.find(setting);
    if (mark == steps_[phase].marks.end()) return std::nullopt;
    RewrittenPhase made = steps_[phase].path.graph_of(mark->second);
    return made.graph.kernels.empty() ? std::nullopt : std::optional(std::move(made));
  }
  return lever.rewrite_ordered({lowered.graph, lowered.live, most}, *request_->device, setting);
}

Status Compiler::add(Result<Phase> made, double repeats) {
  PLIMSOLL_ASSIGN(Phase phase, std::move(made));
  Graph graph = std::move(phase.graph);
  if (phase.samples > 0) graph = apply_joint_levers(std::move(graph), *request_, settings_, counted_);
  PLIMSOLL_ASSIGN(LoweredGraph lowered, lower(std::move(graph), *request_->device));
  phases_.push_back({phase.name, phase.samples, std::move(lowered), repeats, 0, false});
  return {};
}

Status Compiler::add_training() {
  const Model& model = *request_->model;
  const int64_t micro = micro_batch_of(*request_, settings_);
  if (micro == request_->batch) {
    PLIMSOLL_TRY(add(train_phase(model, request_->batch, request_->graph), 1));
    if (request_->partial_window > 0)
      PLIMSOLL_TRY(add(train_phase(model, request_->partial_window, request_->graph, true), 0));
    return {};
  }
  PLIMSOLL_TRY(add(begin_phase(model, request_->graph), 1));
  const int64_t whole = request_->batch / micro, tail = request_->batch % micro;
  const int64_t partial_tail = request_->partial_window % micro;
  PLIMSOLL_TRY(add(accumulate_phase(model, micro, request_->graph), static_cast<double>(whole)));
  if (tail > 0) PLIMSOLL_TRY(add(accumulate_phase(model, tail, request_->graph, true), 1));
  if (partial_tail > 0 && partial_tail != tail)
    PLIMSOLL_TRY(add(accumulate_phase(model, partial_tail, request_->graph, true), 0));
  return add(apply_phase(model, request_->graph), 1);
}

// Lays out the persistent values of all phases. They do not depend on the batch sizes of evaluation and prediction.
Status Compiler::lay_out_persistent() {
  std::vector<Phase> inference;
  for (const auto& [batch, make] :
       {std::pair{request_->evaluate_batch, &evaluate_phase}, std::pair{request_->predict_batch, &predict_phase}}) {
    if (batch == 0) continue;
    PLIMSOLL_ASSIGN(Phase phase, make(*request_->model, 1, request_->graph, false));
    inference.push_back(std::move(phase));
  }
  std::vector<const Graph*> graphs;
  for (const LoweredPhase& phase : training_) graphs.push_back(&phase.graph.graph);
  for (const Phase& phase : inference) graphs.push_back(&phase.graph);
  layout_ = lay_out(graphs, request_->arena);
  return {};
}

void Compiler::plan_phases() {
  for (LoweredPhase& phase : phases_) {
    plan_.phases.push_back(phase.is_ordered ? place_phase(phase.name, phase.samples, std::move(phase.graph), layout_)
                                            : plan_phase(phase.name, phase.samples, std::move(phase.graph), layout_));
    plan_.compute_seconds += phase.repeats * plan_.phases.back().seconds;
  }
  plan_.compute_seconds = rounded_seconds(plan_.compute_seconds);
  phases_.clear();
}

Bytes Compiler::highest() const {
  Bytes bytes = layout_.bytes;
  for (const PhasePlan& phase : plan_.phases) bytes = std::max(bytes, phase.arena_bytes);
  return bytes;
}

// Splits the batches of evaluation and prediction until they need no more memory than training. This changes only the
// time, not the result, unless `whole` says that it would.
template <typename MakePhase>
Status Compiler::add_inference(int64_t batch, int64_t samples, bool whole, MakePhase make) {
  if (batch == 0) return {};
  if (samples > 0) batch = std::min(batch, samples);
  for (;; batch = (batch + 1) / 2) {
    PLIMSOLL_TRY(add(make(*request_->model, batch, request_->graph, false), 0));
    if (samples > 0 && samples % batch != 0)
      PLIMSOLL_TRY(add(make(*request_->model, samples % batch, request_->graph, true), 0));
    const Bytes before = highest() + least_data();
    const size_t count = plan_.phases.size();
    plan_phases();
    Bytes needed = 0;
    for (size_t i = count; i < plan_.phases.size(); ++i) needed = std::max(needed, plan_.phases[i].arena_bytes);
    const Bytes allowed = request_->batch > 0     ? before
                          : request_->budget == 0 ? INT64_MAX
                                                  : request_->budget - overhead();
    if (needed + least_data() <= allowed || batch == 1 || whole) return {};
    plan_.phases.resize(count);
  }
}

Result<std::optional<PhasePlan>> Compiler::compile_phase(const SearchRequest& request, const LeverSettings& settings,
                                                         Phase phase, const PersistentLayout& persistent) {
  Compiler compiler(request, settings);
  PLIMSOLL_TRY(compiler.add(std::move(phase), 1));
  compiler.order_phases();
  if (!compiler.rewrite_ordered(settings, 0, request.levers->size())) return std::optional<PhasePlan>();
  compiler.layout_ = persistent;
  compiler.plan_phases();
  return std::optional<PhasePlan>(std::move(compiler.plan_.phases.front()));
}

Bytes Compiler::overhead() const {
  return request_->device->overhead_bound(counts_of(plan_.phases));
}

Bytes Compiler::least_data() const {
  return least_data_bytes(*request_, plan_.phases);
}

Plan Compiler::finish() {
  plan_.model = request_->model->name();
  plan_.device = request_->device->info().name;
  plan_.memory = request_->device->info().memory;
  plan_.precision = to_text(request_->graph.precision);
  plan_.tf32 = request_->device->info().tf32;
  plan_.calibration = request_->device->info().calibration;
  plan_.settings = settings_;
  plan_.batch = batch_of(request_->batch, settings_);
  plan_.persistent = layout_.slots;
  plan_.persistent_bytes = layout_.bytes;
  plan_.arena_bytes = highest();
  plan_.overhead_bytes = overhead();
  int64_t nodes = 0;
  for (const PhasePlan& phase : plan_.phases) nodes += static_cast<int64_t>(phase.nodes.size());
  plan_.planning_bytes = request_->device->planning_bound(nodes);
  if (plan_.planning_bytes > 0) plan_.planning_bytes += request_->data.held_before;
  plan_.beside = memories_beside(plan_.phases);
  plan_.levers = levers_used(plan_, counted_, *request_->levers);
  choose_prefetch(*request_, plan_);
  add_input_seconds(*request_, plan_);
  return std::move(plan_);
}

Result<std::optional<Plan>> compile(const SearchRequest& request, const LeverSettings& settings) {
  PLIMSOLL_ASSIGN(Compiler compiler, Compiler::create(request, settings));
  return compiler.compile(settings, true);
}

}  // namespace plimsoll::engine
