// Tries micro-batches from the whole batch down; for each, the settings of recompute from the fastest on; then offload
// for those that do not fit. The candidates do not depend on the budget. Recompute and offload have many settings, so a
// candidate is compiled only if its seconds, which are known before, are not more than those of a plan that fits, and
// if its live set is not larger than the budget; or for `find_least`, which must not change the selection.
#include "search/enumerate.h"

#include <algorithm>
#include <memory>

#include "levers/chunk_logits.h"
#include "levers/recompute_steps.h"
#include "levers/split_batch.h"
#include "plan/recompute.h"
#include "search/compile.h"
#include "search/micro_batch.h"

namespace plimsoll::engine {
namespace {

// Returns whether a loop over time is trained: the weights of its cell include one for the state.
bool has_loops(const Model& model) {
  return std::any_of(model.weights().begin(), model.weights().end(),
                     [](const Weight& weight) { return weight.name.ends_with("/recurrent_kernel"); });
}

// Returns whether the model has a loss over a large vocabulary.
bool has_vocabulary(const Model& model) {
  return std::any_of(model.outputs().begin(), model.outputs().end(), [](const Port& port) {
    return port.has_loss && port.sample.rank() > 0 && port.sample.back() >= kLeastVocabulary;
  });
}

// Returns all combinations of settings of the levers that have no loop below. Each combination is tried with everything
// that the loops try.
std::vector<LeverSettings> settings_of_other_levers(const SearchRequest& request) {
  std::vector<LeverSettings> list = {{}};
  for (const Lever& lever : *request.levers) {
    const bool has_a_loop =
        lever.name == kMicroBatch || lever.name == kRecompute || lever.name == kOffload || lever.name == kSplit;
    if (lever.name == kRecomputeSteps && !has_loops(*request.model)) continue;
    if (lever.name == kChunkLogits && (request.batch == 0 || !has_vocabulary(*request.model))) continue;
    if (has_a_loop || !lever.is_searched() || lever.stage == LeverStage::kData || request.forbids(lever.name)) continue;
    const size_t before = list.size();
    for (size_t i = 0; i < before; ++i)
      for (const int64_t value : lever.values) list.push_back(list[i].with(lever.name, value));
  }
  return list;
}

// A candidate to try with offload.
struct OffloadTrial {
  Compiler* compiler;
  LeverSettings settings;
  double least_seconds;  // lower bound for a step: the step without copies, or the copies alone, whichever is longer
  bool selectable;       // false: only the smallest plan is sought
};

class Enumeration {
 public:
  Enumeration(const SearchRequest& request, LeverSettings others, bool find_least, Selection& selection)
      : request_(request), others_(std::move(others)), find_least_(find_least), selection_(selection) {}

  Status run() {
    std::vector<int64_t> list = micro_batches(request_, Cuts::kFourfold);
    smallest_ = list.back();
    for (size_t i = 0; i < list.size(); ++i) {
      PLIMSOLL_ASSIGN(Compiler made, Compiler::create(request_, cut_into(request_, list[i], others_)));
      auto compiler = std::make_unique<Compiler>(std::move(made));
      if (i == 0) list = micro_batches(request_, cuts_for(compiler->nodes()));
      PLIMSOLL_TRY(try_micro_batch(list[i], *compiler));
      // Only a device with its own memory offloads. Its budget does not limit the memory in which plans are made.
      if (!trials_.empty() && trials_.back().compiler == compiler.get()) compilers_.push_back(std::move(compiler));
    }
    for (const OffloadTrial& trial : trials_) PLIMSOLL_TRY(try_offload(trial));
    trials_.clear();
    compilers_.clear();
    PLIMSOLL_TRY(seek_least_between());
    return try_pieces();
  }

 private:
  // Tries the batch in pieces inside one phase, where normalisation forbids micro-batches. Pieces multiply the nodes,
  // so planning takes long, and only together with recompute do they save much. So they are tried only where nothing
  // else fits, or where a plan that fits takes a tenth longer than the whole batch, and they count only if they take as
  // long themselves: then a larger budget is never slower.
  Status try_pieces() {
    if (!may_cut_into_pieces()) return {};
    const double least = kWorthPieces * whole_seconds_;
    if (!selection_.may_select(least)) return {};
    std::vector<int64_t> counts = counts_of_pieces(whole_nodes_);
    if (!selection_.found() && !counts.empty()) {
      // The most pieces need the least memory: if they do not fit, no others do.
      PLIMSOLL_TRY(try_in_pieces(counts.back(), least));
      if (!selection_.found()) return {};
      counts.pop_back();
    }
    for (const int64_t pieces : counts) {
      if (!selection_.may_select(least)) break;
      PLIMSOLL_TRY(try_in_pieces(pieces, least));
    }
    return {};
  }

  // Ascending. The limits do not depend on the budget, so neither does the smallest plan.
  std::vector<int64_t> counts_of_pieces(int64_t nodes) const {
    std::vector<int64_t> counts;
    for (const int64_t pieces : kSplitValues) {
      const int64_t nodes_in_pieces = nodes * (pieces + 1);  // one more for merging what the pieces sum
      if (pieces > request_.batch || nodes_in_pieces > kMostNodesInPieces) break;
      if (request_.device->planning_bound(nodes_in_pieces) > selection_.least() / kPlanningShare) break;
      counts.push_back(pieces);
    }
    return counts;
  }

  Status try_in_pieces(int64_t pieces, double least_seconds) {
    others_.set(kSplit, pieces);
    PLIMSOLL_ASSIGN(Compiler compiler, Compiler::create(request_, cut_into(request_, request_.piece(), others_)));
    if (compiler.nodes() > whole_nodes_) {  // else the graph cannot be cut
      least_selectable_ = least_seconds;
      PLIMSOLL_TRY(try_micro_batch(request_.piece(), compiler));
    }
    others_.set(kSplit, 0);
    least_selectable_ = 0;
    return {};
  }

  bool may_cut_into_pieces() const {
    return request_.batch > 1 && request_.accumulation_steps == 1 && request_.model->couples_samples() &&
           !request_.per_micro_batch_norm && !request_.forbids(kSplit) && !request_.forbids(kRecompute);
  }

  static constexpr double kWorthPieces = 1.1;
  static constexpr int64_t kMostNodesInPieces = 6000;
  static constexpr Bytes kPlanningShare = 8;  // of the smallest plan, the part that may be held to plan pieces

  // A plan can be selected only if its kernels take at least least_selectable_.
  void consider(Plan plan, double least_seconds = 0) {
    if (plan.compute_seconds >= least_selectable_)
      selection_.consider(std::move(plan), true, least_seconds);
    else
      selection_.record(plan, least_seconds);
  }

  // Each size of micro-batches is lowered once, so fewer are tried for large graphs.
  static Cuts cuts_for(int64_t nodes) {
    return nodes < 1500 ? Cuts::kFine : nodes < 3000 ? Cuts::kTwofold : Cuts::kFourfold;
  }
  // Offload is also tried beside recompute that costs a tenth of the step.
  static constexpr double kMuchRecompute = 1.1;

  // The smallest plan is sought at the whole batch and at the smallest micro-batch, and offload is tried only there: in
  // between, smaller micro-batches save the same bytes in less time.
  bool at_an_end(int64_t micro) const { return micro == request_.piece() || micro == smallest_ || request_.batch == 0; }

  bool can_offload(int64_t micro) const {
    return request_.batch > 0 && request_.device->host_bytes_per_second() > 0 && !request_.forbids(kOffload) &&
           at_an_end(micro);
  }

  Status try_micro_batch(int64_t micro, Compiler& compiler) {
    const bool in_pieces = least_selectable_ > 0;
    const LeverSettings settings = cut_into(request_, micro, others_);
    PLIMSOLL_ASSIGN(std::optional<Plan> whole, compiler.compile(settings, false));
    const double seconds = whole->compute_seconds;
    if (micro == request_.piece() && !in_pieces) {
      whole_seconds_ = seconds;
      whole_nodes_ = compiler.nodes();
    }
    const Bytes peak = whole->peak_bytes(), beside = peak - whole->arena_bytes;
    consider(std::move(*whole));
    add_trial(micro, compiler, settings, seconds, peak, request_.budget > 0 && peak > request_.budget);
    const bool seeks_least = find_least_ && at_an_end(micro) && (!in_pieces || !selection_.found());
    const bool recomputes = request_.batch > 0 && !request_.forbids(kRecompute);
    if (recomputes && find_least_ && !seeks_least && !in_pieces)
      floors_.emplace_back(micro, compiler.least_peak(compiler.least_live()));
    if (!recomputes || (!seeks_least && !selection_.may_select(compiler.least_seconds()))) return {};

    std::vector<RecomputePoint> points = compiler.recompute_points();
    if (points.empty()) return {};
    for (const RecomputePoint& point : points)
      selection_.outline(
          {settings.with(kRecompute, point.percent), compiler.least_arena(point.live) + beside, point.compute_seconds});
    const RecomputePoint deepest = points.back();
    const auto much = std::find_if(points.begin(), points.end(), [&](const RecomputePoint& point) {
      return point.compute_seconds > kMuchRecompute * seconds;
    });
    if (much != points.end() && much->percent != deepest.percent)
      add_trial(micro, compiler, settings.with(kRecompute, much->percent), much->compute_seconds,
                compiler.least_peak(much->live), request_.budget > 0);
    add_trial(micro, compiler, settings.with(kRecompute, deepest.percent), deepest.compute_seconds,
              compiler.least_peak(deepest.live), request_.budget > 0);

    std::stable_sort(points.begin(), points.end(), [](const RecomputePoint& a, const RecomputePoint& b) {
      return a.compute_seconds < b.compute_seconds;
    });
    for (const RecomputePoint& point : points) {
      if (!selection_.may_select(point.compute_seconds)) break;
      const bool is_last = point.percent == deepest.percent;  // if it fits depends on its plan alone
      if (request_.budget > 0 && !is_last && compiler.least_peak(point.live) > request_.budget) continue;
      PLIMSOLL_TRY(try_recompute(compiler, settings, point.percent, true));
    }
    if (seeks_least) PLIMSOLL_TRY(seek_least(compiler, settings, points));
    return {};
  }

  // Packs the points whose live sets leave room for a plan smaller than all others, from the smallest live set on.
  Status seek_least(Compiler& compiler, const LeverSettings& settings, std::vector<RecomputePoint>& points) {
    std::stable_sort(points.begin(), points.end(),
                     [](const RecomputePoint& a, const RecomputePoint& b) { return a.live < b.live; });
    for (const RecomputePoint& point : points)
      if (selection_.least() == 0 || compiler.least_peak(point.live) < selection_.least())
        PLIMSOLL_TRY(try_recompute(compiler, settings, point.percent, false));
    return {};
  }

  // In between, a smaller micro-batch mostly needs less. Those that may need less than the smallest plan are looked at.
  Status seek_least_between() {
    for (const auto& [micro, floor] : floors_) {
      if (floor >= selection_.least()) continue;
      const LeverSettings settings = cut_into(request_, micro, others_);
      PLIMSOLL_ASSIGN(Compiler compiler, Compiler::create(request_, settings));
      std::vector<RecomputePoint> points = compiler.recompute_points();
      PLIMSOLL_TRY(seek_least(compiler, settings, points));
    }
    return {};
  }

  // Whether a plan with this outline is worth packing: it may be selected, or be the smallest.
  bool may_count(const Compiler::Outline& outline, bool selectable) const {
    const bool fits = request_.budget == 0 || outline.peak_bytes <= request_.budget;
    return (selectable && fits && selection_.may_select(outline.compute_seconds)) ||
           (find_least_ && (selection_.least() == 0 || outline.peak_bytes < selection_.least()));
  }

  Status try_recompute(Compiler& compiler, const LeverSettings& settings, int64_t percent, bool selectable) {
    const auto outline = compiler.outline(settings.with(kRecompute, percent));
    if (!outline || !may_count(*outline, selectable)) return {};
    PLIMSOLL_ASSIGN(Plan plan, compiler.pack());
    const double least = compiler.least_seconds_for(plan);
    if (selectable)
      consider(std::move(plan), least);
    else
      selection_.consider(std::move(plan), false, least);
    return {};
  }

  // Plans that fit need no offload: it would only make them slower. Whether a plan fits is known only for plans that
  // were packed, so others are `selectable` too.
  void add_trial(int64_t micro, Compiler& compiler, const LeverSettings& settings, double seconds, Bytes peak,
                 bool selectable) {
    const bool too_large = request_.budget > 0 && peak > request_.budget;
    if (!can_offload(micro) || (!selectable && !find_least_)) return;
    const int64_t runs = batch_of(request_.batch, settings).accumulation_steps();
    const double copies = too_large ? static_cast<double>(peak - request_.budget) * static_cast<double>(runs) /
                                          request_.device->host_bytes_per_second()
                                    : 0;
    trials_.push_back({&compiler, settings, std::max(seconds, copies), selectable});
  }

  // Offloads more and more, until that takes too long or cannot be reached. Then, for the smallest plan, tries what was
  // left out from the smallest live set on: what is packed first is mostly smaller than all others can be.
  Status try_offload(const OffloadTrial& trial) {
    bool selectable = trial.selectable && selection_.may_select(trial.least_seconds);
    if (!selectable && !find_least_) return {};
    const std::vector<Bytes> least_peaks = trial.compiler->least_peaks_offloaded(trial.settings);
    std::vector<size_t> left_out;
    for (size_t i = 0; i < least_peaks.size(); ++i) {
      selectable = selectable && selection_.may_select(trial.compiler->seconds_of_copies(kOffloadPercents[i]));
      if (selectable)
        PLIMSOLL_TRY(try_offload(trial, kOffloadPercents[i], least_peaks[i], true));
      else if (find_least_)
        left_out.push_back(i);
    }
    for (auto i = left_out.rbegin(); i != left_out.rend(); ++i)
      PLIMSOLL_TRY(try_offload(trial, kOffloadPercents[*i], least_peaks[*i], false));
    return {};
  }

  Status try_offload(const OffloadTrial& trial, int64_t percent, Bytes least_peak, bool selectable) {
    if (!may_count({0, least_peak}, selectable)) return {};
    const auto outline = trial.compiler->outline(trial.settings.with(kOffload, percent));
    if (!outline || !may_count(*outline, selectable)) return {};
    PLIMSOLL_ASSIGN(Plan plan, trial.compiler->pack());
    if (selectable || !selection_.found()) PLIMSOLL_TRY(price_recompute(trial));
    selection_.consider(std::move(plan), selectable);
    return {};
  }

  // Makes the plan without offload, so that the price of offload alone is known.
  Status price_recompute(const OffloadTrial& trial) {
    if (selection_.has(trial.settings) || !trial.compiler->outline(trial.settings)) return {};
    PLIMSOLL_ASSIGN(const Plan plan, trial.compiler->pack());
    selection_.record(plan);
    return {};
  }

  const SearchRequest& request_;
  LeverSettings others_;
  const bool find_least_;
  Selection& selection_;
  int64_t smallest_ = 0;  // the smallest micro-batch
  double whole_seconds_ = 0, least_selectable_ = 0;
  int64_t whole_nodes_ = 0;
  std::vector<OffloadTrial> trials_;
  std::vector<std::unique_ptr<Compiler>> compilers_;  // of the trials
  std::vector<std::pair<int64_t, Bytes>> floors_;     // sizes of micro-batches with a lower bound on their peaks
};

}  // namespace

Status try_candidates(const SearchRequest& request, bool find_least, Selection& selection) {
  for (const LeverSettings& others : settings_of_other_levers(request))
    PLIMSOLL_TRY(Enumeration(request, others, find_least, selection).run());
  return {};
}

}  // namespace plimsoll::engine
