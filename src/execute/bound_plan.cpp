#include "execute/bound_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "model/values.h"

namespace plimsoll::engine {
namespace {

// Nodes of the same kind run the same code, even if their shapes differ.
std::string kind_of(const Node& node, const PlannedNode& planned) {
  std::string kind = node.op + " " + planned.kernel;
  if (node.body)
    for (const Node& member : node.body->nodes) kind += " " + member.op;
  return kind;
}

}  // namespace

void run_phase(const BoundPhase& phase) {
  if (phase.recorded != nullptr) return phase.recorded->run();
  for (const auto& kernel : phase.kernels) kernel->run();
}

Result<std::unique_ptr<BoundPlan>> BoundPlan::bind(const Model& model, Plan plan, const Backend& backend, Arena& arena,
                                                   const GraphOptions& options) {
  std::unique_ptr<BoundPlan> bound(new BoundPlan(model, std::move(plan), backend, arena));
  const auto& phases = bound->plan_.phases;
  if (!phases.empty() && phases.front().name.kind != PhaseKind::kPredict)
    bound->tallies_ = tallies_of(model, Mode::kEvaluate, options);
  for (const Tally& tally : bound->tallies_)
    if (const PersistentSlot* slot = arena.slot(tally_value(tally.name));
        slot == nullptr || slot->type.shape != tally.shape)
      return fail(ErrorCode::kBadPlan, fmt::format("the plan has no persistent value for the sum of '{}'", tally.name));
  if (Status status = bound->bind_phases(); !status) {
    PLIMSOLL_TRY(backend.finish());  // if the device has failed, report that: every kernel would look unsuitable
    return tl::make_unexpected(std::move(status).error());
  }
  return bound;
}

Status BoundPlan::bind_phases() {
  // Smallest phase first. Memory that grows then grows to the end of one phase after the other, and can later be
  // trimmed to the end of any of them.
  std::vector<const PhasePlan*> order;
  for (const PhasePlan& phase : plan_.phases) order.push_back(&phase);
  std::stable_sort(order.begin(), order.end(),
                   [](const PhasePlan* a, const PhasePlan* b) { return a->arena_bytes < b->arena_bytes; });
  std::vector<UnboundNode> nodes;
  for (const PhasePlan& phase : plan_.phases)
    for (const Node& node : phase.graph.nodes) nodes.push_back({phase.graph, node});
  backend_.prepare(nodes);
  PLIMSOLL_TRY(arena_.memory().commit(plan_.persistent_bytes));
  for (const PhasePlan* phase : order) PLIMSOLL_TRY(bind_phase(*phase));
  return {};
}

Status BoundPlan::add_phase(PhasePlan phase) {
  Plan whole = plan_;
  whole.phases.push_back(phase);
  PLIMSOLL_TRY(validate(whole));
  added_.push_back(std::make_unique<PhasePlan>(std::move(phase)));
  return bind_phase(*added_.back());
}

Status BoundPlan::bind_phase(const PhasePlan& phase) {
  Memory& memory = arena_.memory();
  auto bound = std::make_unique<BoundPhase>();
  bound->plan = &phase;
  bound->end = plan_.persistent_bytes;
  PLIMSOLL_TRY(memory.commit(phase.arena_bytes));  // binding may run kernels at their final addresses to try them
  const auto address = [&](ValueId id) -> void* {
    const Placement& place = phase.values[static_cast<size_t>(id)];
    if (place.offset >= 0 && place.space == Space::kDevice)
      bound->end = std::max(bound->end, place.offset + align_up(std::max<Bytes>(phase.graph.value(id).bytes(), 1)));
    return arena_.address(place);
  };
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const Node& node = phase.graph.nodes[n];
    const PlannedNode& planned = phase.nodes[n];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    void* workspace = planned.workspace_bytes > 0 ? memory.at(planned.workspace_offset) : nullptr;
    if (workspace != nullptr)
      bound->end = std::max(bound->end, planned.workspace_offset + align_up(planned.workspace_bytes));
    PLIMSOLL_ASSIGN(auto kernel, backend_.bind({phase.graph, node, planned.kernel, inputs, outputs, workspace,
                                                planned.workspace_bytes}));
    bound->kernels.push_back(std::move(kernel));
  }
  if (phase.samples > 0) find_slots(*bound);
  phases_.push_back(std::move(bound));
  return {};
}

// Finds the values for batches and for predictions.
void BoundPlan::find_slots(BoundPhase& bound) const {
  const PhasePlan& phase = *bound.plan;
  const auto view = [&](const std::string& name) {
    const ValueId id = phase.graph.find(name);
    const Bytes offset = id == kNone ? kNone : phase.values[static_cast<size_t>(id)].offset;
    if (offset < 0) return TensorView{};
    bound.end = std::max(bound.end, offset + align_up(std::max<Bytes>(phase.graph.value(id).bytes(), 1)));
    return TensorView{phase.graph.type(id), arena_.memory().at(offset)};
  };
  const auto feed = [&](const TensorView& slot) {
    bound.feed.push_back({slot.data, slot.data == nullptr ? 0 : slot.type.bytes()});
  };
  for (const Port& port : model_.inputs()) {
    const TensorView input = view(input_value(port.name));
    bound.slots.inputs.push_back(input.data);
    feed(input);
  }
  for (const Port& port : model_.outputs()) {
    if (const TensorView target = view(target_value(port.name)); target.data != nullptr) {
      bound.slots.targets.push_back(target.data);
      feed(target);
    }
    if (const TensorView weight = view(sample_weight_value(port.name)); weight.data != nullptr)
      bound.weights.push_back(weight);
    bound.predictions.push_back(view(prediction_value(port.name)));
  }
  for (const TensorView& weight : bound.weights) feed(weight);
  bound.slots.weights.resize(bound.weights.size());
}

BoundCounts BoundPlan::counts() const {
  BoundCounts counts;
  for (const auto& phase : phases_) counts += phase->plan->counts();
  return counts;
}

Bytes BoundPlan::batch_bytes() const {
  Bytes most = 0;
  for (const auto& phase : phases_) {
    Bytes sum = 0;
    for (const Feed::Slot& slot : phase->feed) sum += align_up(slot.bytes);
    most = std::max(most, sum);
  }
  return most;
}

size_t BoundPlan::most_arrays() const {
  size_t most = 0;
  for (const auto& phase : phases_) most = std::max(most, phase->feed.size());
  return most;
}

int64_t BoundPlan::most_samples() const {
  int64_t most = 0;
  for (const auto& phase : phases_) most = std::max(most, phase->plan->samples);
  return most;
}

BoundPhase* BoundPlan::find(PhaseKind kind, int64_t samples) const {
  for (const auto& phase : phases_)
    if (phase->plan->samples == samples && phase->plan->name.kind == kind) return phase.get();
  return nullptr;
}

Result<BoundPhase*> BoundPlan::ready(PhaseKind kind, int64_t samples) const {
  BoundPhase* phase = find(kind, samples);
  if (phase == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("the plan has no phase {} for {} samples", to_text({kind}), samples));
  PLIMSOLL_TRY(arena_.memory().commit(phase->end));
  return phase;
}

// The producers of this node's inputs have not run. Floats may have any value, but labels and positions must be in
// range.
void BoundPlan::run_alone(BoundPhase& phase, size_t node) const {
  for (ValueId id : phase.plan->graph.nodes[node].inputs) {
    const Value& value = phase.plan->graph.value(id);
    if (value.space == Space::kDevice && !is_floating(value.type.dtype))
      std::memset(arena_.memory().at(phase.plan->values[static_cast<size_t>(id)].offset), 0,
                  static_cast<size_t>(value.bytes()));
  }
  phase.kernels[node]->run();
}

// Runs one node of each kind, the fastest, to measure the overhead. Library objects take their memory when they are
// bound, and kernels whose scratch memory grows with their shapes get it from the arena. Running adds only memory that
// depends on the kind of a node (loaded code, stacks, a library's own state).
void BoundPlan::run_each_kind() {
  std::map<std::string, std::pair<BoundPhase*, size_t>> quickest;
  for (const auto& phase : phases_)
    for (size_t n = 0; n < phase->kernels.size(); ++n) {
      const PlannedNode& planned = phase->plan->nodes[n];
      const auto [at, added] = quickest.try_emplace(kind_of(phase->plan->graph.nodes[n], planned), phase.get(), n);
      auto& [other, m] = at->second;
      if (!added && planned.seconds < other->plan->nodes[m].seconds) at->second = {phase.get(), n};
    }
  for (const auto& [kind, where] : quickest) run_alone(*where.first, where.second);
}

// Runs each phase before it is recorded: libraries load their kernels in the first run, which is not allowed while
// recording.
Status BoundPlan::record() {
  for (const auto& phase : phases_) {
    PLIMSOLL_TRY(arena_.memory().commit(phase->end));
    run_phase(*phase);
    PLIMSOLL_TRY(backend_.finish());
    PLIMSOLL_ASSIGN(phase->recorded, backend_.record(phase->kernels));
    if (phase->recorded != nullptr) run_phase(*phase);
    PLIMSOLL_TRY(backend_.finish());
  }
  return {};
}

}  // namespace plimsoll::engine
