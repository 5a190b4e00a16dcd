// A simulation of the step decides which values are offloaded, and when. Nodes take the predicted seconds of their
// kernels. Copies run one at a time in each direction of the link. A copy to the host starts right after the last
// reader before the wait. The value's place is free when the copy ends; if the place is needed earlier, the step waits
// for the copy. The value is copied back as soon as there is room for it until its next reader, in the order of these
// readers.
#include "plan/offload.h"

#include <algorithm>
#include <deque>

#include "graph/rewrite.h"
#include "ops/predicates.h"
#include "plan/storage.h"
#include "plan/views.h"

namespace plimsoll::engine {
namespace {

constexpr Bytes kShare = 512;  // values below 1/512 of the live set are not worth a copy

// The wait of a value, including its views, between the two consecutive readers that are furthest apart in time.
struct Wait {
  ValueId value = kNone;
  int before = 0, after = 0;  // the two nodes that use it
  Bytes bytes = 0;
  double seconds = 0;  // between the two nodes
};

// A copy that starts or ends before or after a node.
enum class Step : uint8_t { kSend, kSent, kFetch, kFetched };
struct Copy {
  Step step;
  size_t wait;         // index into waits_
  double stalled = 0;  // seconds that the nodes wait for the copy
};

class OffloadSimulation {
 public:
  OffloadSimulation(const LoweredGraph& ordered, double bytes_per_second)
      : lowered_(ordered), graph_(ordered.graph), link_(bytes_per_second), root_(viewed_values(ordered.graph)) {
    find_live();
    find_waits();
    chosen_.assign(waits_.size(), false);
    rest_ = live_;
  }

  // Chooses the waits that are spent in host memory. Returns false if that does not free enough bytes. Caps must not
  // increase from call to call: what was chosen for a larger one stays chosen.
  bool choose(Bytes cap) {
    for (;;) {
      const auto peak = static_cast<int>(std::max_element(rest_.begin(), rest_.end()) - rest_.begin());
      if (rest_.empty() || rest_[static_cast<size_t>(peak)] <= cap) return true;
      // Of the values that wait at this node, take the one with the most time for its two copies.
      size_t best = waits_.size();
      for (size_t i = 0; i < waits_.size(); ++i) {
        const Wait& wait = waits_[i];
        const bool there = !chosen_[i] && wait.before < peak && peak < wait.after;
        if (there && (best == waits_.size() || spare(wait) > spare(waits_[best]))) best = i;
      }
      if (best == waits_.size()) return false;
      chosen_[best] = true;
      add(rest_, waits_[best].before + 1, waits_[best].after, -waits_[best].bytes);
    }
  }

  // The live bytes without the chosen values, which are there a little longer: their copies take time.
  Bytes rest() const { return rest_.empty() ? 0 : *std::max_element(rest_.begin(), rest_.end()); }

  // Simulates the step under `cap`, and leaves the copies in before_ and after_.
  void simulate(Bytes cap) {
    const size_t nodes = graph_.nodes.size();
    before_.assign(nodes, {});
    after_.assign(nodes, {});
    finish_.assign(waits_.size(), 0);
    state_.assign(waits_.size(), State::kHere);
    wanted_.clear();
    for (size_t i = 0; i < waits_.size(); ++i)
      if (chosen_[i]) wanted_.push_back(i);
    std::stable_sort(wanted_.begin(), wanted_.end(),
                     [&](size_t a, size_t b) { return waits_[a].after < waits_[b].after; });
    for (size_t n = 0; n < nodes; ++n) {
      const auto at = static_cast<int>(n);
      while (!leaving_.empty() && finish_[leaving_.front()] <= now_) end_sending(at);
      while (!leaving_.empty() && rest_[n] + leaving_bytes_ > cap) end_sending(at);
      for (const size_t i : wanted_)
        if (waits_[i].after == at) have_back(i, at);
      fetch_early(at, cap);
      now_ += lowered_.kernels[n].seconds;
      for (const size_t i : wanted_)
        if (waits_[i].before == at) send(i, at);
    }
  }

  RewrittenPhase rewrite(const Device& device) const;

 private:
  enum class State : uint8_t { kHere, kLeaving, kGone, kComing, kBack };

  static void add(std::vector<Bytes>& live, int first, int end, Bytes bytes) {
    for (int n = first; n < end; ++n) live[static_cast<size_t>(n)] += bytes;
  }
  double seconds_of(const Wait& wait) const { return static_cast<double>(wait.bytes) / link_; }
  double spare(const Wait& wait) const { return wait.seconds - 2 * seconds_of(wait); }

  void find_live() {
    live_.assign(graph_.nodes.size(), 0);
    for (const PackItem& item : pack_items(lowered_, assign_storage(lowered_)))
      add(live_, item.first, item.last + 1, item.bytes);
  }

  void find_waits() {
    const Bytes most = live_.empty() ? 0 : *std::max_element(live_.begin(), live_.end());
    std::vector<bool> stays(graph_.values.size(), false);
    const auto stay = [&](ValueId id) { stays[static_cast<size_t>(root_[static_cast<size_t>(id)])] = true; };
    for (ValueId id : graph_.outputs) stay(id);
    for (const Update& update : graph_.updates) stay(update.value);
    std::vector<std::vector<int>> uses(graph_.values.size());
    for (ValueId id : graph_.inputs) uses[static_cast<size_t>(id)].push_back(-1);
    std::vector<double> start(graph_.nodes.size() + 1, 0);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      start[n + 1] = start[n] + lowered_.kernels[n].seconds;
      for (const auto* ids : {&graph_.nodes[n].inputs, &graph_.nodes[n].outputs})
        for (ValueId id : *ids)
          uses[static_cast<size_t>(root_[static_cast<size_t>(id)])].push_back(static_cast<int>(n));
    }
    for (size_t v = 0; v < uses.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.persistent || stays[v] || value.bytes() * kShare < most) continue;
      Wait longest{static_cast<ValueId>(v), 0, 0, align_up(value.bytes()), 0};
      for (size_t i = 1; i < uses[v].size(); ++i) {
        const int before = uses[v][i - 1], after = uses[v][i];
        if (before < 0 || after - before < 2) continue;  // an input can be offloaded only after its first reader
        const double seconds = start[static_cast<size_t>(after)] - start[static_cast<size_t>(before) + 1];
        if (longest.after == 0 || seconds > longest.seconds) {
          longest.before = before;
          longest.after = after;
          longest.seconds = seconds;
        }
      }
      if (longest.after > 0) waits_.push_back(longest);
    }
  }

  // Copies to the host run one after the other, so they end in the order in which they started.
  void send(size_t i, int at) {
    after_[static_cast<size_t>(at)].push_back({Step::kSend, i});
    out_free_ = std::max(out_free_, now_) + seconds_of(waits_[i]);
    finish_[i] = out_free_;
    state_[i] = State::kLeaving;
    leaving_.push_back(i);
    leaving_bytes_ += waits_[i].bytes;
  }

  void end_sending(int at) {
    const size_t i = leaving_.front();
    leaving_.pop_front();
    leaving_bytes_ -= waits_[i].bytes;
    state_[i] = State::kGone;
    wait_for(i, Step::kSent, at);
  }

  void wait_for(size_t i, Step step, int at) {
    const double stalled = std::max(0.0, finish_[i] - now_);
    now_ += stalled;
    before_[static_cast<size_t>(at)].push_back({step, i, stalled});
  }

  void fetch(size_t i, int at) {
    before_[static_cast<size_t>(at)].push_back({Step::kFetch, i});
    in_free_ = std::max(in_free_, now_) + seconds_of(waits_[i]);
    finish_[i] = in_free_;
    state_[i] = State::kComing;
  }

  void have_back(size_t i, int at) {
    while (state_[i] == State::kLeaving) end_sending(at);
    if (state_[i] == State::kGone) fetch(i, at);
    wait_for(i, Step::kFetched, at);
    state_[i] = State::kBack;
  }

  // Fetches values in the order of their next readers. A value without room yet delays those after it.
  void fetch_early(int at, Bytes cap) {
    for (const size_t i : wanted_) {
      const Wait& wait = waits_[i];
      if (state_[i] == State::kComing || state_[i] == State::kBack) continue;
      if (state_[i] != State::kGone || wait.after <= at) return;
      if (rest_[static_cast<size_t>(at)] + leaving_bytes_ + wait.bytes > cap) return;
      for (int n = at; n < wait.after; ++n)
        if (rest_[static_cast<size_t>(n)] + wait.bytes > cap) return;
      add(rest_, at, wait.after, wait.bytes);
      fetch(i, at);
    }
  }

  const LoweredGraph& lowered_;
  const Graph& graph_;
  double link_;                // bytes per second
  std::vector<ValueId> root_;  // the viewed value of a view; every other value is its own root
  std::vector<Bytes> live_;    // one per node
  std::vector<Wait> waits_;
  std::vector<bool> chosen_;

  // State of the simulation.
  std::vector<Bytes>
      rest_;  // live bytes at each node, without offloaded values and without copies to the host under way
  std::vector<size_t> wanted_;
  std::vector<State> state_;
  std::deque<size_t> leaving_;
  Bytes leaving_bytes_ = 0;
  std::vector<double> finish_;
  double now_ = 0, out_free_ = 0, in_free_ = 0;
  std::vector<std::vector<Copy>> before_, after_;  // one list per node
};

// Builds the graph with its copies.
class Inserter {
 public:
  Inserter(const LoweredGraph& from, const std::vector<Wait>& waits)
      : from_(from),
        waits_(waits),
        rewrite_(from.graph),
        views_(from.graph),
        there_(waits.size(), kNone),
        back_(there_) {}

  void copy_node(size_t n) {
    rewrite_.copy_node(static_cast<NodeId>(n));
    origin_.push_back({n, 0});
  }

  void put(const Copy& copy, int before_node) {
    const size_t i = copy.wait;
    const ValueId value = waits_[i].value;
    if (copy.step == Step::kSend) {
      there_[i] = add("to_host", Queue::kToHost, {rewrite_.to(value)}, value, "/sent", Space::kHost, 0);
    } else if (copy.step == Step::kSent) {
      there_[i] = add("to_host_done", Queue::kCompute, {there_[i], rewrite_.to(value)}, value, "/away", Space::kHost,
                      copy.stalled);
    } else if (copy.step == Step::kFetch) {
      back_[i] = add("to_device", Queue::kFromHost, {there_[i]}, value, "/fetched", Space::kDevice, 0);
    } else {
      rewrite_.bind(value, add("to_device_done", Queue::kCompute, {back_[i], there_[i]}, value, "/back", Space::kDevice,
                               copy.stalled));
      renew_views(value, before_node);
    }
  }

  LoweredGraph finish(const Device& device) {
    LoweredGraph result;
    result.graph = rewrite_.finish();
    for (size_t n = 0; n < result.graph.nodes.size(); ++n) {
      const auto [old, stalled] = origin_[n];
      if (old != kCopy) {
        result.kernels.push_back(from_.kernels[old]);
        continue;
      }
      auto offer = device.offer(result.graph, result.graph.nodes[n]);
      if (!offer) return {};
      offer->seconds += stalled;
      result.kernels.push_back(std::move(*offer));
    }
    return result;
  }

 private:
  static constexpr size_t kCopy = SIZE_MAX;

  ValueId add(const char* op, Queue queue, std::vector<ValueId> inputs, ValueId of, const char* suffix, Space space,
              double stalled) {
    Value value = from_.graph.value(of);
    value.name += suffix;
    value.space = space;
    const std::string layer = value.layer;
    const Stage stage = value.producer == kNone ? Stage::kForward : from_.graph.node(value.producer).stage;
    const ValueId id = rewrite_.add_value(std::move(value));
    rewrite_.add_node({op, std::move(inputs), {id}, {}, layer, stage, nullptr, queue});
    origin_.push_back({kCopy, stalled});
    return id;
  }

  // Views from before the wait refer to the old place. Creates those again that are read after the wait.
  void renew_views(ValueId value, int before_node) {
    for (const NodeId n : views_.read_from(value, before_node)) {
      const Node& node = from_.graph.node(n);
      const auto made = rewrite_.clone_node(n, {rewrite_.to(node.inputs[0])});
      origin_.push_back({static_cast<size_t>(n), 0});
      rewrite_.bind(node.outputs[0], made[0]);
    }
  }

  const LoweredGraph& from_;
  const std::vector<Wait>& waits_;
  Rewrite rewrite_;
  ViewsOf views_;
  std::vector<ValueId> there_, back_;
  std::vector<std::pair<size_t, double>>
      origin_;  // for each new node: the old node, or kCopy and the seconds that it waits
};

RewrittenPhase OffloadSimulation::rewrite(const Device& device) const {
  Inserter inserter(lowered_, waits_);
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    for (const Copy& copy : before_[n]) inserter.put(copy, static_cast<int>(n));
    inserter.copy_node(n);
    for (const Copy& copy : after_[n]) inserter.put(copy, static_cast<int>(n));
  }
  return {inserter.finish(device), static_cast<int64_t>(wanted_.size())};
}

}  // namespace

Bytes share_kept(Bytes most_live, int64_t percent) {
  return static_cast<Bytes>(static_cast<double>(100 - percent) / 100.0 * static_cast<double>(most_live));
}

std::optional<RewrittenPhase> offload_percent(const OrderedPhase& phase, const Device& device, int64_t percent) {
  const Bytes cap = share_kept(phase.most_live, percent);
  if (phase.live <= cap) return RewrittenPhase();
  return offload(phase.graph, device, cap);
}

double bytes_to_offload(Bytes live, Bytes most_live, int64_t percent) {
  return std::max(0.0, static_cast<double>(live - share_kept(most_live, percent)));
}

std::vector<Bytes> least_live_offloaded(const LoweredGraph& ordered, const Device& device,
                                        std::span<const Bytes> caps) {
  std::vector<Bytes> list;
  const double link = device.host_bytes_per_second();
  if (link <= 0) return list;
  OffloadSimulation simulation(ordered, link);
  for (const Bytes cap : caps) {
    if (!simulation.choose(cap)) break;
    list.push_back(simulation.rest());
  }
  return list;
}

std::optional<RewrittenPhase> offload(const LoweredGraph& ordered, const Device& device, Bytes cap) {
  const double link = device.host_bytes_per_second();
  if (link <= 0) return std::nullopt;
  OffloadSimulation simulation(ordered, link);
  if (!simulation.choose(cap)) return std::nullopt;
  simulation.simulate(cap);
  RewrittenPhase result = simulation.rewrite(device);
  if (result.graph.kernels.empty() != ordered.kernels.empty()) return std::nullopt;
  return result;
}

}  // namespace plimsoll::engine
