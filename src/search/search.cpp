#include "search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "search/build.h"
#include "search/suits.h"

namespace plimsoll {
namespace {

// ceil(batch / k) for k = 1, 2, 4, ...: each cut of the window that halves what a micro-batch needs.
std::vector<int64_t> micro_batches(const SearchRequest& request) {
  if (request.batch == 0) return {0};
  const int64_t piece = request.piece();
  if (request.micro_batch) return {std::min(*request.micro_batch, piece)};
  std::vector<int64_t> list = {piece};
  const bool exact_norm = request.model->couples_samples() && !request.per_micro_batch_norm;
  if (request.forbidden.count("micro-batch") != 0 || exact_norm) return list;
  for (int64_t k = 2; list.back() > 1; k *= 2) {
    const int64_t micro = (piece + k - 1) / k;
    if (micro != list.back()) list.push_back(micro);
  }
  return list;
}

std::vector<std::string> layer_list(const std::vector<std::string>& names) {
  std::vector<std::string> list(names.begin(), names.begin() + std::min<long>(3, static_cast<long>(names.size())));
  if (names.size() > list.size()) list.push_back(fmt::format("{} others", names.size() - list.size()));
  return list;
}

Status check_micro_batch(const SearchRequest& request) {
  if (!request.micro_batch || *request.micro_batch * request.accumulation_steps >= request.batch || request.batch == 0)
    return {};
  if (!request.model->couples_samples() || request.per_micro_batch_norm) return {};
  return fail(
      Error{ErrorCode::kBatchNormForbidsMicroBatch,
            fmt::format("--micro-batch {} would change what this model's normalisation computes", *request.micro_batch),
            {fmt::format("in training it takes statistics over the whole batch of {}: {}", request.batch,
                         fmt::join(layer_list(request.model->coupling_layers()), ", "))},
            {fmt::format("--batchnorm per-micro-batch   allows it, changes training: statistics per {}",
                         *request.micro_batch),
             "leave --micro-batch out    the whole batch at once, exact"}});
}

bool better(const Plan& a, const Plan& b) {
  return a.step_seconds != b.step_seconds ? a.step_seconds < b.step_seconds : a.peak_bytes() < b.peak_bytes();
}

// Costly nodes are recomputed for the whole batch, where finer pieces may not be allowed, and for the finest piece,
// where there is nothing else left: between them finer pieces take less time for the same bytes.
Result<RecomputeLevels> levels_to_try(const SearchRequest& request, int64_t micro, const std::vector<int64_t>& pieces) {
  if (request.batch == 0 || request.forbidden.count("recompute") != 0) return RecomputeLevels::only_zero();
  return RecomputeLevels::create(request, micro, micro == pieces.front() || micro == pieces.back());
}

// Offload is tried for the whole batch and for the finest piece, and there with nothing recomputed, what is cheap, and
// as much as can be: between them it would only mix what these are.
bool may_offload(const SearchRequest& request, int64_t micro, const std::vector<int64_t>& pieces) {
  return request.batch > 0 && request.device->host_bytes_per_second() > 0 && request.forbidden.count("offload") == 0 &&
         (micro == pieces.front() || micro == pieces.back());
}

// What was found so far: the fastest candidate that fits among those that may be selected, and the smallest of all.
class Best {
 public:
  Best(const SearchRequest& request, SearchResult& result) : request_(request), result_(result) {}

  bool fits(const Plan& plan) const { return request_.budget == 0 || plan.peak_bytes() <= request_.budget; }

  void consider(Plan plan, int recompute, bool selectable) {
    if (request_.host_budget > 0 && plan.bytes_in(Space::kHost) > request_.host_budget) return;
    result_.candidates.push_back({plan.batch.micro, recompute, plan.bytes_in(Space::kHost), plan.arena_bytes,
                                  plan.peak_bytes(), plan.step_seconds});
    // What the budget is has no say in what the least is: reading ahead is given up first.
    const Bytes least =
        std::max(plan.arena_bytes + plan.overhead_bytes + least_data_bytes(request_, plan.phases), plan.planning_bytes);
    least_ = result_.candidates.size() == 1 ? least : std::min(least_, least);
    const bool wins = selectable && fits(plan) && (!found_ || better(plan, *held_));
    const bool smallest = !found_ && (!held_ || plan.peak_bytes() < held_->peak_bytes());
    if (!wins && !smallest) return;
    found_ = found_ || wins;
    held_ = std::move(plan), held_at_ = result_.candidates.size() - 1;
  }

  // What the copies alone would take of all that does not fit.
  double seconds_away(const Plan& plan) const {
    return static_cast<double>(plan.peak_bytes() - request_.budget) *
           static_cast<double>(plan.batch.accumulation_steps()) / request_.device->host_bytes_per_second();
  }

  bool found() const { return found_; }
  // Whether a plan that takes at least so long could still be the one.
  bool may_win(double seconds) const { return !found_ || seconds <= held_->step_seconds; }
  Bytes least() const { return least_; }
  const Candidate& chosen() const { return result_.candidates[held_at_]; }
  Plan take() { return std::move(*held_); }

 private:
  const SearchRequest& request_;
  SearchResult& result_;
  bool found_ = false;        // something that fits
  std::optional<Plan> held_;  // the fastest of what fits, or the smallest while nothing does
  size_t held_at_ = 0;        // among the candidates
  Bytes least_ = 0;
};

// A candidate that does not fit, but might with some of its values in the host's memory.
struct Offloadable {
  int64_t micro;
  int recompute;
  bool selectable;
  double least_seconds;  // of a step: without the copies, or the copies alone
};

// The levels of one piece, from the least on; what does not fit is noted where offload may help.
Status look_at_levels(const SearchRequest& request, int64_t micro, const std::vector<int64_t>& pieces, bool all,
                      Best& best, std::vector<Offloadable>& offloadable) {
  PLIMSOLL_ASSIGN(RecomputeLevels levels, levels_to_try(request, micro, pieces));
  bool fitted = false;
  for (std::optional<int> level = 0; level;) {
    const int recompute = *level;
    const bool selectable = recompute <= 1 || !fitted;
    PLIMSOLL_ASSIGN(Plan plan, build_plan(request, micro, recompute));
    const bool fits = best.fits(plan);
    const bool may_help = may_offload(request, micro, pieces) && (!fits || all);
    const Offloadable away{micro, recompute, selectable && !fits,
                           may_help ? std::max(plan.step_seconds, best.seconds_away(plan)) : 0};
    best.consider(std::move(plan), recompute, selectable);
    fitted = fitted || fits;
    level = levels.after(recompute, !fitted || all);  // of what is costly the first that fits is enough
    if (may_help && (recompute <= 1 || !level)) offloadable.push_back(away);
  }
  return {};
}

// Recomputing what is costly and offload take time and give bytes, more of them more: where the same with less of them
// fits, or what fits is faster than they could be, they are looked at for the least only.
Status look_at_candidates(const SearchRequest& request, bool all, Best& best) {
  const std::vector<int64_t> pieces = micro_batches(request);
  std::vector<Offloadable> offloadable;
  for (int64_t micro : pieces) PLIMSOLL_TRY(look_at_levels(request, micro, pieces, all, best, offloadable));
  for (const Offloadable& one : offloadable) {
    // Whoever looks for the least too must select the same.
    bool selectable = one.selectable && best.may_win(one.least_seconds);
    if (!selectable && !all) continue;
    const auto worth_it = [&](double copies) {
      selectable = selectable && best.may_win(copies);
      return selectable || all;
    };
    const auto take = [&](Plan plan) { best.consider(std::move(plan), one.recompute, selectable); };
    PLIMSOLL_TRY(build_plans(request, one.micro, one.recompute, kKept, worth_it, take));
  }
  return {};
}

// What each lever did, one after the other: the batch cut, values recomputed, values sent away. What stands between
// was looked at on the way to the chosen one.
void price_levers(const Candidate& chosen, SearchResult& result) {
  Bytes arena = result.unlevered_arena_bytes;
  double seconds = result.unlevered_seconds;
  const auto price = [&](const std::string& name, const Candidate& with) {
    const auto lever = std::find_if(result.plan.levers.begin(), result.plan.levers.end(),
                                    [&](const LeverUse& l) { return l.name == name; });
    if (lever == result.plan.levers.end()) return;
    lever->saves_bytes = std::exchange(arena, with.arena_bytes) - with.arena_bytes;
    lever->costs_seconds = with.seconds - std::exchange(seconds, with.seconds);
  };
  const auto kept = [&](int recompute) -> const Candidate& {  // with everything in the device's memory
    const auto found = std::find_if(result.candidates.begin(), result.candidates.end(), [&](const Candidate& c) {
      return c.micro == chosen.micro && c.recompute == recompute && c.host_bytes == 0;
    });
    return found == result.candidates.end() ? chosen : *found;
  };
  price("micro-batch", kept(0));
  price("recompute", kept(chosen.recompute));
  price("offload", chosen);
}

}  // namespace

Result<SearchResult> search(const SearchRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  // Without a scale, small gradients would become zero.
  assert(request.batch == 0 || request.graph.precision.compute != DType::kFloat16 ||
         request.model->optimizer().loss_scale);
  PLIMSOLL_TRY(check_micro_batch(request));
  SearchResult result;
  Best best(request, result);
  PLIMSOLL_TRY(look_at_candidates(request, request.find_least, best));
  if (!best.found() && !request.find_least) {  // then the least is what there is to say
    SearchRequest again = request;
    again.find_least = true;
    return search(again);
  }
  result.fits = best.found();
  if (request.find_least) result.least_bytes = best.least();
  result.plan = best.take();
  PLIMSOLL_TRY(fill_growth(request, result));
  price_levers(best.chosen(), result);
  PLIMSOLL_ASSIGN(result.plan.program, program_digest(request, result.plan.batch.micro));
  PLIMSOLL_TRY(validate(result.plan));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace plimsoll
