#include "execute/session.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>

#include "base/checked.h"
#include "device/process_memory.h"

namespace plimsoll {

struct Session::BoundPhase {
  const PhasePlan* plan = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::unique_ptr<Kernel> recorded;  // all of them as one, where the device can
  BatchBuffers slots;                // where a batch is written
  std::vector<Feed::Slot> feed;      // the same with bytes: inputs, targets, weights
  std::vector<TensorView> weights;   // the graph's sample weights
  std::vector<TensorView> predictions;
  Bytes end = 0;  // of the highest thing bound
};

namespace {

constexpr size_t kMostPokes = 64;

void set_floating(const TensorView& view, int64_t index, double value) {
  if (view.type.dtype == DType::kFloat64)
    view.as<double>()[index] = value;
  else
    view.as<float>()[index] = static_cast<float>(value);
}

template <typename T>
Poke poke_of(Bytes offset, std::span<const T> values) {
  Poke poke{offset, static_cast<Bytes>(values.size_bytes()), {}};
  assert(values.size_bytes() <= sizeof poke.data);
  std::memcpy(poke.data, values.data(), values.size_bytes());
  return poke;
}

Bytes end_of(const PersistentSlot& slot) {
  return slot.offset + slot.type.bytes();
}

}  // namespace

TensorView HostView::operator[](const std::string& name) const {
  const PersistentSlot* slot = plan_->slot(name);
  if (slot == nullptr) return {};
  return {slot->type, const_cast<std::byte*>(base_) + slot->offset};
}

Session::Session(const Model& model, Plan plan, Memories memories, const Backend& backend, const GraphOptions& options)
    : model_(model),
      backend_(backend),
      plan_(std::move(plan)),
      options_(options),
      memories_(std::move(memories)),
      memory_(memories_.at(Space::kDevice).get()) {
  pokes_.reserve(kMostPokes);
}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before) {
  PLIMSOLL_TRY(validate(plan));
  PLIMSOLL_TRY(backend.check_room(plan.peak_bytes()));  // somebody may have come since it was made
  Memories memories;
  for (const PlanMemory& wanted : plan.memories()) {
    PLIMSOLL_ASSIGN(memories[wanted.space], backend.reserve(wanted.space, wanted.bytes));
  }
  std::unique_ptr<Session> session(new Session(model, std::move(plan), std::move(memories), backend, options));
  if (Status bound = session->bind(); !bound) {
    PLIMSOLL_TRY(backend.finish());  // a device that failed makes every kernel look unsuitable
    return tl::make_unexpected(std::move(bound).error());
  }
  PLIMSOLL_TRY(session->open_queues());
  // What planning needed is given back before the arena is used.
  malloc_trim(0);
  PLIMSOLL_TRY(session->dry_run(held_before));
  return session;
}

namespace {

// Nodes of one kind run the same code, whatever their shapes.
std::string kind_of(const Node& node, const PlannedNode& planned) {
  std::string kind = node.op + " " + planned.kernel;
  if (node.body)
    for (const Node& member : node.body->nodes) kind += " " + member.op;
  return kind;
}

}  // namespace

// What each library object holds was taken when it was bound, and kernels whose scratch grows with their shapes get it
// from the arena. What running adds (code read in, stacks, a library's own state) comes with the kind of a node: of
// each kind the one that takes least time is run.
void Session::run_each_kind() {
  std::map<std::string, std::pair<BoundPhase*, size_t>> quickest;
  for (const auto& phase : phases_)
    for (size_t n = 0; n < phase->kernels.size(); ++n) {
      const PlannedNode& planned = phase->plan->nodes[n];
      const auto [at, added] = quickest.try_emplace(kind_of(phase->plan->graph.nodes[n], planned), phase.get(), n);
      auto& [other, m] = at->second;
      if (!added && planned.seconds < other->plan->nodes[m].seconds) at->second = {phase.get(), n};
    }
  for (const auto& [kind, where] : quickest) run_alone(*where.first, where.second);
  std::memset(memory_->at(0), 0, static_cast<size_t>(plan_.persistent_bytes));  // as a new arena is
}

// Recorded only after a run: libraries load their kernels at the first one, which a recording does not allow.
Status Session::record_phases() {
  PLIMSOLL_TRY(memory_->fill(0, std::byte{0}, memory_->bytes()));
  for (const auto& phase : phases_) {
    run(*phase);
    PLIMSOLL_TRY(backend_.finish());
    PLIMSOLL_ASSIGN(phase->recorded, backend_.record(phase->kernels));
    if (phase->recorded != nullptr) run(*phase);
    PLIMSOLL_TRY(backend_.finish());
  }
  arena_peak_ = 0;
  return memory_->fill(0, std::byte{0}, plan_.persistent_bytes);  // as a new arena is
}

Status Session::dry_run(Bytes held_before) {
  if (memory_->host_visible())
    run_each_kind();
  else
    PLIMSOLL_TRY(record_phases());
  overhead_measured_ = overhead_now() - held_before;
  memory_->trim(plan_.persistent_bytes);  // each phase takes its own when it comes
  if (overhead_measured_ <= plan_.overhead_bytes + held_by_tools()) return {};
  return fail(Error{ErrorCode::kOverheadAboveBound,
                    fmt::format("the process holds {} beside its arena, the published bound is {}",
                                format_bytes(overhead_measured_), format_bytes(plan_.overhead_bytes)),
                    {"nothing was trained: the budget could not have been kept"},
                    {"report this with the output of 'plimsoll doctor'"}});
}

Status Session::bind() {
  if (!plan_.phases.empty() && plan_.phases.front().name != "predict")
    tallies_ = tallies_of(model_, Mode::kEvaluate, options_);
  for (const Tally& tally : tallies_)
    if (!has_persistent(tally_value(tally.name)))
      return fail(ErrorCode::kBadPlan, fmt::format("the plan has no place for the sum of '{}'", tally.name));
  weight_sums_.assign(model_.outputs().size(), 0);
  for (Sums& sums : sums_) sums = {std::vector<double>(tallies_.size(), 0), weight_sums_};
  micro_batched_ = plan_.batch.micro < plan_.batch.effective;
  // The smallest first: memory that grows then grows to the end of one phase after the other, and can be given back to
  // where any of them ends.
  std::vector<const PhasePlan*> order;
  for (const PhasePlan& phase : plan_.phases) order.push_back(&phase);
  std::stable_sort(order.begin(), order.end(),
                   [](const PhasePlan* a, const PhasePlan* b) { return a->arena_bytes < b->arena_bytes; });
  PLIMSOLL_TRY(memory_->commit(plan_.persistent_bytes));
  for (const PhasePlan* phase : order) PLIMSOLL_TRY(bind_phase(*phase));
  return {};
}

// What stands between a host that reads files and a device with memory of its own.
Status Session::open_queues() {
  if (memory_->host_visible()) return {};
  Bytes batch = 0;
  size_t arrays = 0;
  for (const auto& phase : phases_) {
    Bytes sum = 0;
    for (const Feed::Slot& slot : phase->feed) sum += align_up(slot.bytes);
    batch = std::max(batch, sum);
    arrays = std::max(arrays, phase->feed.size());
  }
  if (batch - static_cast<Bytes>(arrays) * kAlignment > plan_.data_bytes)  // an older plan counts no padding
    return fail(ErrorCode::kBadPlan, fmt::format("the plan has {} for a batch on its way to the device, which takes {}",
                                                 format_bytes(plan_.data_bytes), format_bytes(batch)));
  PLIMSOLL_ASSIGN(feed_, backend_.open_feed(batch));
  Bytes begin = std::numeric_limits<Bytes>::max(), end = 0;
  for (const Tally& tally : tallies_) {
    const PersistentSlot* slot = plan_.slot(tally_value(tally.name));
    begin = std::min(begin, slot->offset);
    end = std::max(end, end_of(*slot));
  }
  if (tallies_.empty()) return {};
  tally_begin_ = begin;
  PLIMSOLL_ASSIGN(readback_, backend_.open_readback(*memory_, begin, end - begin));
  if (!has_persistent(kKnownSkips) || !has_persistent(kSkippedUpdates)) return {};
  const PersistentSlot* skips = plan_.slot(kSkippedUpdates);
  PLIMSOLL_ASSIGN(skips_, backend_.open_readback(*memory_, skips->offset, skips->type.bytes()));
  return {};
}

Status Session::add_phase(PhasePlan phase) {
  Plan whole = plan_;
  whole.phases.push_back(phase);
  PLIMSOLL_TRY(validate(whole));
  added_.push_back(std::make_unique<PhasePlan>(std::move(phase)));
  return bind_phase(*added_.back());
}

Status Session::bind_phase(const PhasePlan& phase) {
  auto bound = std::make_unique<BoundPhase>();
  bound->plan = &phase;
  bound->end = plan_.persistent_bytes;
  PLIMSOLL_TRY(memory_->commit(phase.arena_bytes));  // binding may try kernels out where they will run
  const auto address = [&](ValueId id) -> void* {
    const Placement& place = phase.values[static_cast<size_t>(id)];
    if (place.offset < 0) return nullptr;
    if (place.space != Space::kDevice) return memories_.at(place.space)->at(place.offset);
    bound->end = std::max(bound->end, place.offset + align_up(std::max<Bytes>(phase.graph.value(id).bytes(), 1)));
    return memory_->at(place.offset);
  };
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const Node& node = phase.graph.nodes[n];
    const PlannedNode& planned = phase.nodes[n];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    void* workspace = planned.workspace_bytes > 0 ? memory_->at(planned.workspace_offset) : nullptr;
    if (workspace != nullptr)
      bound->end = std::max(bound->end, planned.workspace_offset + align_up(planned.workspace_bytes));
    PLIMSOLL_ASSIGN(auto kernel, backend_.bind({phase.graph, node, planned.kernel, inputs, outputs, workspace,
                                                planned.workspace_bytes}));
    bound->kernels.push_back(std::move(kernel));
  }
  if (phase.samples > 0) find_slots(*bound);
  phases_.push_back(std::move(bound));
  return {};
}

Bytes Session::overhead_now() const {
  return backend_.held_bytes() - memory_->held_bytes() - (feed_ ? feed_->device_bytes() : 0);
}

// Where a batch goes in and predictions come out.
void Session::find_slots(BoundPhase& bound) {
  const PhasePlan& phase = *bound.plan;
  const auto view = [&](const std::string& name) {
    const ValueId id = phase.graph.find(name);
    const Bytes offset = id == kNone ? kNone : phase.values[static_cast<size_t>(id)].offset;
    if (offset < 0) return TensorView{};
    bound.end = std::max(bound.end, offset + align_up(std::max<Bytes>(phase.graph.value(id).bytes(), 1)));
    return TensorView{phase.graph.type(id), memory_->at(offset)};
  };
  const auto feed = [&](const TensorView& slot) {
    bound.feed.push_back({slot.data, slot.data == nullptr ? 0 : slot.type.bytes()});
  };
  for (const Port& port : model_.inputs()) {
    const TensorView input = view("x:" + port.name);
    bound.slots.inputs.push_back(input.data);
    feed(input);
  }
  for (const Port& port : model_.outputs()) {
    if (const TensorView target = view("y:" + port.name); target.data != nullptr) {
      bound.slots.targets.push_back(target.data);
      feed(target);
    }
    if (const TensorView weight = view("weight:" + port.name); weight.data != nullptr) bound.weights.push_back(weight);
    bound.predictions.push_back(view("prediction:" + port.name));
  }
  for (const TensorView& weight : bound.weights) feed(weight);
  bound.slots.weights.resize(bound.weights.size());
  if (options_.data.sample_weights && options_.precision.variables == DType::kFloat64) {
    staged_weights_.resize(bound.weights.size());
    for (auto& staged : staged_weights_) staged.resize(std::max(staged.size(), static_cast<size_t>(phase.samples)));
  }
}

Result<HostView> Session::look() const {
  if (memory_->host_visible()) return HostView(plan_, memory_->at(0));
  std::vector<std::byte> copy(static_cast<size_t>(plan_.persistent_bytes));
  PLIMSOLL_TRY(memory_->read(0, copy.data(), plan_.persistent_bytes));
  return HostView(plan_, std::move(copy));
}

Status Session::store(const std::string& name, const std::function<Status(const TensorView&)>& write) {
  const PersistentSlot* slot = plan_.slot(name);
  if (slot == nullptr) return fail(ErrorCode::kBadPlan, fmt::format("the plan has no persistent value '{}'", name));
  skipped_.reset();
  if (memory_->host_visible()) return write({slot->type, memory_->at(slot->offset)});
  std::vector<std::byte> staged(static_cast<size_t>(slot->type.bytes()));
  PLIMSOLL_TRY(write({slot->type, staged.data()}));
  return memory_->write(slot->offset, staged.data(), slot->type.bytes());
}

Session::BoundPhase* Session::find(const std::string& name, int64_t samples) const {
  for (const auto& phase : phases_)
    if (phase->plan->samples == samples && (phase->plan->name == name || phase->plan->name == name + "_tail"))
      return phase.get();
  return nullptr;
}

Result<Session::BoundPhase*> Session::ready(const std::string& name, int64_t samples) {
  BoundPhase* phase = find(name, samples);
  if (phase == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("the plan has no phase {} for {} samples", name, samples));
  PLIMSOLL_TRY(memory_->commit(phase->end));
  return phase;
}

void Session::flush_pokes() {
  if (!pokes_.empty()) memory_->poke(pokes_);
  pokes_.clear();
}

void Session::run(BoundPhase& phase) {
  flush_pokes();
  if (phase.recorded != nullptr && !watch_) {
    phase.recorded->run();
  } else {
    for (size_t n = 0; n < phase.kernels.size(); ++n) {
      if (watch_) watch_(*phase.plan, n, false, memory_->at(0));
      phase.kernels[n]->run();
      if (watch_) watch_(*phase.plan, n, true, memory_->at(0));
    }
  }
  arena_peak_ = std::max(arena_peak_, phase.end);
}

// What made this node's inputs has not run: floats may be anything, but labels and positions must be in range.
void Session::run_alone(BoundPhase& phase, size_t node) {
  for (ValueId id : phase.plan->graph.nodes[node].inputs) {
    const Value& value = phase.plan->graph.value(id);
    if (value.space == Space::kDevice && !is_floating(value.type.dtype))
      std::memset(memory_->at(phase.plan->values[static_cast<size_t>(id)].offset), 0,
                  static_cast<size_t>(value.bytes()));
  }
  phase.kernels[node]->run();
}

Status Session::run_batch(BoundPhase& phase, const Fill& fill) {
  const auto count = static_cast<size_t>(phase.plan->samples);
  const bool staged = !staged_weights_.empty();
  BatchBuffers& slots = phase.slots;
  if (feed_) {
    PLIMSOLL_ASSIGN(const auto hosts, feed_->acquire(phase.feed));
    size_t next = 0;
    for (void*& input : slots.inputs) input = hosts[next++];
    for (void*& target : slots.targets) target = hosts[next++];
    for (float*& weight : slots.weights) weight = static_cast<float*>(hosts[next++]);
  }
  for (size_t i = 0; i < phase.weights.size() && !feed_; ++i)
    slots.weights[i] = staged ? staged_weights_[i].data() : static_cast<float*>(phase.weights[i].data);
  PLIMSOLL_TRY(fill(slots));
  for (size_t i = 0; i < phase.weights.size(); ++i) {
    for (size_t s = 0; s < count; ++s) {
      const auto weight = static_cast<double>(slots.weights[i][s]);
      weight_sums_[i] += weight;
      if (staged) set_floating(phase.weights[i], static_cast<int64_t>(s), weight);
    }
  }
  if (feed_) PLIMSOLL_TRY(feed_->submit());
  run(phase);
  return {};
}

void Session::set_scalar(const std::string& name, double value) {
  const PersistentSlot* slot = plan_.slot(name);
  if (slot == nullptr) return;
  const auto single = static_cast<float>(value);
  pokes_.push_back(slot->type.dtype == DType::kFloat64 ? poke_of<double>(slot->offset, {&value, 1})
                                                       : poke_of<float>(slot->offset, {&single, 1}));
}

void Session::set_integers(const std::string& name, std::initializer_list<int64_t> values) {
  const PersistentSlot* slot = plan_.slot(name);
  if (slot != nullptr) pokes_.push_back(poke_of<int64_t>(slot->offset, {values.begin(), values.size()}));
}

void Session::set_scales(int64_t samples) {
  set_scalar("one", 1);
  for (const Port& port : model_.outputs())
    if (port.has_loss)
      set_scalar("scale:" + port.name, port.loss_weight / static_cast<double>(samples * port.rows_per_sample));
}

Status Session::begin(const Window& window, int64_t done) {
  const auto update = checked_add(window.iteration, int64_t{1});
  if (window.samples <= 0 || done < 0 || done >= window.samples || window.iteration < 0 || !update)
    return fail(ErrorCode::kInternal, fmt::format("a window of {} samples, {} of them done, cannot follow {} updates",
                                                  window.samples, done, window.iteration));
  set_scales(window.samples);
  set_scalar("learning_rate", window.learning_rate);
  set_scalar(kRateIfSkipped, window.rate_if_skipped);
  set_integers(kKnownSkips, {window.known_skips});
  set_integers("iteration", {*update});
  set_integers("rng", {static_cast<int64_t>(window.seed), window.iteration});
  first_sample_ = done;
  if (done == 0) std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  if (!micro_batched_ || done > 0) return {};
  PLIMSOLL_ASSIGN(BoundPhase * phase, ready("begin", 0));
  run(*phase);
  return {};
}

Result<Session::BoundPhase*> Session::next_accumulate(int64_t count) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, ready(micro_batched_ ? "accumulate" : "train", count));
  set_integers("first_sample", {first_sample_});
  first_sample_ += count;
  return phase;
}

Status Session::accumulate(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, next_accumulate(count));
  return run_batch(*phase, fill);
}

Status Session::accumulate_again(int64_t count) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, next_accumulate(count));
  if (!feed_) return fail(ErrorCode::kInternal, "a batch in host memory is gone once it was read");
  PLIMSOLL_TRY(feed_->again());
  run(*phase);
  return {};
}

Status Session::apply() {
  if (micro_batched_) {
    PLIMSOLL_ASSIGN(BoundPhase * phase, ready("apply", 0));
    run(*phase);
  }
  request_sums();
  return {};
}

Status Session::evaluate(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, ready("evaluate", count));
  set_scales(count);
  std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  PLIMSOLL_TRY(run_batch(*phase, fill));
  request_sums();
  return {};
}

Status Session::predict(int64_t count, const Fill& fill) {
  PLIMSOLL_ASSIGN(BoundPhase * phase, ready("predict", count));
  return run_batch(*phase, fill);
}

Result<TensorView> Session::prediction(int64_t count, size_t output) {
  PLIMSOLL_ASSIGN(const BoundPhase* const phase, ready("predict", count));
  const TensorView view = output < phase->predictions.size() ? phase->predictions[output] : TensorView{};
  if (view.data == nullptr)
    return fail(ErrorCode::kBadPlan, fmt::format("the plan's phase predict has no prediction {}", output));
  if (memory_->host_visible()) return view;
  staged_prediction_.resize(std::max(staged_prediction_.size(), static_cast<size_t>(view.type.bytes())));
  PLIMSOLL_TRY(
      memory_->read(static_cast<std::byte*>(view.data) - memory_->at(0), staged_prediction_.data(), view.type.bytes()));
  return TensorView{view.type, staged_prediction_.data()};
}

Result<std::vector<double>> Session::measure_nodes(const std::string& name, int64_t samples, int repeats) {
  using Clock = std::chrono::steady_clock;
  PLIMSOLL_ASSIGN(BoundPhase * phase, ready(name, samples));
  flush_pokes();
  std::vector<double> seconds;
  for (const auto& kernel : phase->kernels) {
    kernel->run();
    PLIMSOLL_TRY(backend_.finish());
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) kernel->run();
    PLIMSOLL_TRY(backend_.finish());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / repeats);
  }
  return seconds;
}

void Session::fill_pattern() {
  require(memory_->commit(memory_->bytes()));
  (void)memory_->fill(plan_.persistent_bytes, kPattern, memory_->bytes() + Memory::kGuard - plan_.persistent_bytes);
}

Bytes Session::first_changed_byte(Bytes from) const {
  std::vector<std::byte> bytes(static_cast<size_t>(memory_->bytes() + Memory::kGuard - from));
  if (!memory_->read(from, bytes.data(), static_cast<Bytes>(bytes.size()))) return from;
  const auto changed = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != kPattern; });
  return changed == bytes.end() ? -1 : from + (changed - bytes.begin());
}

}  // namespace plimsoll
