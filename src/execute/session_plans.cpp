// The plans of a session: bound when the session is created; added, switched or replaced between two windows.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <limits>

#include "device/process_memory.h"
#include "execute/session.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostPokes = 64;

}  // namespace

Session::Session(const Backend& backend, const GraphOptions& options, Bytes held_before, bool enforces_overhead)
    : backend_(backend), options_(options), held_before_(held_before), enforces_overhead_(enforces_overhead) {
  pokes_.reserve(kMostPokes);
}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before,
                                                 bool enforces_overhead) {
  PLIMSOLL_TRY(validate(plan));
  PLIMSOLL_TRY(backend.check_room(plan.peak_bytes()));  // other processes may have taken memory since the plan was made
  std::unique_ptr<Session> session(new Session(backend, options, held_before, enforces_overhead));
  PLIMSOLL_ASSIGN(session->arena_, Arena::reserve(backend, plan));
  PLIMSOLL_TRY(session->bind(model, std::move(plan)));
  PLIMSOLL_TRY(session->open_queues());
  // Release the memory of planning before the arena is used.
  malloc_trim(0);
  Memory& memory = session->arena_->memory();
  if (memory.host_visible())
    session->bound_->run_each_kind();
  else
    PLIMSOLL_TRY(memory.fill(0, std::byte{0}, memory.bytes()));
  PLIMSOLL_TRY(session->record(*session->bound_));
  PLIMSOLL_TRY(memory.fill(0, std::byte{0}, session->arena_->persistent_bytes()));  // a new arena has zeros
  PLIMSOLL_TRY(session->check_overhead());
  return session;
}

// Added plans do not run before their first step, because persistent values would change. On the host, the dry run of
// the first plan has shown the overhead of running, and the overhead of binding is measured.
Status Session::record(BoundPlan& plan) {
  if (arena_->memory().host_visible()) return {};
  PLIMSOLL_ASSIGN(const HostView kept, arena_->look());
  PLIMSOLL_TRY(plan.record());
  return arena_->memory().write(0, kept.data(), arena_->persistent_bytes());
}

Status Session::check_overhead() {
  overhead_measured_ = std::max<Bytes>(overhead_now() - held_before_, 0);
  arena_->memory().trim(arena_->persistent_bytes());  // each phase commits its memory when it runs
  BoundCounts counts;
  for (const auto& bound : plans_) counts += bound->counts();
  const Bytes bound = plans_.size() == 1 ? plan().overhead_bytes : device().overhead_bound(counts);
  if (overhead_measured_ <= bound + held_by_tools()) return {};
  // Inside another program's process its other threads allocate memory meanwhile, which cannot be told from ours.
  if (!enforces_overhead_ && !device().info().own_memory) return {};
  return fail(Error{ErrorCode::kOverheadAboveBound,
                    fmt::format("the process holds {} outside its arena, but the published bound is {}",
                                format_bytes(overhead_measured_), format_bytes(bound)),
                    {"nothing was trained, because the process might exceed the budget"},
                    {"report this with the output of 'plimsoll doctor'"}});
}

Bytes Session::overhead_now() const {
  return backend_.held_bytes() - arena_held_bytes() - (feed_ ? feed_->device_bytes() : 0);
}

Status Session::bind(const Model& model, Plan plan) {
  PLIMSOLL_ASSIGN(auto bound, BoundPlan::bind(model, std::move(plan), backend_, *arena_, options_));
  plans_.push_back(std::move(bound));
  take(*plans_.back());
  return {};
}

Status Session::bind_again() {
  for (auto& bound : plans_) {
    const bool in_use = bound.get() == bound_;
    PLIMSOLL_ASSIGN(auto again, BoundPlan::bind(bound->model(), bound->plan(), backend_, *arena_, options_));
    bound = std::move(again);
    if (in_use) take(*bound);
    PLIMSOLL_TRY(record(*bound));
  }
  return {};
}

// Looks up all slots that steps need, so that steps do no lookups by name.
void Session::take(BoundPlan& plan) {
  bound_ = &plan;
  arena_->use(plan.plan());
  for (size_t i = 0; i < kStepScalars; ++i)
    scalars_[i] = arena_->slot(std::string(name_of(static_cast<StepScalar>(i))));
  loss_factors_.clear();
  for (const Port& port : model().outputs())
    loss_factors_.push_back(port.has_loss ? arena_->slot(loss_factor_value(port.name)) : nullptr);
  tally_slots_.clear();
  for (const Tally& tally : tallies()) tally_slots_.push_back(arena_->slot(tally_value(tally.name)));
  weight_sums_.assign(model().outputs().size(), 0);
  size_t numbers = 0;
  for (const Tally& tally : tallies()) numbers += tally.size();
  for (Sums& sums : sums_) sums = {std::vector<double>(numbers, 0), weight_sums_};
  if (!options_.data.sample_weights || options_.precision.variables != DType::kFloat64) return;
  staged_weights_.resize(model().outputs().size());
  for (auto& staged : staged_weights_) staged.resize(std::max(staged.size(), static_cast<size_t>(plan.most_samples())));
}

// Opens the feed and the readbacks for a device with its own memory.
Status Session::open_queues() {
  const Memory& memory = arena_->memory();
  if (memory.host_visible()) return {};
  Bytes batch = 0;
  for (const auto& bound : plans_) {
    batch = std::max(batch, bound->batch_bytes());
    if (bound->batch_bytes() - static_cast<Bytes>(bound->most_arrays()) * kAlignment > bound->plan().data_bytes)
      return fail(ErrorCode::kBadPlan,
                  fmt::format("the plan has {} for a staged batch, but it needs {}",
                              format_bytes(bound->plan().data_bytes), format_bytes(bound->batch_bytes())));
  }
  feed_.reset();
  readback_.reset();
  skips_.reset();
  requested_ = collected_ = 0;
  skipped_.reset();
  PLIMSOLL_ASSIGN(feed_, backend_.open_feed(batch));
  if (tally_slots_.empty()) return {};
  Bytes begin = std::numeric_limits<Bytes>::max(), end = 0;
  for (const PersistentSlot* slot : tally_slots_) {
    begin = std::min(begin, slot->offset);
    end = std::max(end, slot->offset + slot->type.bytes());
  }
  tally_begin_ = begin;
  PLIMSOLL_ASSIGN(readback_, backend_.open_readback(memory, begin, end - begin));
  const PersistentSlot* const skips = arena_->slot(kSkippedUpdates);
  if (scalars_[static_cast<size_t>(StepScalar::kKnownSkips)] == nullptr || skips == nullptr) return {};
  PLIMSOLL_ASSIGN(skips_, backend_.open_readback(memory, skips->offset, skips->type.bytes()));
  return {};
}

Status Session::check_idle() const {
  PLIMSOLL_TRY(backend_.finish());
  if (readback_ == nullptr || requested_ == collected_) return {};
  return fail(ErrorCode::kInternal, "plans can change only between windows, after all windows were collected");
}

Status Session::use(size_t plan) {
  if (plan >= plans_.size())
    return fail(ErrorCode::kInternal,
                fmt::format("there is no plan {}; the session has {} plans", plan, plans_.size()));
  if (bound_ == plans_[plan].get()) return {};
  PLIMSOLL_TRY(check_idle());
  take(*plans_[plan]);
  return {};
}

Bytes Session::peak_with(const Plan& plan) const {
  BoundCounts counts = counts_of(plan.phases);
  Bytes arena = plan.arena_bytes, data = plan.data_bytes;
  for (const auto& bound : plans_) {
    counts += bound->counts();
    arena = std::max(arena, bound->plan().arena_bytes);
    data = std::max(data, bound->plan().data_bytes);
  }
  return arena + data + device().overhead_bound(counts);
}

Session::PlansBefore Session::plans_before() const {
  PlansBefore before{{}, 0, arena_->kept()};
  for (const auto& bound : plans_) {
    if (bound.get() == bound_) before.in_use = before.plans.size();
    before.plans.emplace_back(&bound->model(), bound->plan());
  }
  return before;
}

Status Session::bind_all(std::vector<std::pair<const Model*, Plan>> plans) {
  plans_.clear();  // kernels go before the memory they are bound to
  for (size_t i = 0; i < plans.size(); ++i) PLIMSOLL_TRY(arena_->make_room(plans[i].second, i == 0));
  for (auto& [model, plan] : plans) {
    PLIMSOLL_TRY(bind(*model, std::move(plan)));
    PLIMSOLL_TRY(record(*bound_));
  }
  return open_queues();
}

Status Session::restore(PlansBefore before) {
  arena_->keep_only(std::move(before.kept));
  PLIMSOLL_TRY(bind_all(std::move(before.plans)));
  take(*plans_[before.in_use]);
  return check_overhead();
}

Result<size_t> Session::add_plan(const Model& model, Plan plan) {
  PLIMSOLL_TRY(check_idle());
  PLIMSOLL_TRY(validate(plan));
  PLIMSOLL_TRY(arena_->check(plan));
  PLIMSOLL_TRY(backend_.check_room(peak_with(plan)));
  PlansBefore before = plans_before();
  const auto add = [&]() -> Status {
    PLIMSOLL_ASSIGN(const bool moved, arena_->make_room(plan, false));
    if (moved) PLIMSOLL_TRY(bind_again());
    PLIMSOLL_TRY(bind(model, std::move(plan)));
    PLIMSOLL_TRY(record(*bound_));
    PLIMSOLL_TRY(open_queues());
    return check_overhead();
  };
  if (Status added = add(); !added) {
    PLIMSOLL_TRY(restore(std::move(before)));
    return fail(std::move(added).error());
  }
  take(*plans_[before.in_use]);
  return plans_.size() - 1;
}

Status Session::change_plan(const Model& model, Plan plan) {
  PLIMSOLL_TRY(check_idle());
  PLIMSOLL_TRY(validate(plan));
  PLIMSOLL_TRY(arena_->check(plan));
  PlansBefore before = plans_before();
  feed_.reset();
  arena_peak_ = 0;
  std::vector<std::pair<const Model*, Plan>> after;
  after.emplace_back(&model, std::move(plan));
  Status changed = bind_all(std::move(after));
  if (changed) changed = check_overhead();
  if (!changed) PLIMSOLL_TRY(restore(std::move(before)));
  return changed;
}

}  // namespace plimsoll::engine
