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

#include "levers/live_estimate.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

constexpr double kMostWork = 2e8;      // most nodes and saved activations to look at: about half a second
constexpr double kNoSeconds = 1e-9;    // replaces a predicted cost of 0, so that ratios stay finite
constexpr double kWorthALevel = 0.97;  // a new level must shrink the live set at least to this share of the last one

class Flipper {
 public:
  Flipper(const LiveEstimate& estimate, size_t nodes, double share)
      : estimate_(estimate),
        recomputed_(estimate.saved().size(), false),
        work_per_load_(static_cast<double>(nodes + recomputed_.size())),
        cap_(static_cast<Bytes>(share * static_cast<double>(estimate.load(recomputed_, 0).peak))) {
    above_ = above();
    while (above_ > 0 && work_ < kMostWork && flip_best()) {
    }
    keep_what_may_be_kept();
  }

  const std::vector<bool>& recomputed() const { return recomputed_; }

 private:
  double above() {
    work_ += work_per_load_;
    return estimate_.load(recomputed_, cap_).above_cap;
  }

  double above_if_flipped(size_t a) {
    recomputed_[a] = !recomputed_[a];
    const double result = above();
    recomputed_[a] = !recomputed_[a];
    return result;
  }

  bool flip_best() {
    double best = 0, best_above = 0;
    size_t which = recomputed_.size();
    for (size_t a = 0; a < recomputed_.size(); ++a) {
      const SavedActivation& saved = estimate_.saved()[a];
      if (!saved.can_be_recomputed) continue;
      const double after = above_if_flipped(a);
      // Going back to kept costs no time, so such flips come first if they help.
      const double gain = (above_ - after) / (recomputed_[a] ? kNoSeconds : std::max(saved.seconds, kNoSeconds));
      if (after >= above_ || gain <= best) continue;
      best = gain;
      best_above = after;
      which = a;
    }
    if (which == recomputed_.size()) return false;
    recomputed_[which] = !recomputed_[which];
    above_ = best_above;
    return true;
  }

  // Values that were flipped early may no longer need to be recomputed. Tries the most expensive ones first.
  void keep_what_may_be_kept() {
    std::vector<size_t> order;
    for (size_t a = 0; a < recomputed_.size(); ++a)
      if (recomputed_[a]) order.push_back(a);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return estimate_.saved()[a].seconds > estimate_.saved()[b].seconds; });
    for (size_t a : order)
      if (above_if_flipped(a) <= above_) recomputed_[a] = false;
  }

  const LiveEstimate& estimate_;
  std::vector<bool> recomputed_;
  double work_per_load_;
  Bytes cap_;
  double above_ = 0;
  double work_ = 0;
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
        peak(estimate.load(std::vector<bool>(estimate.saved().size(), false), 0).peak) {}

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
  const Bytes next = estimate.load(Flipper(estimate, state_->graph.nodes.size(), share).recomputed(), 0).peak;
  if (static_cast<double>(next) > kWorthALevel * static_cast<double>(state_->peak)) return false;
  state_->peak = next;
  return true;
}

}  // namespace plimsoll::engine
