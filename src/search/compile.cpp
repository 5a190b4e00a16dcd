#include "search/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

bool uses_ordered_levers(const SearchRequest& request, const LeverSettings& settings) {
  return std::any_of(request.levers->begin(), request.levers->end(), [&](const Lever& lever) {
    return lever.stage == LeverStage::kOrderedGraph && settings.of(lever.name) != 0;
  });
}

}  // namespace

Result<Compiler> Compiler::create(const SearchRequest& request, const LeverSettings& settings) {
  Compiler compiler(request, settings);
  if (request.batch > 0) PLIMSOLL_TRY(compiler.add_training());
  compiler.training_ = std::move(compiler.phases_);
  compiler.phases_.clear();
  compiler.counted_in_training_ = std::move(compiler.counted_);
  PLIMSOLL_TRY(compiler.lay_out_persistent());
  return compiler;
}

double Compiler::seconds_of_copies(int64_t offload_percent) {
  order_training();
  double bytes = 0;
  for (const LoweredPhase& phase : training_)
    bytes += phase.repeats * bytes_to_offload(phase.live, most_live_, offload_percent);
  return bytes / request_->device->host_bytes_per_second();
}

Result<std::optional<Plan>> Compiler::compile(const LeverSettings& settings, bool last) {
  plan_ = {};
  settings_ = settings;
  counted_ = counted_in_training_;
  const bool ordered = uses_ordered_levers(*request_, settings);
  if (ordered) order_training();
  phases_ = last ? std::move(training_) : training_;
  if (ordered && !rewrite_ordered()) return std::optional<Plan>();
  plan_phases();
  PLIMSOLL_TRY(add_inference(request_->evaluate_batch, request_->evaluate_samples, evaluate_phase));
  PLIMSOLL_TRY(add_inference(request_->predict_batch, request_->predict_samples, predict_phase));
  return std::optional<Plan>(finish());
}

// The order of the nodes does not depend on the settings of the kOrderedGraph levers, so it is computed once.
void Compiler::order_training() {
  if (ordered_) return;
  ordered_ = true;
  for (LoweredPhase& phase : training_) {
    phase.graph = reorder_for_memory(std::move(phase.graph));
    phase.live = live_set_of(phase.graph);
    most_live_ = std::max(most_live_, phase.live);
  }
}

// Applies the kOrderedGraph levers. Returns false if one of them cannot reach its setting.
bool Compiler::rewrite_ordered() {
  for (const Lever& lever : *request_->levers) {
    const int64_t setting = settings_.of(lever.name);
    if (lever.stage != LeverStage::kOrderedGraph || setting == 0) continue;
    for (LoweredPhase& phase : phases_) {
      auto rewritten = lever.rewrite_ordered({phase.graph, phase.live, most_live_}, *request_->device, setting);
      if (!rewritten) return false;
      if (rewritten->values == 0) continue;
      phase.graph = std::move(rewritten->graph);
      phase.keeps_its_order = true;
      int64_t& count = counted_[lever.name];
      count = std::max(count, rewritten->values);
    }
  }
  return true;
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
    plan_.phases.push_back(phase.keeps_its_order
                               ? place_phase(phase.name, phase.samples, std::move(phase.graph), layout_)
                               : plan_phase(phase.name, phase.samples, std::move(phase.graph), layout_));
    plan_.step_seconds += phase.repeats * plan_.phases.back().seconds;
  }
  // The same kernels in another order must have the same time, so round to picoseconds; the rounding error of the sum
  // is smaller than that.
  plan_.step_seconds = std::round(plan_.step_seconds * 1e12) / 1e12;
  phases_.clear();
}

Bytes Compiler::highest() const {
  Bytes bytes = layout_.bytes;
  for (const PhasePlan& phase : plan_.phases) bytes = std::max(bytes, phase.arena_bytes);
  return bytes;
}

// Splits the batches of evaluation and prediction until they need no more memory than training. This changes only the
// time, not the result.
template <typename MakePhase>
Status Compiler::add_inference(int64_t batch, int64_t samples, MakePhase make) {
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
    if (needed + least_data() <= allowed || batch == 1) return {};
    plan_.phases.resize(count);
  }
}

Result<std::optional<PhasePlan>> Compiler::compile_phase(const SearchRequest& request, const LeverSettings& settings,
                                                         Phase phase, const PersistentLayout& persistent) {
  Compiler compiler(request, settings);
  PLIMSOLL_TRY(compiler.add(std::move(phase), 1));
  if (uses_ordered_levers(request, settings)) {
    compiler.training_ = std::move(compiler.phases_);
    compiler.order_training();
    compiler.phases_ = std::move(compiler.training_);
    if (!compiler.rewrite_ordered()) return std::optional<PhasePlan>();
  }
  compiler.layout_ = persistent;
  compiler.plan_phases();
  return std::optional<PhasePlan>(std::move(compiler.plan_.phases.front()));
}

Bytes Compiler::overhead() const {
  int primitives = 0;
  for (const PhasePlan& phase : plan_.phases) primitives += phase.primitives;
  return request_->device->overhead_bound(primitives);
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
  return std::move(plan_);
}

Result<std::optional<Plan>> compile(const SearchRequest& request, const LeverSettings& settings) {
  PLIMSOLL_ASSIGN(Compiler compiler, Compiler::create(request, settings));
  return compiler.compile(settings, true);
}

Result<Graph> joint_graph(const SearchRequest& request, const LeverSettings& settings) {
  const int64_t micro = micro_batch_of(request, settings);
  PLIMSOLL_ASSIGN(Phase phase, micro == request.batch ? train_phase(*request.model, micro, request.graph)
                                                      : accumulate_phase(*request.model, micro, request.graph));
  std::map<std::string_view, int64_t> counted;
  return apply_joint_levers(std::move(phase.graph), request, settings, counted);
}

}  // namespace plimsoll::engine
