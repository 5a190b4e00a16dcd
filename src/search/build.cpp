#include "search/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/offload.h"
#include "plan/order.h"

namespace plimsoll {
namespace {

double share_of(int recompute) {
  return std::pow(0.87, recompute - 1);
}

// Clones take the epilogues of their nodes, which are folded before there are any.
Graph ready_for_costly(Graph graph, const Device& device) {
  graph = mask_relu_after_pooling(graph).graph;
  return device.has_epilogues() ? fold_epilogues(graph) : graph;
}

// A phase that reads a batch, as a level of recompute leaves it.
Rewritten apply_levers(Graph graph, const Device& device, int recompute) {
  if (recompute > 1) return recompute_costly(ready_for_costly(std::move(graph), device), device, share_of(recompute));
  graph = mask_relu_after_pooling(graph).graph;
  if (recompute == 1) return recompute_cheap(graph);
  return {std::move(graph), 0};
}

struct Lowered {
  PhaseName name;
  int64_t samples = 0;
  LoweredGraph graph;
  double repeats = 0;     // runs of it in one full window
  Bytes live = 0;         // at most at once, once it was ordered for that
  int64_t offloaded = 0;  // values that wait in the host's memory: then its order stays
};

class Builder {
 public:
  Builder(const SearchRequest& request, int64_t micro, int recompute)
      : request_(request), micro_(micro), recompute_(recompute) {}

  // The phases of training, which every plan has.
  Status lower_training() {
    if (request_.batch > 0) PLIMSOLL_TRY(add_training());
    training_ = std::move(phases_);
    return lay_out_persistent();
  }

  // What leaves the device because only `kept` of the live set stays goes over the link once at least.
  double seconds_of_copies(double kept) {
    if (kept >= 1) return 0;
    order_training();
    double bytes = 0;
    for (const Lowered& phase : training_)
      bytes += phase.repeats * std::max(0.0, static_cast<double>(phase.live) - kept * static_cast<double>(most_live_));
    return bytes / request_.device->host_bytes_per_second();
  }

  // With `kept` of what training has alive on the device, the rest in the host's memory; nothing where that is out of
  // reach. The `last` plan takes the phases with it.
  Result<std::optional<Plan>> plan(double kept, bool last) {
    plan_ = {};
    offloaded_ = 0;
    kept_ = kept;
    if (kept < 1) order_training();
    phases_ = last ? std::move(training_) : training_;
    if (kept < 1 && !offload_phases(kept)) return std::optional<Plan>();
    plan_phases();
    PLIMSOLL_TRY(add_inference(request_.evaluate_batch, request_.evaluate_samples, evaluate_phase));
    PLIMSOLL_TRY(add_inference(request_.predict_batch, request_.predict_samples, predict_phase));
    return std::optional<Plan>(finish());
  }

 private:
  // The persistent values of all phases, which do not depend on how inference is cut.
  Status lay_out_persistent() {
    std::vector<Phase> inference;
    for (const auto& [batch, make] :
         {std::pair{request_.evaluate_batch, &evaluate_phase}, std::pair{request_.predict_batch, &predict_phase}}) {
      if (batch == 0) continue;
      PLIMSOLL_ASSIGN(Phase phase, make(*request_.model, 1, request_.graph, false));
      inference.push_back(std::move(phase));
    }
    std::vector<const Graph*> graphs;
    for (const Lowered& phase : training_) graphs.push_back(&phase.graph.graph);
    for (const Phase& phase : inference) graphs.push_back(&phase.graph);
    layout_ = lay_out(graphs, request_.arena);
    return {};
  }

  // Whatever share is kept, the order of the nodes is the same.
  void order_training() {
    if (ordered_) return;
    ordered_ = true;
    for (Lowered& phase : training_) {
      phase.graph = reorder_for_memory(std::move(phase.graph));
      phase.live = live_set_of(phase.graph);
      most_live_ = std::max(most_live_, phase.live);
    }
  }

  bool offload_phases(double kept) {
    const auto cap = static_cast<Bytes>(kept * static_cast<double>(most_live_));
    for (Lowered& phase : phases_) {
      if (phase.live <= cap) continue;
      auto offloaded = offload(phase.graph, *request_.device, cap);
      if (!offloaded) return false;
      phase.graph = std::move(offloaded->graph);
      phase.offloaded = offloaded->values;
    }
    return true;
  }

  Status add(Result<Phase> made, double repeats) {
    PLIMSOLL_ASSIGN(Phase phase, std::move(made));
    Graph graph = std::move(phase.graph);
    if (phase.samples > 0 && repeats >= 0) {
      Rewritten rewritten = apply_levers(std::move(graph), *request_.device, recompute_);
      recomputed_ = std::max(recomputed_, rewritten.count);
      graph = std::move(rewritten.graph);
    }
    PLIMSOLL_ASSIGN(LoweredGraph lowered, lower(std::move(graph), *request_.device));
    phases_.push_back({phase.name, phase.samples, std::move(lowered), repeats, 0, 0});
    return {};
  }

  Status add_training() {
    const Model& model = *request_.model;
    if (micro_ == request_.batch) {
      PLIMSOLL_TRY(add(train_phase(model, request_.batch, request_.graph), 1));
      if (request_.partial_window > 0)
        PLIMSOLL_TRY(add(train_phase(model, request_.partial_window, request_.graph, true), 0));
      return {};
    }
    PLIMSOLL_TRY(add(begin_phase(model, request_.graph), 1));
    const int64_t whole = request_.batch / micro_, tail = request_.batch % micro_;
    const int64_t partial_tail = request_.partial_window % micro_;
    PLIMSOLL_TRY(add(accumulate_phase(model, micro_, request_.graph), static_cast<double>(whole)));
    if (tail > 0) PLIMSOLL_TRY(add(accumulate_phase(model, tail, request_.graph, true), 1));
    if (partial_tail > 0 && partial_tail != tail)
      PLIMSOLL_TRY(add(accumulate_phase(model, partial_tail, request_.graph, true), 0));
    return add(apply_phase(model, request_.graph), 1);
  }

  void plan_phases() {
    for (Lowered& phase : phases_) {
      plan_.phases.push_back(phase.offloaded > 0
                                 ? place_phase(phase.name, phase.samples, std::move(phase.graph), layout_)
                                 : plan_phase(phase.name, phase.samples, std::move(phase.graph), layout_));
      offloaded_ = std::max(offloaded_, phase.offloaded);
      plan_.step_seconds += phase.repeats * plan_.phases.back().seconds;
    }
    // The same kernels in another order are no faster: what the order of a sum leaves is less than a picosecond.
    plan_.step_seconds = std::round(plan_.step_seconds * 1e12) / 1e12;
    phases_.clear();
  }

  Bytes highest() const {
    Bytes bytes = layout_.bytes;
    for (const PhasePlan& phase : plan_.phases) bytes = std::max(bytes, phase.arena_bytes);
    return bytes;
  }

  // Evaluation and prediction are cut as finely as it takes not to need more than training does: it changes nothing but
  // time.
  template <typename MakePhase>
  Status add_inference(int64_t batch, int64_t samples, MakePhase make) {
    if (batch == 0) return {};
    if (samples > 0) batch = std::min(batch, samples);
    for (;; batch = (batch + 1) / 2) {
      PLIMSOLL_TRY(add(make(*request_.model, batch, request_.graph, false), 0));
      if (samples > 0 && samples % batch != 0)
        PLIMSOLL_TRY(add(make(*request_.model, samples % batch, request_.graph, true), 0));
      const Bytes before = highest() + least_data();
      const size_t count = plan_.phases.size();
      plan_phases();
      Bytes needed = 0;
      for (size_t i = count; i < plan_.phases.size(); ++i) needed = std::max(needed, plan_.phases[i].arena_bytes);
      const Bytes allowed = request_.batch > 0     ? before
                            : request_.budget == 0 ? INT64_MAX
                                                   : request_.budget - overhead();
      if (needed + least_data() <= allowed || batch == 1) return {};
      plan_.phases.resize(count);
    }
  }

  Bytes overhead() const {
    int primitives = 0;
    for (const PhasePlan& phase : plan_.phases) primitives += phase.primitives;
    return request_.device->overhead_bound(primitives);
  }

  Plan finish() {
    plan_.model = request_.model->name();
    plan_.device = request_.device->info().name;
    plan_.memory = request_.device->info().memory;
    plan_.precision = to_text(request_.graph.precision);
    plan_.tf32 = request_.device->info().tf32;
    plan_.batch = {request_.batch, micro_};
    plan_.settings = {recompute_, kept_};
    plan_.per_micro_batch_norm =
        request_.per_micro_batch_norm && request_.model->couples_samples() && micro_ < request_.batch;
    plan_.persistent = layout_.slots;
    plan_.persistent_bytes = layout_.bytes;
    plan_.arena_bytes = highest();
    plan_.overhead_bytes = overhead();
    int64_t nodes = 0;
    for (const PhasePlan& phase : plan_.phases) nodes += static_cast<int64_t>(phase.nodes.size());
    plan_.planning_bytes = request_.device->planning_bound(nodes);
    if (plan_.planning_bytes > 0) plan_.planning_bytes += request_.data.held_before;
    plan_.beside = memories_beside(plan_.phases);
    if (offloaded_ > 0) plan_.levers.push_back({"offload", offloaded_, 0, 0, Effect::kBitwise});
    if (recomputed_ > 0) plan_.levers.push_back({"recompute", recomputed_, 0, 0, Effect::kBitwise});
    if (micro_ < request_.batch)
      plan_.levers.push_back({"micro-batch", plan_.batch.accumulation_steps(), 0, 0,
                              plan_.per_micro_batch_norm ? Effect::kTraining : Effect::kRounding});
    choose_prefetch();
    return std::move(plan_);
  }

  Bytes least_data() const { return least_data_bytes(request_, plan_.phases); }

  // One request is read ahead unless that would not fit: it costs bytes and saves waiting, and changes nothing.
  void choose_prefetch() {
    plan_.data_bytes = least_data();
    plan_.prefetch = 1;
    if (request_.device->info().own_memory) return;
    const Bytes staged = request_.data.reads_ahead ? staged_bytes(request_, plan_.phases) : 0;
    plan_.data_bytes += staged;
    const bool too_much = request_.budget > 0 && plan_.peak_bytes() > request_.budget;
    if (staged == 0 || too_much || request_.forbidden.count("prefetch") != 0) {
      plan_.prefetch = 0;
      plan_.data_bytes = least_data();
    }
  }

  const SearchRequest& request_;
  int64_t micro_;
  int recompute_;
  double kept_ = 1;
  int64_t recomputed_ = 0, offloaded_ = 0;
  std::vector<Lowered> training_, phases_;
  bool ordered_ = false;  // the training phases, for little to be alive
  Bytes most_live_ = 0;   // of them
  PersistentLayout layout_;
  Plan plan_;
};

bool fits_beside(const PhasePlan& phase, const Plan& plan) {
  return std::all_of(phase.beside.begin(), phase.beside.end(),
                     [&](const SpaceBytes& memory) { return memory.bytes <= plan.bytes_in(memory.space); });
}

}  // namespace

Result<PhasePlan> plan_tail(const SearchRequest& request, const Plan& plan, int64_t samples) {
  PLIMSOLL_ASSIGN(Phase phase, plan.micro_batched() ? accumulate_phase(*request.model, samples, request.graph, true)
                                                    : train_phase(*request.model, samples, request.graph, true));
  const auto may = [&](const char* lever) {
    return std::any_of(plan.levers.begin(), plan.levers.end(), [&](const LeverUse& l) { return l.name == lever; });
  };
  // The plan does not say how much its own phases compute again: as little as makes this one fit.
  PhasePlan planned;
  const auto fits = [&] { return planned.arena_bytes <= plan.arena_bytes && fits_beside(planned, plan); };
  for (int recompute = 0; recompute <= (may("recompute") ? kMostRecompute : 0); ++recompute) {
    const Graph graph = apply_levers(phase.graph, *request.device, recompute).graph;
    PLIMSOLL_ASSIGN(const LoweredGraph lowered, lower(graph, *request.device));
    planned = plan_phase(phase.name, samples, lowered, plan.layout());
    if (fits()) break;
    const LoweredGraph ordered = reorder_for_memory(lowered);
    for (const double kept : may("offload") ? std::span<const double>(kKept) : std::span<const double>()) {
      const auto cap = static_cast<Bytes>(kept * static_cast<double>(live_set_of(ordered)));
      const auto offloaded = offload(ordered, *request.device, cap);
      if (!offloaded) break;
      planned = place_phase(phase.name, samples, offloaded->graph, plan.layout());
      if (fits()) break;
    }
    if (fits()) break;
  }
  if (!fits())
    return fail(ErrorCode::kDoesNotFit,
                fmt::format("a batch of {} samples needs an arena of {}, the plan has {}", samples,
                            format_bytes(planned.arena_bytes), format_bytes(plan.arena_bytes)));
  return planned;
}

Result<RecomputeLevels> RecomputeLevels::create(const SearchRequest& request, int64_t micro, bool costly) {
  PLIMSOLL_ASSIGN(Phase phase, micro == request.batch ? train_phase(*request.model, micro, request.graph)
                                                      : accumulate_phase(*request.model, micro, request.graph));
  RecomputeLevels levels;
  levels.device_ = request.device;
  levels.cheap_ = apply_levers(phase.graph, *request.device, 1).count > 0;
  if (costly) levels.ready_ = ready_for_costly(std::move(phase.graph), *request.device);
  return levels;
}

std::optional<int> RecomputeLevels::after(int level, bool costly) {
  if (level == 0 && cheap_) return 1;
  if (!costly || !ready_) return std::nullopt;
  if (!reach_) reach_.emplace(std::move(*ready_), *device_);
  for (int next = std::max(level, 1) + 1; next <= kMostRecompute; ++next)
    if (reach_->reaches(share_of(next))) return next;
  return std::nullopt;
}

Status build_plans(const SearchRequest& request, int64_t micro, int recompute, std::span<const double> kept,
                   const std::function<bool(double)>& worth_it, const std::function<void(Plan)>& take) {
  Builder builder(request, micro, recompute);
  PLIMSOLL_TRY(builder.lower_training());
  for (const double& share : kept) {
    if (!worth_it(builder.seconds_of_copies(share))) break;
    PLIMSOLL_ASSIGN(auto plan, builder.plan(share, &share == &kept.back()));
    if (!plan) break;
    take(std::move(*plan));
  }
  return {};
}

Result<Plan> build_plan(const SearchRequest& request, int64_t micro, int recompute) {
  constexpr double kEverything[] = {1};
  Plan built;
  PLIMSOLL_TRY(build_plans(
      request, micro, recompute, kEverything, [](double) { return true; },
      [&](Plan plan) { built = std::move(plan); }));
  return built;
}

Bytes staged_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  int64_t largest = 0;
  for (const PhasePlan& phase : phases) largest = std::max(largest, phase.samples);
  return align_up(request.data.per_sample * largest);
}

Bytes least_data_bytes(const SearchRequest& request, std::span<const PhasePlan> phases) {
  const DataDemand& data = request.data;
  const Bytes staged = staged_bytes(request, phases);
  if (request.device->info().own_memory) return data.held_before + (staged > 0 ? staged + data.padding : 0);
  return data.held_before + (data.reads_ahead ? data.fixed : 0);
}

Status fill_growth(const SearchRequest& request, SearchResult& result) {
  const Candidate& first = result.candidates.front();
  result.unlevered_arena_bytes = first.arena_bytes;
  result.unlevered_seconds = first.seconds;
  if (request.batch == 0) {
    result.fixed_bytes = result.unlevered_arena_bytes;
    return {};
  }
  // Two whole-batch plans without levers; the arena is nearly linear in the batch between them.
  SearchRequest plain = request;
  plain.evaluate_batch = plain.predict_batch = plain.partial_window = 0;
  plain.micro_batch.reset();
  Bytes whole = first.arena_bytes;
  const bool cut = first.micro != request.batch;
  if (cut || request.evaluate_batch > 0 || request.predict_batch > 0 || request.partial_window > 0) {
    PLIMSOLL_ASSIGN(const Plan plan, build_plan(plain, plain.batch, 0));
    whole = plan.arena_bytes;
    if (cut) result.unlevered_arena_bytes = plan.arena_bytes, result.unlevered_seconds = plan.step_seconds;
  }
  const int64_t other = request.batch > 1 ? request.batch / 2 : 2;
  plain.batch = other;
  PLIMSOLL_ASSIGN(const Plan plan, build_plan(plain, other, 0));
  result.bytes_per_sample = (whole - plan.arena_bytes) / (request.batch - other);
  result.fixed_bytes = std::max<Bytes>(0, whole - result.bytes_per_sample * request.batch);
  return {};
}

}  // namespace plimsoll
