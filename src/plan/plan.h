// A plan is plain data: the place of every byte and the order of all nodes. The executor follows it and decides
// nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "levers/lever.h"
#include "lower/lower.h"
#include "program/phases.h"

namespace plimsoll::engine {

// A value that outlives the phases. It has one place for all phases, at the bottom of the arena.
struct PersistentSlot {
  std::string name;
  TensorType type;
  Category category = Category::kWeights;
  std::string layer;
  Bytes offset = 0;

  Bytes bytes() const { return align_up(std::max<Bytes>(type.bytes(), 1)); }
  bool operator==(const PersistentSlot&) const = default;
};

// The places of the persistent values. All plans of a model that share an arena have the same layout, even if their
// graphs differ.
struct PersistentLayout {
  std::vector<PersistentSlot> slots;
  Bytes bytes = 0;  // transient values start here
};

struct Placement {
  Bytes offset = 0;         // in the memory `space`; kNone: it has no place
  int first = 0, last = 0;  // live range: first and last node, both included
  Space space = Space::kDevice;
  bool operator==(const Placement&) const = default;
};

// Bytes in one memory space.
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
  Graph graph;                     // nodes in execution order
  std::vector<PlannedNode> nodes;  // one per node
  std::vector<Placement> values;   // one per value; offset kNone for a graph input without readers
  // End of the highest value or workspace in the device's memory, including the persistent part.
  Bytes arena_bytes = 0;
  std::vector<SpaceBytes> beside;  // the same for the other memories that it uses, sorted by space number
  Bytes live_set_bytes = 0;        // largest live set of this order, including the persistent part
  int peak_node = 0;               // node with the largest live set
  double seconds = 0;
  int primitives = 0;  // distinct library objects that its kernels keep (device/device.h)

  Bytes bytes_in(Space space) const;  // 0 for a memory that it does not use
  BoundCounts counts() const { return {static_cast<int64_t>(nodes.size()), primitives}; }
};

// Of all phases together. Phases that share a primitive count it twice, so this is an upper bound.
BoundCounts counts_of(const std::vector<PhasePlan>& phases);

// A memory in which a plan reserves bytes.
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

// The lever that splits a batch. Its setting is the number of samples per micro-batch; 0: the batch is not split.
inline constexpr std::string_view kMicroBatch = "micro-batch";
BatchPlan batch_of(int64_t effective, const LeverSettings& settings);

struct Plan {
  std::string model;            // its name
  std::string device;           // name of the device it was made for
  std::string memory = "host";  // name of that device's memory; "gpu:0" on a GPU
  std::string precision;        // "float32"
  bool tf32 = false;            // float32 matrix products may be rounded to tf32; some kernels require this
  std::string calibration;      // digest of the calibration that its seconds come from; "": no calibration
  std::string program;          // digest of what a window computes (search/plan_match.h); "" without training
  // All lever settings of the plan. Together with the batch, the precision and the sizes of the phases they are enough
  // to compile the same plan again (search/given_plan.h).
  LeverSettings settings;
  BatchPlan batch;  // follows from the settings: batch_of()
  std::vector<PersistentSlot> persistent;
  std::vector<PhasePlan> phases;
  std::vector<LeverUse> levers;
  Bytes persistent_bytes = 0;
  Bytes arena_bytes = 0;           // in the device's memory
  std::vector<PlanMemory> beside;  // other memories, for offloaded values, sorted by space number
  Bytes overhead_bytes = 0;        // bound on the memory outside arena and data buffers
  Bytes data_bytes = 0;            // for readers and prefetch
  Bytes planning_bytes = 0;        // bound on the memory of the process during planning, before there is an arena
  double compute_seconds = 0;      // of one window: its kernels
  double input_seconds = 0;        // of one window: reading its data, or copying them to the device
  double step_seconds = 0;         // of one window: the longer of both if data are fetched ahead, else their sum

  // Peak of the whole process: of the run, or of planning if that needs more.
  Bytes peak_bytes() const { return std::max(arena_bytes + overhead_bytes + data_bytes, planning_bytes); }
  // The part of the peak that is neither arena nor data buffers. Reports call it overhead, so that their rows add up.
  Bytes overhead_at_peak() const { return peak_bytes() - arena_bytes - data_bytes; }
  Bytes bytes_in(Space space) const;                                             // 0 for a memory that it does not use
  std::vector<PlanMemory> memories() const;                                      // the device's first
  const PhasePlan* phase(PhaseName name) const;                                  // the first of that name, or null
  const PhasePlan* phase(PhaseKind kind) const { return phase({kind, false}); }  // not for a tail
  bool micro_batched() const { return batch.micro < batch.effective; }
  // The phase that computes gradients: one run of it per micro-batch.
  PhaseKind gradient_phase() const { return micro_batched() ? PhaseKind::kAccumulate : PhaseKind::kTrain; }
  const PersistentSlot* slot(const std::string& name) const;
  PersistentLayout layout() const { return {persistent, persistent_bytes}; }
};

// Lays out the persistent values of the graphs. Their order depends only on categories and names: weights, optimizer
// state, step scalars and tallies, and last accumulated gradients, which only plans with micro-batches have. Values in
// `arena` keep their places; the others follow.
PersistentLayout lay_out(std::span<const Graph* const> graphs, const std::vector<PersistentSlot>& arena = {});
Bytes end_of(const std::vector<PersistentSlot>& slots);  // slots must be sorted by offset

// Returns the bytes that the phases need in memories other than the device's. Phases run in turn, so the largest
// counts.
std::vector<PlanMemory> memories_beside(const std::vector<PhasePlan>& phases);

// Orders the nodes of one lowered phase, assigns storage, and packs it above the persistent values.
PhasePlan plan_phase(PhaseName name, int64_t samples, LoweredGraph lowered, const PersistentLayout& persistent);
// The same, but keeps the order of the nodes.
PhasePlan place_phase(PhaseName name, int64_t samples, LoweredGraph ordered, const PersistentLayout& persistent);

// Checks a plan, without any code of the solver. All ops exist and infer the types in the graph; values that are live
// at the same time do not overlap; everything is inside the arena; every read follows its write; updates are in the
// place of their persistent values; the categories add up to the peak; no sum overflows. Fails with kInternal if a plan
// is wrong, also if it comes from a file. Such a plan may contain anything, so no number or name in it is used before
// it is checked.
Status validate(const Plan& plan);

// Bytes per category at the plan's peak. They add up to arena_bytes.
struct CategoryBytes {
  Category category;
  Bytes bytes;
};
const PhasePlan* peak_phase(const Plan& plan);
std::vector<CategoryBytes> categories_at_peak(const Plan& plan);

nlohmann::json to_json(const Plan& plan);
Result<Plan> plan_from_json(const nlohmann::json& json);

}  // namespace plimsoll::engine
