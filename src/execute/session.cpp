#include "execute/session.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "execute/memory.h"

namespace plimsoll {

struct Session::BoundPhase {
  const PhasePlan* plan = nullptr;
  std::vector<std::unique_ptr<Kernel>> kernels;
  BatchBuffers slots;               // where a batch is written
  std::vector<TensorView> weights;  // the graph's sample weights
  std::vector<TensorView> predictions;
  Bytes end = 0;  // of the highest thing bound
};

namespace {

void set_floating(const TensorView& view, int64_t index, double value) {
  if (view.type.dtype == DType::kFloat64)
    view.as<double>()[index] = value;
  else
    view.as<float>()[index] = static_cast<float>(value);
}

double get_floating(const TensorView& view) {
  return view.type.dtype == DType::kFloat64 ? *view.as<double>() : static_cast<double>(*view.as<float>());
}

}  // namespace

Session::Session(const Model& model, Plan plan, Arena arena, const GraphOptions& options)
    : model_(model), plan_(std::move(plan)), options_(options), arena_(std::move(arena)) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Model& model, Plan plan, const Backend& backend,
                                                 const GraphOptions& options, Bytes held_before) {
  PLIMSOLL_TRY(validate(plan));
  PLIMSOLL_ASSIGN(Arena arena, Arena::reserve(plan.arena_bytes));
  std::unique_ptr<Session> session(new Session(model, std::move(plan), std::move(arena), options));
  PLIMSOLL_TRY(session->bind(backend));
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
Status Session::dry_run(Bytes held_before) {
  std::map<std::string, std::pair<BoundPhase*, size_t>> quickest;
  for (const auto& phase : phases_)
    for (size_t n = 0; n < phase->kernels.size(); ++n) {
      const PlannedNode& planned = phase->plan->nodes[n];
      const auto [at, added] = quickest.try_emplace(kind_of(phase->plan->graph.nodes[n], planned), phase.get(), n);
      auto& [other, m] = at->second;
      if (!added && planned.seconds < other->plan->nodes[m].seconds) at->second = {phase.get(), n};
    }
  for (const auto& [kind, where] : quickest) run_alone(*where.first, where.second);
  std::memset(arena_.at(0), 0, static_cast<size_t>(plan_.persistent_bytes));  // as a new arena is
  overhead_measured_ = overhead_now() - held_before;
  if (overhead_measured_ <= plan_.overhead_bytes) return {};
  return fail(Error{ErrorCode::kOverheadAboveBound,
                    fmt::format("the process holds {} beside its arena, the published bound is {}",
                                format_bytes(overhead_measured_), format_bytes(plan_.overhead_bytes)),
                    {"nothing was trained: the budget could not have been kept"},
                    {"report this with the output of 'plimsoll doctor'"}});
}

Status Session::bind(const Backend& backend) {
  if (!plan_.phases.empty() && plan_.phases.front().name != "predict")
    tallies_ = tallies_of(model_, Mode::kEvaluate, options_);
  weight_sums_.assign(model_.outputs().size(), 0);
  micro_batched_ = plan_.batch.micro < plan_.batch.effective;
  for (const PhasePlan& phase : plan_.phases) PLIMSOLL_TRY(bind_phase(phase, backend));
  return {};
}

Status Session::add_phase(PhasePlan phase, const Backend& backend) {
  Plan whole = plan_;
  whole.phases.push_back(phase);
  PLIMSOLL_TRY(validate(whole));
  added_.push_back(std::make_unique<PhasePlan>(std::move(phase)));
  return bind_phase(*added_.back(), backend);
}

Status Session::bind_phase(const PhasePlan& phase, const Backend& backend) {
  auto bound = std::make_unique<BoundPhase>();
  bound->plan = &phase;
  bound->end = plan_.persistent_bytes;
  const auto address = [&](ValueId id) -> void* {
    const Bytes offset = phase.values[static_cast<size_t>(id)].offset;
    if (offset < 0) return nullptr;
    bound->end = std::max(bound->end, offset + align_up(std::max<Bytes>(phase.graph.value(id).bytes(), 1)));
    return arena_.at(offset);
  };
  for (size_t n = 0; n < phase.nodes.size(); ++n) {
    const Node& node = phase.graph.nodes[n];
    const PlannedNode& planned = phase.nodes[n];
    std::vector<void*> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(address(id));
    for (ValueId id : node.outputs) outputs.push_back(address(id));
    void* workspace = planned.workspace_bytes > 0 ? arena_.at(planned.workspace_offset) : nullptr;
    if (workspace != nullptr)
      bound->end = std::max(bound->end, planned.workspace_offset + align_up(planned.workspace_bytes));
    PLIMSOLL_ASSIGN(auto kernel, backend.bind({phase.graph, node, planned.kernel, inputs, outputs, workspace,
                                               planned.workspace_bytes}));
    bound->kernels.push_back(std::move(kernel));
  }
  const auto view = [&](const std::string& name) {
    const ValueId id = phase.graph.find(name);
    return id == kNone ? TensorView{} : TensorView{phase.graph.type(id), address(id)};
  };
  if (phase.samples > 0) {
    for (const Port& port : model_.inputs()) bound->slots.inputs.push_back(view("x:" + port.name).data);
    for (const Port& port : model_.outputs()) {
      if (const TensorView target = view("y:" + port.name); target.data != nullptr)
        bound->slots.targets.push_back(target.data);
      if (const TensorView weight = view("weight:" + port.name); weight.data != nullptr)
        bound->weights.push_back(weight);
      bound->predictions.push_back(view("prediction:" + port.name));
    }
    bound->slots.weights.resize(bound->weights.size());
    if (options_.data.sample_weights && options_.precision != DType::kFloat32) {
      staged_weights_.resize(bound->weights.size());
      for (auto& staged : staged_weights_) staged.resize(std::max(staged.size(), static_cast<size_t>(phase.samples)));
    }
  }
  phases_.push_back(std::move(bound));
  return {};
}

Bytes Session::overhead_now() const {
  return resident_bytes() - arena_.resident_bytes();
}

TensorView Session::persistent(const std::string& name) const {
  const PersistentSlot* slot = plan_.slot(name);
  assert(slot != nullptr);
  return {slot->type, arena_.at(slot->offset)};
}

Session::BoundPhase* Session::find(const std::string& name, int64_t samples) const {
  for (const auto& phase : phases_)
    if (phase->plan->samples == samples && (phase->plan->name == name || phase->plan->name == name + "_tail"))
      return phase.get();
  return nullptr;
}

void Session::run(BoundPhase& phase) {
  for (size_t n = 0; n < phase.kernels.size(); ++n) {
    if (watch_) watch_(*phase.plan, n, false, arena_.at(0));
    phase.kernels[n]->run();
    if (watch_) watch_(*phase.plan, n, true, arena_.at(0));
  }
  arena_peak_ = std::max(arena_peak_, phase.end);
}

// What made this node's inputs has not run: floats may be anything, but labels and positions must be in range.
void Session::run_alone(BoundPhase& phase, size_t node) {
  for (ValueId id : phase.plan->graph.nodes[node].inputs) {
    const Value& value = phase.plan->graph.value(id);
    if (!is_floating(value.type.dtype))
      std::memset(arena_.at(phase.plan->values[static_cast<size_t>(id)].offset), 0, static_cast<size_t>(value.bytes()));
  }
  phase.kernels[node]->run();
}

Status Session::run_batch(BoundPhase& phase, const Fill& fill) {
  const auto count = static_cast<size_t>(phase.plan->samples);
  const bool staged = !staged_weights_.empty();
  for (size_t i = 0; i < phase.weights.size(); ++i)
    phase.slots.weights[i] = staged ? staged_weights_[i].data() : static_cast<float*>(phase.weights[i].data);
  PLIMSOLL_TRY(fill(phase.slots));
  for (size_t i = 0; i < phase.weights.size(); ++i) {
    for (size_t s = 0; s < count; ++s) {
      const auto weight = static_cast<double>(phase.slots.weights[i][s]);
      weight_sums_[i] += weight;
      if (staged) set_floating(phase.weights[i], static_cast<int64_t>(s), weight);
    }
  }
  run(phase);
  return {};
}

void Session::set_scalar(const std::string& name, double value) {
  if (has_persistent(name)) set_floating(persistent(name), 0, value);
}

void Session::set_integers(const std::string& name, std::initializer_list<int64_t> values) {
  if (has_persistent(name)) std::copy(values.begin(), values.end(), persistent(name).as<int64_t>());
}

void Session::set_scales(int64_t samples) {
  set_scalar("one", 1);
  for (const Port& port : model_.outputs())
    if (port.has_loss)
      set_scalar("scale:" + port.name, port.loss_weight / static_cast<double>(samples * port.rows_per_sample));
}

void Session::begin(const Window& window, int64_t done) {
  set_scales(window.samples);
  set_scalar("learning_rate", window.learning_rate);
  set_integers("iteration", {window.iteration + 1});
  set_integers("rng", {static_cast<int64_t>(window.seed), window.iteration});
  first_sample_ = done;
  if (done == 0) std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  if (micro_batched_ && done == 0) run(*find("begin", 0));
}

Status Session::accumulate(int64_t count, const Fill& fill) {
  BoundPhase* phase = find(micro_batched_ ? "accumulate" : "train", count);
  if (phase == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("the plan has no phase for a batch of {} samples", count));
  set_integers("first_sample", {first_sample_});
  first_sample_ += count;
  return run_batch(*phase, fill);
}

void Session::apply() {
  if (micro_batched_) run(*find("apply", 0));
}

Status Session::evaluate(int64_t count, const Fill& fill) {
  BoundPhase* phase = find("evaluate", count);
  if (phase == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("the plan has no phase to evaluate {} samples", count));
  set_scales(count);
  std::fill(weight_sums_.begin(), weight_sums_.end(), 0.0);
  return run_batch(*phase, fill);
}

Status Session::predict(int64_t count, const Fill& fill) {
  BoundPhase* phase = find("predict", count);
  if (phase == nullptr)
    return fail(ErrorCode::kInternal, fmt::format("the plan has no phase to predict {} samples", count));
  return run_batch(*phase, fill);
}

TensorView Session::prediction(int64_t count, size_t output) const {
  return find("predict", count)->predictions[output];
}

double Session::tally(const std::string& name) const {
  return get_floating(persistent(tally_value(name)));
}

void Session::fill_pattern() {
  std::memset(arena_.at(plan_.persistent_bytes), static_cast<int>(kPattern),
              static_cast<size_t>(arena_.bytes() + Arena::kGuard - plan_.persistent_bytes));
}

Bytes Session::first_changed_byte(Bytes from) const {
  for (Bytes offset = from; offset < arena_.bytes() + Arena::kGuard; ++offset)
    if (*arena_.at(offset) != kPattern) return offset;
  return -1;
}

}  // namespace plimsoll
