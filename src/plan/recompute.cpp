// The path: for caps that shrink by a percent of the live set at a time, flips one value at a time, always the one with
// the best ratio of bytes to seconds. The bytes are summed over the nodes where too much is live. Each step begins with
// the choice of the step before; then values that need not be dropped any more are kept again.
//
// A value's ratio gets worse with almost every flip of another, so the values wait in a heap, and only the best ones
// are looked at again.
#include "plan/recompute.h"

#include <algorithm>
#include <array>
#include <queue>

#include "plan/inside_readers.h"
#include "plan/recompute_cut.h"
#include "plan/recompute_rewrite.h"

namespace plimsoll::engine {
namespace {

constexpr double kNoSeconds = 1e-9;       // replaces a predicted cost of 0, so that ratios stay finite
constexpr int kMostLooks = 64;            // how many values of the heap are looked at again for one flip
constexpr size_t kFewUnits = 128;         // up to so many, replacing each value by others is tried
constexpr size_t kMostCuts = 2;           // from how many nodes' cheapest choices a path starts anew
constexpr int kMostPeaks = 12;            // at how many nodes the cheapest choice is made then
constexpr int kStepsPerCut = 4;           // how often it does
constexpr size_t kMostUnitsToCut = 1200;  // in larger graphs, a path that starts anew takes longer than all others
constexpr size_t kMostLevels = 8;         // of graphs on top of each other
// Graphs with more nodes get one level: planning must hold no more memory than the plan, and each level holds a graph.
constexpr size_t kMostNestedNodes = 2000;
// How far below the cap bytes still count, as shares of the live set. Nearer the cap, the peak counts for more; but the
// choice can get stuck where all values that would lower the peak raise it elsewhere.
constexpr double kMargins[] = {0, 0.03, 0.1, 0.3};

constexpr auto kPercents = [] {
  std::array<int64_t, 99> list{};
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<int64_t>(i) + 1;
  return list;
}();

}  // namespace

const std::span<const int64_t> kRecomputePercents = kPercents;

struct RecomputePath::Level {
  // On the caller's graph.
  Level(const LoweredGraph& from, const Device& on, bool uses_inside)
      : Level(&from, uses_inside ? compute_inside_readers(from, on) : InsideReaders(), 0, on) {}
  // On a graph that recomputes `below` values already.
  Level(std::unique_ptr<const LoweredGraph> own, int64_t below, const Device& on)
      : Level(own.get(), InsideReaders(), below, on) {
    base = std::move(own);
  }

  // Bytes freed per second. Keeping a value again costs no time, so it comes first if it frees bytes.
  double gain(size_t unit) {
    if (!units.units[unit].droppable) return 0;
    const RecomputeChoice::Effect effect = choice.if_flipped(unit);
    const double freed = choice.above() - effect.above;
    return !effect.possible || freed <= 0 ? 0 : freed / std::max(effect.seconds, kNoSeconds);
  }

  // Flips units until at most `cap` bytes are live. Returns false if that is not reached.
  bool flip_until_below(Bytes cap, size_t except = SIZE_MAX) {
    const RecomputeChoice before = choice;
    for (const double margin : kMargins) {
      if (margin > 0) choice = before;
      // A large value is worth its whole bytes, also if fewer would be enough: what is too much is kept again later.
      const auto more = static_cast<Bytes>(margin * static_cast<double>(units.peak()));
      choice.set_cap(std::max<Bytes>(0, cap - largest_bytes - more));
      while (choice.peak() > cap && flip_best_ones(cap, except)) {
      }
      if (choice.peak() <= cap) break;
    }
    choice.set_cap(cap);
    return choice.peak() <= cap;
  }

  // Flips units as long as the heap has one that helps. A unit that does not help at first may do so after others, so
  // this is called until it returns false: then none helps.
  bool flip_best_ones(Bytes cap, size_t except) {
    std::priority_queue<std::pair<double, int>> heap;  // of equals, the first unit first
    const auto put = [&](size_t unit, double worth) {
      if (worth > 0) heap.emplace(worth, -static_cast<int>(unit));
    };
    for (size_t u = 0; u < units.units.size(); ++u)
      if (u != except) put(u, gain(u));
    bool any = false;
    for (int looks = 0; !heap.empty() && choice.peak() > cap; ++looks) {
      const auto unit = static_cast<size_t>(-heap.top().second);
      heap.pop();
      const double worth = gain(unit);
      if (looks < kMostLooks && !heap.empty() && worth < heap.top().first) {
        put(unit, worth);
      } else if (worth > 0) {
        choice.flip(unit);
        put(unit, gain(unit));
        any = true;
        looks = 0;
      }
    }
    return any;
  }

  // Values that were dropped early may no longer have to be. Tries the most expensive ones first.
  void keep_what_may_be_kept() {
    std::vector<std::pair<double, size_t>> order;
    for (size_t u = 0; u < units.units.size(); ++u) {
      if (!choice.dropped()[u] || choice.recomputed_at(u).empty()) continue;
      order.emplace_back(units.units[u].fused ? units.units[u].fused_seconds : units.units[u].seconds, u);
    }
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [seconds, u] : order) {
      const RecomputeChoice::Effect effect = choice.if_flipped(u);
      if (effect.possible && effect.above <= choice.above() && effect.seconds < 0) choice.flip(u);
    }
  }

  // Makes the cheapest choice at the node, then at the node where most is live then, and so on.
  void cut_all_peaks(int node, Bytes cap) {
    for (int i = 0; i < kMostPeaks && choice.live()[static_cast<size_t>(node)] > cap; ++i) {
      const CutAtNode cut = cut_at(units, node, cap, &choice);
      for (size_t k = cut.dropped.size(); k-- > 0;) {
        const size_t u = cut.units[k];
        if (choice.dropped()[u] != cut.dropped[k] && choice.if_flipped(u).possible) choice.flip(u);
      }
      node = static_cast<int>(std::max_element(choice.live().begin(), choice.live().end()) - choice.live().begin());
    }
  }

  // Starts anew from the choice that is the cheapest where the bound is the largest, and takes it if it reaches the cap
  // in less time than the present choice. Single flips cannot find it where a value and all that it is computed from
  // must be dropped together. Returns whether the cap is reached.
  bool start_from_a_cut(Bytes cap, bool reached) {
    const RecomputeChoice before = choice;
    for (const int node : nodes_to_cut(least_seconds_per_node(units, cap), kMostCuts)) {
      RecomputeChoice found = std::move(choice);
      choice = RecomputeChoice(units);
      cut_all_peaks(node, cap);
      if (flip_until_below(cap)) keep_what_may_be_kept();
      const bool is_better = choice.peak() <= cap && (!reached || choice.seconds() < found.seconds() - kNoSeconds);
      reached = reached || is_better;
      if (!is_better) choice = std::move(found);
    }
    return reached;
  }

  // Tries to do without each dropped value: keeps it, drops others instead, and goes back if that takes longer.
  void replace_what_is_dear(Bytes cap) {
    if (units.units.size() > kFewUnits) return;
    for (size_t u = 0; u < units.units.size(); ++u) {
      if (!choice.dropped()[u] || choice.recomputed_at(u).empty() || !choice.if_flipped(u).possible) continue;
      const RecomputeChoice before = choice;
      choice.flip(u);
      const bool reached = flip_until_below(cap, u);
      if (reached) keep_what_may_be_kept();
      if (!reached || choice.seconds() >= before.seconds() - kNoSeconds) choice = before;
    }
  }

  RewrittenPhase graph_of(const RecomputeChoice& chosen) const {
    int64_t values = values_below;
    for (size_t u = 0; u < units.units.size(); ++u) values += chosen.recomputed_at(u).empty() ? 0 : 1;
    return {with_recomputed(ordered, units, chosen, device), values};
  }

 private:
  Level(const LoweredGraph* from, InsideReaders readers, int64_t below, const Device& on)
      : original(*from),
        inside(std::move(readers)),
        ordered(inside.values > 0 ? inside.graph : original),
        device(on),
        values_below(below + inside.values),
        units(ordered, on),
        choice(units) {
    for (const RecomputeUnit& unit : units.units)
      if (unit.droppable && !unit.is_behind()) largest_bytes = std::max(largest_bytes, unit.bytes);
  }

  std::unique_ptr<const LoweredGraph> base;  // null: the graph belongs to the caller

 public:
  const LoweredGraph& original;
  const InsideReaders inside;
  const LoweredGraph& ordered;
  const Device& device;
  const int64_t values_below;  // values that `ordered` recomputes already
  const RecomputeUnits units;
  RecomputeChoice choice;
  Bytes largest_bytes = 0;  // of one value that can be dropped
};

RecomputePath::RecomputePath(const LoweredGraph& ordered, const Device& device) : device_(device) {
  levels_.push_back(std::make_unique<Level>(ordered, device, true));
}
RecomputePath::RecomputePath(RecomputePath&&) noexcept = default;
RecomputePath::~RecomputePath() = default;

bool RecomputePath::reach(Bytes cap) {
  if (at_its_end_) return false;
  const RecomputeChoice before = levels_.back()->choice;
  bool reached = levels_.back()->flip_until_below(cap);
  if (reached) levels_.back()->keep_what_may_be_kept();
  if (!reached) levels_.back()->choice = before;
  const bool cuts = levels_.back()->units.units.size() <= kMostUnitsToCut;
  if (cuts && (!reached || ++steps_ % kStepsPerCut == 0)) reached = levels_.back()->start_from_a_cut(cap, reached);
  if (!reached) {
    levels_.back()->choice = before;
    at_its_end_ = !go_deeper(cap);
    if (at_its_end_) return false;
    levels_.back()->keep_what_may_be_kept();
  }
  levels_.back()->replace_what_is_dear(cap);
  return true;
}

// Adds a level whose choice reaches the cap, the faster of two. Returns false if there is none.
bool RecomputePath::go_deeper(Bytes cap) {
  const Level& last = *levels_.back();
  std::unique_ptr<Level> found;
  // What readers compute inside must be there for them. Without that, more can be dropped.
  if (last.inside.values > 0) found = std::make_unique<Level>(last.original, device_, false);
  if (found && !found->flip_until_below(cap)) found = nullptr;
  const bool nests = levels_.size() < kMostLevels && last.ordered.kernels.size() <= kMostNestedNodes;
  if (RewrittenPhase reached = nests ? last.graph_of(last.choice) : RewrittenPhase(); !reached.graph.kernels.empty()) {
    auto nested = std::make_unique<Level>(std::make_unique<const LoweredGraph>(std::move(reached.graph)),
                                          reached.values, device_);
    const bool is_reached = nested->flip_until_below(cap);
    if (is_reached && (!found || nested->choice.seconds() < found->choice.seconds())) found = std::move(nested);
  }
  if (!found) return false;
  // A large graph's first level is made once more if a plan needs it.
  if (last.ordered.kernels.size() > kMostNestedNodes) levels_.back() = nullptr;
  levels_.push_back(std::move(found));
  return true;
}

RecomputePath::Mark RecomputePath::mark() const {
  return {levels_.size() - 1, levels_.back()->choice.dropped()};
}

double RecomputePath::seconds() const {
  return levels_.back()->choice.seconds();
}

Bytes RecomputePath::live() const {
  return levels_.back()->choice.peak();
}

RewrittenPhase RecomputePath::graph_of(const Mark& mark) const {
  std::unique_ptr<const Level> again;
  if (!levels_[mark.level]) again = std::make_unique<const Level>(levels_.back()->original, device_, true);
  const Level& level = again ? *again : *levels_[mark.level];
  RecomputeChoice choice(level.units);
  // Readers before what they read, so that no flip changes what another one did.
  for (size_t u = mark.dropped.size(); u-- > 0;)
    if (choice.dropped()[u] != mark.dropped[u]) choice.flip(u);
  return level.graph_of(choice);
}

std::optional<RewrittenPhase> recompute_percent(const OrderedPhase& phase, const Device& device, int64_t percent) {
  if (phase.live <= share_kept(phase.most_live, percent)) return RewrittenPhase();
  RecomputePath path(phase.graph, device);
  // The same steps as a search takes, so that a plan can be made again from its settings.
  for (const int64_t step : kRecomputePercents) {
    const Bytes cap = share_kept(phase.most_live, step);
    if (cap < phase.live && !path.reach(cap)) return std::nullopt;
    if (step == percent) break;
  }
  RewrittenPhase result = path.graph_of(path.mark());
  if (result.graph.kernels.empty()) return std::nullopt;
  return result;
}

}  // namespace plimsoll::engine
