// Chooses which values that recompute_cheap keeps are recomputed as well, convolutions included, so that the live set
// shrinks to a share of its size at little cost in time.
//
// A recomputed value is live from its first backward reader to its last. If neighbours are recomputed, all of them are
// live at the first reader. These are the segments of Chen et al. (arXiv 1604.06174), whose best length is a trade-off.
// This code does not divide the graph into segments. It flips one value at a time, to recomputed or back to kept, and
// always picks the value with the best ratio of bytes to seconds. The bytes are summed over the nodes where too much is
// live. Segments then appear where they pay off, also where branches join, and values that are cheap to recompute for
// their bytes come first.
#include <algorithm>

#include "levers/live_choice.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

constexpr double kMostWork = 2e8;      // most nodes and saved activations to look at: some 50 ms
constexpr double kNoSeconds = 1e-9;    // replaces a predicted cost of 0, so that ratios stay finite
constexpr double kWorthALevel = 0.97;  // a new level must shrink the live set at least to this share of the last one

class Flipper {
 public:
  Flipper(const LiveEstimate& estimate, size_t nodes, double share)
      : saved_(estimate.saved()),
        work_per_try_(static_cast<double>(nodes + saved_.size())),
        choice_(estimate, static_cast<Bytes>(share * static_cast<double>(peak_when_kept(estimate)))) {
    double work = work_per_try_;
    while (choice_.above() > 0 && work < kMostWork && flip_best(work)) {
    }
    keep_what_may_be_kept();
  }

  const std::vector<bool>& recomputed() const { return choice_.recomputed(); }

 private:
  static Bytes peak_when_kept(const LiveEstimate& estimate) {
    return estimate.peak(std::vector<bool>(estimate.saved().size(), false));
  }

  bool flip_best(double& work) {
    double best = 0;
    size_t which = saved_.size();
    for (size_t a = 0; a < saved_.size(); ++a) {
      if (!saved_[a].can_be_recomputed) continue;
      const double after = choice_.above_if_flipped(a);
      work += work_per_try_;
      // Going back to kept costs no time, so such flips come first if they help.
      const double seconds = recomputed()[a] ? kNoSeconds : std::max(saved_[a].seconds, kNoSeconds);
      const double gain = (choice_.above() - after) / seconds;
      if (after >= choice_.above() || gain <= best) continue;
      best = gain;
      which = a;
    }
    if (which == saved_.size()) return false;
    choice_.flip(which);
    return true;
  }

  // Values that were flipped early may no longer need to be recomputed. Tries the most expensive ones first.
  void keep_what_may_be_kept() {
    std::vector<size_t> order;
    for (size_t a = 0; a < saved_.size(); ++a)
      if (recomputed()[a]) order.push_back(a);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return saved_[a].seconds > saved_[b].seconds; });
    const double allowed = choice_.above();
    for (size_t a : order)
      if (choice_.above_if_flipped(a) <= allowed) choice_.flip(a);
  }

  const std::vector<SavedActivation>& saved_;
  double work_per_try_;
  LiveChoice choice_;
};

}  // namespace

Rewritten recompute_costly(const Graph& graph, const Device& device, double share) {
  RecomputeChoice choice = cheap_choice(graph);
  const LiveEstimate estimate(graph, choice, device);
  const Flipper flipper(estimate, graph.nodes.size(), share);
  for (size_t a = 0; a < estimate.saved().size(); ++a) {
    if (!flipper.recomputed()[a]) continue;
    const SavedActivation& saved = estimate.saved()[a];
    choice.recomputed[static_cast<size_t>(saved.value)] = true;
    choice.shared[static_cast<size_t>(graph.value(saved.value).producer)] = true;
    for (NodeId id : saved.clones)
      if (op_def(graph.node(id).op).recompute == Recompute::kCostly) choice.shared[static_cast<size_t>(id)] = true;
  }
  return recompute(graph, choice);
}

struct ReachOfRecompute::State {
  State(Graph whole, const Device& device)
      : graph(std::move(whole)),
        choice(cheap_choice(graph)),
        estimate(graph, choice, device),
        peak(estimate.peak(std::vector<bool>(estimate.saved().size(), false))) {}

  Graph graph;
  RecomputeChoice choice;
  LiveEstimate estimate;
  Bytes peak;  // at the last share for which reaches() returned true
};

ReachOfRecompute::ReachOfRecompute(Graph graph, const Device& device)
    : state_(std::make_unique<State>(std::move(graph), device)) {}
ReachOfRecompute::ReachOfRecompute(ReachOfRecompute&&) noexcept = default;
ReachOfRecompute::~ReachOfRecompute() = default;

bool ReachOfRecompute::reaches(double share) {
  const LiveEstimate& estimate = state_->estimate;
  const Bytes next = estimate.peak(Flipper(estimate, state_->graph.nodes.size(), share).recomputed());
  if (static_cast<double>(next) > kWorthALevel * static_cast<double>(state_->peak)) return false;
  state_->peak = next;
  return true;
}

}  // namespace plimsoll::engine
