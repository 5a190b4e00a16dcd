// A plan: plain data that says where every byte lies and what runs when. The executor obeys it and decides nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "levers/lever.h"
#include "lower/lower.h"
#include "program/phases.h"

namespace plimsoll::engine {

// A value that outlives the phases: one place for all of them, at the arena's bottom.
struct PersistentSlot {
  std::string name;
  TensorType type;
  Category category = Category::kWeights;
  std::string layer;
  Bytes offset = 0;

  Bytes bytes() const { return align_up(std::max<Bytes>(type.bytes(), 1)); }
  bool operator==(const PersistentSlot&) const = default;
};

// Where persistent values lie: one layout for all plans of a model that share an arena, whichever graphs they have.
struct PersistentLayout {
  std::vector<PersistentSlot> slots;
  Bytes bytes = 0;  // transients begin here
};

struct Placement {
  Bytes offset = 0;         // in the memory `space`; kNone for what lies nowhere
  int first = 0, last = 0;  // nodes in which it lives, both included
  Space space = Space::kDevice;
  bool operator==(const Placement&) const = default;
};

// Bytes of one memory.
struct SpaceBytes {
  Space space = Space::kDevice;
  Bytes bytes = 0;
  bool operator==(const SpaceBytes&) const = default;
};

struct PlannedNode {
  std::string kernel;
  Bytes workspace_offset = 0, workspace_bytes = 0;
  double seconds = 0;
};

struct PhasePlan {
  PhaseName name;
  int64_t samples = 0;
  Graph graph;                     // nodes in the order they run
  std::vector<PlannedNode> nodes;  // one a node
  std::vector<Placement> values;   // one a value; offset kNone for a graph input that nobody reads
  // End of the highest value or workspace in the device's memory, the persistent part included.
  Bytes arena_bytes = 0;
  std::vector<SpaceBytes> beside;  // the same of the other memories that it uses, by number
  Bytes live_set_bytes = 0;        // largest live set of this order, the persistent part included
  int peak_node = 0;               // where the live set is largest
  double seconds = 0;
  int primitives = 0;

  Bytes bytes_in(Space space) const;  // 0 where nothing lies
};

// A memory that a plan reserves bytes of.
struct PlanMemory {
  Space space = Space::kDevice;
  std::string name;  // for people: "host", "gpu:0"
  Bytes bytes = 0;
  bool operator==(const PlanMemory&) const = default;
};

struct BatchPlan {
  int64_t effective = 0, micro = 0;
  int64_t accumulation_steps() const { return micro == 0 ? 0 : (effective + micro - 1) / micro; }
};

// The lever that cuts a batch. Its setting is the samples of a piece; 0: the batch is whole.
inline constexpr std::string_view kMicroBatch = "micro-batch";
BatchPlan batch_of(int64_t effective, const LeverSettings& settings);

struct Plan {
  std::string model;            // its name
  std::string device;           // name of the device it was made for
  std::string memory = "host";  // name of that device's memory; "gpu:0" on a card
  std::string precision;        // "float32"
  bool tf32 = false;            // float32 matrix work is rounded to it: not every kernel does without
  std::string program;          // digest of what a window computes (search/plan_match.h); "" without training
  // All settings that the plan was made with. With the batch, the precision and the sizes of the phases they are all
  // that is needed to make the same plan again (search/given_plan.h).
  LeverSettings settings;
  BatchPlan batch;  // follows from the settings: batch_of()
  std::vector<PersistentSlot> persistent;
  std::vector<PhasePlan> phases;
  std::vector<LeverUse> levers;
  Bytes persistent_bytes = 0;
  Bytes arena_bytes = 0;           // of the device's memory
  std::vector<PlanMemory> beside;  // other memories that values wait in, by number
  Bytes overhead_bytes = 0;        // bound on what lies outside arena and data buffers
  Bytes data_bytes = 0;            // readers and prefetch
  Bytes planning_bytes = 0;        // bound on what the process holds while this is planned, before there is an arena
  double step_seconds = 0;         // of one window

  // Of the whole process: while it runs, or while it plans where that takes more.
  Bytes peak_bytes() const { return std::max(arena_bytes + overhead_bytes + data_bytes, planning_bytes); }
  // What of the peak is neither arena nor data buffers: what reports call overhead, so that their rows add up.
  Bytes overhead_at_peak() const { return peak_bytes() - arena_bytes - data_bytes; }
  Bytes bytes_in(Space space) const;                                             // 0 where nothing lies
  std::vector<PlanMemory> memories() const;                                      // the device's first
  const PhasePlan* phase(PhaseName name) const;                                  // the first of that name, or null
  const PhasePlan* phase(PhaseKind kind) const { return phase({kind, false}); }  // for whole batches
  bool micro_batched() const { return batch.micro < batch.effective; }
  // The phase that computes gradients: one run of it per micro-batch.
  PhaseKind gradient_phase() const { return micro_batched() ? PhaseKind::kAccumulate : PhaseKind::kTrain; }
  const PersistentSlot* slot(const std::string& name) const;
  PersistentLayout layout() const { return {persistent, persistent_bytes}; }
};

// The values that graphs mention, in an order that depends on nothing but their categories and names: weights,
// optimizer state, step scalars and tallies, and last what only plans with micro-batches have, accumulated gradients.
// What `arena` has stays where it is, the others follow it.
PersistentLayout lay_out(std::span<const Graph* const> graphs, const std::vector<PersistentSlot>& arena = {});
Bytes end_of(const std::vector<PersistentSlot>& slots);  // of slots in the order of their offsets

// What phases that run in turn need of the memories beside the device's.
std::vector<PlanMemory> memories_beside(const std::vector<PhasePlan>& phases);

// Orders, assigns and packs one lowered phase above the persistent values.
PhasePlan plan_phase(PhaseName name, int64_t samples, LoweredGraph lowered, const PersistentLayout& persistent);
// The same for nodes that keep the order they are in.
PhasePlan place_phase(PhaseName name, int64_t samples, LoweredGraph ordered, const PersistentLayout& persistent);

// Shares no code with the solver: ops that exist and infer the types the graph says, no overlap of live ranges,
// everything inside the arena, every read preceded by its write, updates in their persistent values, the categories
// closing to the peak, no sum that overflows. kInternal if a plan is wrong, whoever made it. A plan from a file may
// hold anything: no number or name of it is used before it was checked.
Status validate(const Plan& plan);

// Bytes by category where the plan's peak is: they sum to arena_bytes.
struct CategoryBytes {
  Category category;
  Bytes bytes;
};
const PhasePlan* peak_phase(const Plan& plan);
std::vector<CategoryBytes> categories_at_peak(const Plan& plan);

nlohmann::json to_json(const Plan& plan);
Result<Plan> plan_from_json(const nlohmann::json& json);

}  // namespace plimsoll::engine
