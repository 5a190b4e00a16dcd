#include "api/windows.h"

#include <algorithm>

namespace plimsoll::engine {

ArrayWindows::ArrayWindows(Run& run, const BatchReader& reader, const BoundBatch& batch, const Settings& settings)
    : run_(run), reader_(reader), batch_(batch), settings_(settings) {
  const BatchPlan& plan = run.session().plan().batch;
  cut_ = {settings.end - settings.begin, 0, plan};
  const int64_t all = (cut_.samples + plan.effective - 1) / plan.effective;
  cut_.windows = settings.windows > 0 ? std::min(all, settings.windows) : all;
}

Status ArrayWindows::start(int64_t /*epochs*/, const CutPosition& /*from*/) {
  const PhaseKind kind = run_.session().plan().gradient_phase();
  const int64_t last = cut_.samples % cut_.batch.effective;
  if (cut_.samples >= cut_.batch.effective) PLIMSOLL_TRY(run_.prepare(kind, cut_.batch.effective));
  return last > 0 ? run_.prepare(kind, last) : Status();
}

Result<std::optional<int64_t>> ArrayWindows::next_window(int64_t epoch, int64_t window) {
  if (window >= cut_.windows) return std::nullopt;
  if (settings_.shuffle && epoch != ordered_epoch_) order_.emplace(cut_.samples, settings_.seed, epoch);
  ordered_epoch_ = epoch;
  return cut_.window_size(window);
}

Status ArrayWindows::read(const BatchRequest& request, const BatchBuffers& into) {
  if (!order_) {
    reader_.copy(batch_, settings_.begin + request.first, request.count, 0, into);
    return {};
  }
  for (int64_t i = 0; i < request.count; ++i)
    reader_.copy(batch_, settings_.begin + (*order_)(request.first + i), 1, i, into);
  return {};
}

SourceWindows::SourceWindows(Run& run, const BatchReader& reader, DataSource& source)
    : run_(run),
      reader_(reader),
      source_(source),
      steps_(run.request().accumulation_steps),
      cut_(unknown_cut(run.session().plan().batch)) {}

Status SourceWindows::start(int64_t /*epochs*/, const CutPosition& from) {
  epoch_ = -1;
  skip_ = from.window;
  return {};
}

Result<int64_t> SourceWindows::next_batch() {
  batch_ = Batch();
  PLIMSOLL_ASSIGN(const bool more, source_.next(batch_));
  if (!more) return 0;
  PLIMSOLL_ASSIGN(bound_, reader_.bind(batch_, run_.options().batch_size, true));
  return bound_.samples;
}

Status SourceWindows::keep() {
  const DataTypes& types = run_.request().graph.data;
  const Model& model = run_.model();
  Kept kept;
  kept.samples = bound_.samples;
  BatchBuffers into;
  const auto add = [&](DType dtype, int64_t elements, std::vector<BoundArray>& arrays) {
    kept.arrays.emplace_back(static_cast<size_t>(bound_.samples * elements * size_of(dtype)));
    arrays.push_back({kept.arrays.back().data(), dtype, 0});
    return kept.arrays.back().data();
  };
  kept.bound.samples = bound_.samples;
  for (size_t i = 0; i < types.inputs.size(); ++i)
    into.inputs.push_back(add(types.inputs[i], model.inputs()[i].sample.elements(), kept.bound.inputs));
  size_t next = 0;
  for (const Port& port : model.outputs()) {
    if (!port.has_loss) continue;
    into.targets.push_back(add(types.targets[next++], port.target.elements(), kept.bound.targets));
    if (types.sample_weights)
      into.weights.push_back(reinterpret_cast<float*>(add(DType::kFloat32, 1, kept.bound.weights)));
  }
  reader_.copy(bound_, 0, bound_.samples, 0, into);
  kept_.push_back(std::move(kept));
  return {};
}

Result<int64_t> SourceWindows::next_batches() {
  kept_.clear();
  if (steps_ == 1) return next_batch();
  int64_t samples = 0;
  for (int64_t i = 0; i < steps_; ++i) {
    PLIMSOLL_ASSIGN(const int64_t count, next_batch());
    if (count == 0) break;
    PLIMSOLL_TRY(keep());
    samples += count;
  }
  return samples;
}

Result<std::optional<int64_t>> SourceWindows::next_window(int64_t epoch, int64_t window) {
  if (epoch != epoch_) {
    PLIMSOLL_TRY(source_.begin_epoch(epoch));
    epoch_ = epoch;
    for (; skip_ > 0; --skip_) {
      PLIMSOLL_ASSIGN(const int64_t passed, next_batches());
      if (passed == 0) break;
    }
    skip_ = 0;
  }
  window_ = window;
  PLIMSOLL_ASSIGN(const int64_t samples, next_batches());
  if (samples == 0) return std::nullopt;
  PLIMSOLL_TRY(run_.prepare(run_.session().plan().gradient_phase(), samples));
  return samples;
}

Status SourceWindows::read(const BatchRequest& request, const BatchBuffers& into) {
  int64_t first = request.first - window_ * cut_.batch.effective;
  if (kept_.empty()) {
    reader_.copy(bound_, first, request.count, 0, into);
    return {};
  }
  // A micro-batch may span several batches.
  int64_t at = 0;
  for (const Kept& kept : kept_) {
    if (first >= kept.samples) {
      first -= kept.samples;
      continue;
    }
    const int64_t count = std::min(kept.samples - first, request.count - at);
    reader_.copy(kept.bound, first, count, at, into);
    at += count;
    first = 0;
    if (at == request.count) break;
  }
  return {};
}

}  // namespace plimsoll::engine
