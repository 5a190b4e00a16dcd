// Checks a plan using only its graphs and its numbers. This file must not include headers of the solver.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "base/checked.h"
#include "ops/op.h"
#include "plan/plan.h"

namespace plimsoll::engine {
namespace {

// Bytes that are needed from node `first` to node `last`.
struct Occupied {
  Bytes begin, end;
  int first, last;
  ValueId value;  // kNone for the workspace of node `first`
};

// More than any memory has, but small enough that adding a few such numbers does not overflow.
constexpr Bytes kMostBytes = Bytes{1} << 56;

bool sensible(Bytes bytes) {
  return bytes >= 0 && bytes <= kMostBytes;
}

class PhaseCheck {
 public:
  PhaseCheck(const Plan& plan, const PhasePlan& phase) : plan_(plan), phase_(phase), graph_(phase.graph) {}

  Status run() {
    PLIMSOLL_TRY(verify(graph_));
    if (phase_.nodes.size() != graph_.nodes.size() || phase_.values.size() != graph_.values.size())
      return wrong("it does not have one entry per node and per value");
    if (!sensible(phase_.arena_bytes) || phase_.samples < 0)
      return wrong(fmt::format("it has {} samples and an arena of {} bytes", phase_.samples, phase_.arena_bytes));
    PLIMSOLL_TRY(find_spaces());
    PLIMSOLL_TRY(check_places());
    find_roots();
    PLIMSOLL_TRY(check_persistent());
    PLIMSOLL_TRY(check_copies());
    PLIMSOLL_TRY(check_lifetimes());
    PLIMSOLL_TRY(check_views());
    PLIMSOLL_TRY(check_updates());
    PLIMSOLL_TRY(check_workspaces());
    for (const Space space : spaces_) {
      PLIMSOLL_TRY(check_overlaps(space));
      PLIMSOLL_TRY(check_end(space));
    }
    return check_peak();
  }

 private:
  tl::unexpected<Error> wrong(const std::string& what) const {
    return fail(ErrorCode::kInternal, fmt::format("plan, phase '{}': {}", to_text(phase_.name), what));
  }
  const Placement& place(ValueId id) const { return phase_.values[static_cast<size_t>(id)]; }
  bool inside(Bytes offset, Bytes bytes, Space space) const {
    return offset % kAlignment == 0 && lies_within(offset, bytes, phase_.bytes_in(space));
  }
  bool persistent_place(ValueId id) const {
    return place(id).space == Space::kDevice && place(id).offset < plan_.persistent_bytes;
  }
  bool one_place(ValueId a, ValueId b) const {
    return place(a).space == place(b).space && place(a).offset == place(b).offset;
  }

  // Finds the memories of the phase: the device's, then the others, each once.
  Status find_spaces() {
    spaces_ = {Space::kDevice};
    for (const SpaceBytes& memory : phase_.beside) {
      if (memory.space <= spaces_.back() || static_cast<int>(memory.space) >= kMostSpaces || !sensible(memory.bytes))
        return wrong(fmt::format("it has {} bytes of memory '{}'", memory.bytes, to_text(memory.space)));
      spaces_.push_back(memory.space);
    }
    return {};
  }

  // Every value that has a place fits into it completely, even if no node reads it.
  Status check_places() const {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const Placement& p = phase_.values[v];
      if (value.space != p.space)
        return wrong(fmt::format("'{}' is in another memory than its graph says", value.name));
      if (p.offset != kNone && !inside(p.offset, value.bytes(), p.space))
        return wrong(fmt::format("'{}' is at {} with {} bytes, outside the {} bytes of memory '{}'", value.name,
                                 p.offset, value.bytes(), phase_.bytes_in(p.space), to_text(p.space)));
    }
    return {};
  }

  // Finds the root of each value: the viewed value of a view, else the value itself.
  void find_roots() {
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const NodeId producer = graph_.values[v].producer;
      const bool view = producer != kNone && op_def(graph_.node(producer).op).kind == OpKind::kView;
      roots_.push_back(view ? kNone : static_cast<ValueId>(v));
    }
    // Nodes are in execution order, so the root of a view's input is already known.
    for (const Node& node : graph_.nodes)
      if (root(node.outputs[0]) == kNone) roots_[static_cast<size_t>(node.outputs[0])] = root(node.inputs[0]);
  }
  ValueId root(ValueId id) const { return roots_[static_cast<size_t>(id)]; }

  Status check_persistent() const {
    for (ValueId id : graph_.inputs) {
      const Value& value = graph_.value(id);
      if (!value.persistent) continue;
      const PersistentSlot* slot = plan_.slot(value.name);
      if (slot == nullptr) return wrong(fmt::format("persistent value '{}' has no slot", value.name));
      if (!(slot->type == value.type) || value.space != Space::kDevice || slot->offset != place(id).offset)
        return wrong(fmt::format("persistent value '{}' is not at the place of its slot", value.name));
    }
    return {};
  }

  // Checks that each value is written before it is read, and live from its first write to its last read.
  Status check_lifetimes() const {
    std::vector<bool> written(graph_.values.size(), false);
    for (ValueId id : graph_.inputs) written[static_cast<size_t>(id)] = true;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      for (ValueId id : node.inputs) {
        if (!written[static_cast<size_t>(id)])
          return wrong(fmt::format("node {} ({}) reads '{}' before it is written", n, node.op, graph_.value(id).name));
        PLIMSOLL_TRY(check_alive(id, static_cast<int>(n), over(n)));
      }
      for (ValueId id : node.outputs) {
        written[static_cast<size_t>(id)] = true;
        PLIMSOLL_TRY(check_alive(id, static_cast<int>(n), over(n)));
      }
    }
    const auto end = static_cast<int>(graph_.nodes.size()) - 1;
    for (ValueId id : graph_.outputs) PLIMSOLL_TRY(check_alive(id, end, end));
    return {};
  }

  // Checks that the value is live at `node` and until `over`, the node at which the work of `node` is complete.
  Status check_alive(ValueId id, int node, int over) const {
    const Placement& p = place(id);
    const Value& value = graph_.value(id);
    if (p.offset == kNone) return wrong(fmt::format("'{}' is used but has no place", value.name));
    if (persistent_place(id)) return {};
    if (node < p.first || over > p.last)
      return wrong(fmt::format("'{}' is used by node {} but is live in {}..{}", value.name, node, p.first, p.last));
    return {};
  }

  // Checks that a view has the place of the viewed value.
  Status check_views() const {
    for (const Node& node : graph_.nodes)
      if (op_def(node.op).kind == OpKind::kView &&
          (!one_place(node.outputs[0], node.inputs[0]) ||
           graph_.value(node.outputs[0]).bytes() != graph_.value(node.inputs[0]).bytes()))
        return wrong(fmt::format("'{}' is a view of '{}' but has another place", graph_.value(node.outputs[0]).name,
                                 graph_.value(node.inputs[0]).name));
    return {};
  }

  // Only copies, and the nodes that wait for them, may use memories other than the device's. A copy on its own queue is
  // under way until the node that waits for it. Only that node may read the copy's result, and it must also read the
  // copy's source, so that neither place is reused before.
  Status check_copies() {
    std::vector<std::vector<NodeId>> readers(graph_.values.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      for (ValueId id : graph_.nodes[n].inputs) readers[static_cast<size_t>(id)].push_back(static_cast<NodeId>(n));
    over_.assign(graph_.nodes.size(), kNone);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const bool out = node.op == "to_host", in = node.op == "to_device";
      const bool waits = node.op == "to_host_done" || node.op == "to_device_done";
      for (const auto* ids : {&node.inputs, &node.outputs})
        for (ValueId id : *ids)
          if (graph_.value(id).space != Space::kDevice && !out && !in && !waits)
            return wrong(fmt::format("node {} ({}) uses '{}' in memory '{}'", n, node.op, graph_.value(id).name,
                                     to_text(graph_.value(id).space)));
      if (!out && !in) continue;
      const ValueId from = node.inputs[0], to = node.outputs[0];
      const Space away = graph_.value(out ? to : from).space, here = graph_.value(out ? from : to).space;
      const Queue along = out ? Queue::kToHost : Queue::kFromHost;
      if (here != Space::kDevice || away == Space::kDevice || (node.queue != Queue::kCompute && node.queue != along))
        return wrong(fmt::format("node {} ({}) copies '{}' from memory '{}' to '{}' on queue {}", n, node.op,
                                 graph_.value(from).name, to_text(graph_.value(from).space),
                                 to_text(graph_.value(to).space), name_of(node.queue)));
      const auto& after = readers[static_cast<size_t>(to)];
      const Node* wait = after.size() == 1 ? &graph_.node(after[0]) : nullptr;
      if (wait == nullptr || wait->op != node.op + "_done" || wait->queue != Queue::kCompute || wait->inputs[0] != to ||
          wait->inputs[1] != from || left_open(to))
        return wrong(fmt::format("node {} ({}) starts a copy of '{}', but no node waits for it", n, node.op,
                                 graph_.value(from).name));
      if (node.queue != Queue::kCompute) over_[n] = after[0];
    }
    return {};
  }

  // Returns the node at which the work of node `n` is complete: the node that waits for it, or `n` itself.
  int over(size_t n) const { return over_[n] == kNone ? static_cast<int>(n) : over_[n]; }

  bool left_open(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end() ||
           std::any_of(graph_.updates.begin(), graph_.updates.end(), [&](const Update& u) { return u.value == id; });
  }

  Status check_workspaces() const {
    for (size_t n = 0; n < phase_.nodes.size(); ++n) {
      const PlannedNode& node = phase_.nodes[n];
      if (node.workspace_bytes < 0 ||
          (node.workspace_bytes > 0 && (node.workspace_offset < plan_.persistent_bytes ||
                                        !inside(node.workspace_offset, node.workspace_bytes, Space::kDevice))))
        return wrong(fmt::format("node {} has a workspace of {} bytes at {}, outside its arena of {}", n,
                                 node.workspace_bytes, node.workspace_offset, phase_.arena_bytes));
    }
    return {};
  }

  // Checks that the memory ends at its highest value or workspace, so that no more is reserved than is used.
  Status check_end(Space space) const {
    Bytes end = space == Space::kDevice ? plan_.persistent_bytes : 0;
    for (size_t v = 0; v < phase_.values.size(); ++v)
      if (phase_.values[v].space == space && phase_.values[v].offset >= 0)
        end = std::max(end, phase_.values[v].offset + align_up(std::max<Bytes>(graph_.values[v].bytes(), 1)));
    for (const PlannedNode& node : phase_.nodes)
      if (space == Space::kDevice && node.workspace_bytes > 0)
        end = std::max(end, node.workspace_offset + align_up(node.workspace_bytes));
    if (end != phase_.bytes_in(space))
      return wrong(fmt::format("it has {} bytes of memory '{}', but its highest value or workspace ends at {}",
                               phase_.bytes_in(space), to_text(space), end));
    return {};
  }

  Status check_peak() const {
    const auto nodes = static_cast<int>(phase_.nodes.size());
    if (phase_.peak_node < 0 || phase_.peak_node >= std::max(nodes, 1))
      return wrong(fmt::format("its peak is at node {} of {}", phase_.peak_node, nodes));
    return {};
  }

  // Checks that an update has the place of its persistent value, and that no node reads the old value afterwards.
  Status check_updates() const {
    for (const Update& update : graph_.updates) {
      if (!one_place(update.value, update.persistent))
        return wrong(fmt::format("the update of '{}' has another place", graph_.value(update.persistent).name));
      const NodeId writer = graph_.value(update.value).producer;
      for (size_t n = static_cast<size_t>(writer) + 1; n < graph_.nodes.size(); ++n)
        for (ValueId in : graph_.nodes[n].inputs)
          if (one_place(in, update.persistent) && root(in) != root(update.value))
            return wrong(
                fmt::format("node {} reads '{}' after it was updated", n, graph_.value(update.persistent).name));
    }
    return {};
  }

  // Computes when bytes are really needed, independently of the live ranges in the plan: from their write to the last
  // reader of the value or of a view of it; for a copy, until a node has waited for it.
  std::vector<Occupied> needs(Space space) const {
    const auto end = static_cast<int>(graph_.nodes.size()) - 1;
    std::vector<Occupied> list;
    std::vector<size_t> index(graph_.values.size(), SIZE_MAX);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const Bytes begin = phase_.values[v].offset;
      if (value.space != space || begin == kNone || roots_[v] != static_cast<ValueId>(v)) continue;
      const int first = value.producer == kNone ? 0 : value.producer;
      index[v] = list.size();
      list.push_back({begin, begin + value.bytes(), first, value.persistent ? end : first, static_cast<ValueId>(v)});
    }
    const auto until = [&](ValueId id, int node) {
      const size_t i = index[static_cast<size_t>(root(id))];
      if (i != SIZE_MAX) list[i].last = std::max(list[i].last, node);
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (ValueId id : graph_.nodes[n].inputs) until(id, over(n));
      for (ValueId id : graph_.nodes[n].outputs) until(id, over(n));
    }
    for (ValueId id : graph_.outputs) until(id, end);
    for (const Update& update : graph_.updates) until(update.value, end);
    for (size_t n = 0; n < phase_.nodes.size() && space == Space::kDevice; ++n) {
      const PlannedNode& node = phase_.nodes[n];
      if (node.workspace_bytes > 0)
        list.push_back({node.workspace_offset, node.workspace_offset + node.workspace_bytes, static_cast<int>(n),
                        static_cast<int>(n), kNone});
    }
    return list;
  }

  std::string what(const Occupied& one) const {
    return one.value == kNone ? fmt::format("the workspace of node {}", one.first)
                              : fmt::format("'{}'", graph_.value(one.value).name);
  }

  // Visits the ranges in the order of their first node and keeps the live ones sorted by offset. Live ranges that
  // passed the check overlap only if they begin at the same byte, so each new one has few neighbours to be compared
  // with.
  Status check_overlaps(Space space) const {
    std::vector<Occupied> list = needs(space);
    std::stable_sort(list.begin(), list.end(), [](const Occupied& a, const Occupied& b) { return a.first < b.first; });
    std::multimap<Bytes, const Occupied*> alive;
    using Ending = std::pair<int, std::multimap<Bytes, const Occupied*>::iterator>;
    const auto later = [](const Ending& a, const Ending& b) { return a.first > b.first; };
    std::priority_queue<Ending, std::vector<Ending>, decltype(later)> endings(later);
    for (const Occupied& one : list) {
      for (; !endings.empty() && endings.top().first < one.first; endings.pop()) alive.erase(endings.top().second);
      auto at = alive.lower_bound(one.begin);
      if (at != alive.begin()) at = alive.lower_bound(std::prev(at)->first);  // all ranges that begin there
      for (; at != alive.end() && at->first < one.end; ++at)
        if (at->second->end > one.begin && !may_share(*at->second, one))
          return wrong(fmt::format("{} and {} overlap at {} while both are live", what(*at->second), what(one),
                                   std::max(at->first, one.begin)));
      endings.emplace(one.last, alive.emplace(one.begin, &one));
    }
    return {};
  }

  // Two live values may share a place in two cases only: one is the update of a persistent value, or one node reads the
  // older one for the last time and writes the newer one, and its op allows that.
  bool may_share(const Occupied& a, const Occupied& b) const {
    if (a.value == kNone || b.value == kNone || a.begin != b.begin) return false;
    const Occupied& older = graph_.value(a.value).producer <= graph_.value(b.value).producer ? a : b;
    const Occupied& newer = &older == &a ? b : a;
    const NodeId writer = graph_.value(newer.value).producer;
    if (writer == kNone) return false;
    // A persistent value is still needed after the phase, unless it is updated.
    const bool handed_over =
        graph_.value(older.value).persistent ? is_update(newer.value, older.value) : older.last <= writer;
    if (!handed_over) return false;
    const Node& node = graph_.node(writer);
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId in) { return root(in) != older.value || allows(node, in, newer.value); });
  }

  bool is_update(ValueId value, ValueId persistent) const {
    return std::any_of(graph_.updates.begin(), graph_.updates.end(),
                       [&](const Update& u) { return root(u.value) == value && u.persistent == persistent; });
  }

  bool allows(const Node& node, ValueId from, ValueId to) const {
    if (graph_.value(from).bytes() != graph_.value(to).bytes()) return false;
    if (node.body) {
      const auto in = std::find(node.inputs.begin(), node.inputs.end(), from) - node.inputs.begin();
      const auto out = std::find(node.outputs.begin(), node.outputs.end(), to) - node.outputs.begin();
      const ValueId inside = node.body->inputs[static_cast<size_t>(in)];
      const NodeId made = node.body->value(node.body->outputs[static_cast<size_t>(out)]).producer;
      for (size_t n = static_cast<size_t>(made) + 1; n < node.body->nodes.size(); ++n)
        for (ValueId id : node.body->nodes[n].inputs)
          if (id == inside) return false;
      return true;
    }
    for (const InPlace& pair : op_def(node.op).in_place)
      if (pair.input < node.inputs.size() && pair.output < node.outputs.size() && node.inputs[pair.input] == from &&
          node.outputs[pair.output] == to)
        return true;
    return false;
  }

  const Plan& plan_;
  const PhasePlan& phase_;
  const Graph& graph_;
  std::vector<Space> spaces_;
  std::vector<ValueId> roots_;
  std::vector<NodeId> over_;  // for a node on another queue than the compute queue: the node that waits for it
};

// Checks the batch, the settings and the phases that training runs.
Status check_program(const Plan& plan) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInternal, "plan: " + std::move(what)); };
  const auto [effective, micro] = plan.batch;
  if (effective < 0 || micro < 0 || micro > effective || (effective > 0 && micro == 0))
    return wrong(fmt::format("it has a batch of {} in micro-batches of {}", effective, micro));
  const auto& settings = plan.settings.values();
  const bool any_negative =
      std::any_of(settings.begin(), settings.end(), [](const auto& setting) { return setting.second < 0; });
  if (any_negative || !sensible(plan.data_bytes) || !sensible(plan.overhead_bytes) || !sensible(plan.arena_bytes) ||
      !sensible(plan.persistent_bytes) || !sensible(plan.planning_bytes))
    return wrong("one of its sizes is negative or larger than any memory");
  for (const PhasePlan& phase : plan.phases)
    if (reads_samples(phase.name.kind) && phase.samples < 1)
      return wrong(fmt::format("it has a phase '{}' for {} samples", to_text(phase.name), phase.samples));
  if (effective == 0) return {};
  const bool cut = micro < effective;
  for (const PhaseKind kind : {PhaseKind::kBegin, PhaseKind::kAccumulate, PhaseKind::kApply, PhaseKind::kTrain}) {
    if (cut == (kind == PhaseKind::kTrain)) continue;
    const PhasePlan* phase = plan.phase(kind);
    const int64_t samples = reads_samples(kind) ? micro : 0;
    if (phase == nullptr || phase->samples != samples)
      return wrong(fmt::format("it has no phase '{}' for {} samples", to_text({kind}), samples));
  }
  return {};
}

// Checks that the slots follow each other inside the persistent range, and that each is a value that some phase reads.
Status check_slots(const Plan& plan) {
  const auto wrong = [](const PersistentSlot& slot, std::string_view what) {
    return fail(ErrorCode::kInternal, fmt::format("plan: slot '{}' {}", slot.name, what));
  };
  std::set<std::string_view> read, seen;
  for (const PhasePlan& phase : plan.phases)
    for (const ValueId id : phase.graph.inputs)
      if (phase.graph.value(id).persistent) read.insert(phase.graph.value(id).name);
  Bytes end = 0;
  for (const PersistentSlot& slot : plan.persistent) {
    if (slot.offset % kAlignment != 0 || !lies_within(slot.offset, slot.bytes(), plan.persistent_bytes))
      return wrong(slot, fmt::format("is at {} with {} bytes, outside the persistent range of {}", slot.offset,
                                     slot.bytes(), plan.persistent_bytes));
    if (slot.offset < end) return wrong(slot, "overlaps the slot before it");
    if (!seen.insert(slot.name).second) return wrong(slot, "exists twice");
    if (read.count(slot.name) == 0) return wrong(slot, "is read by no phase");
    end = slot.offset + slot.bytes();
  }
  return {};
}

// Checks that the memories other than the device's are exactly those that the phases need, and as large as needed.
Status check_beside(const Plan& plan, const std::map<Space, Bytes>& needed) {
  const auto wrong = [](std::string what) { return fail(ErrorCode::kInternal, "plan: " + std::move(what)); };
  auto need = needed.begin();
  for (const PlanMemory& memory : plan.beside) {
    if (need == needed.end() || memory.space != need->first)
      return wrong(fmt::format("memory '{}' is used by no phase, or is out of order", to_text(memory.space)));
    if (memory.bytes != need->second)
      return wrong(fmt::format("it has {} bytes of memory '{}', but its phases need {}", memory.bytes,
                               to_text(memory.space), need->second));
    ++need;
  }
  if (need != needed.end())
    return wrong(fmt::format("it has no bytes of memory '{}', which its phases need", to_text(need->first)));
  return {};
}

}  // namespace

Status validate(const Plan& plan) {
  PLIMSOLL_TRY(check_program(plan));
  for (const PhasePlan& phase : plan.phases) PLIMSOLL_TRY(verify_structure(phase.graph));
  PLIMSOLL_TRY(check_slots(plan));
  Bytes highest = plan.persistent_bytes;
  std::map<Space, Bytes> beside;
  for (const PhasePlan& phase : plan.phases) {
    PLIMSOLL_TRY(PhaseCheck(plan, phase).run());
    highest = std::max(highest, phase.arena_bytes);
    for (const SpaceBytes& memory : phase.beside) beside[memory.space] = std::max(beside[memory.space], memory.bytes);
  }
  PLIMSOLL_TRY(check_beside(plan, beside));
  if (highest != plan.arena_bytes)
    return fail(ErrorCode::kInternal,
                fmt::format("plan: its arena has {} bytes, but its phases need {}", plan.arena_bytes, highest));
  CheckedSum sum;
  for (const CategoryBytes& entry : categories_at_peak(plan)) {
    if (entry.bytes < 0)
      return fail(ErrorCode::kInternal,
                  fmt::format("plan: category {} has {} bytes", name_of(entry.category), entry.bytes));
    sum += entry.bytes;
  }
  if (sum.value() != plan.arena_bytes)
    return fail(ErrorCode::kInternal,
                fmt::format("plan: the categories do not add up to the arena of {} bytes", plan.arena_bytes));
  return {};
}

}  // namespace plimsoll::engine
