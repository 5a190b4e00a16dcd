// Evaluation, prediction and fitting over a program's own data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "api/fit_bridge.h"
#include "api/model_state.h"
#include "api/windows.h"
#include "base/digest.h"
#include "base/suggest.h"
#include "data/column_source.h"
#include "execute/progress.h"

namespace plimsoll::engine {
namespace {

Status at_least(int64_t value, int64_t least, const char* option) {
  if (value >= least) return {};
  return fail(ErrorCode::kUsage, fmt::format("FitOptions::{} must be at least {}, got {}", option, least, value));
}

// Sets a flag, and clears it even if a callback throws.
class FlagGuard {
 public:
  explicit FlagGuard(bool& flag) : flag_(flag) { flag_ = true; }
  ~FlagGuard() { flag_ = false; }
  FlagGuard(const FlagGuard&) = delete;
  FlagGuard& operator=(const FlagGuard&) = delete;

 private:
  bool& flag_;
};

// Returns a digest of the first and the last rows. It detects that a run is resumed with another data set.
std::string contents_of(const Arrays& arrays) {
  constexpr size_t kEnds = 65536;
  Digest digest;
  for (const NamedArray& one : arrays.list()) {
    const auto dtype = dtype_from_name(one.array.dtype());
    const std::span bytes(static_cast<const std::byte*>(one.array.data()),
                          static_cast<size_t>(one.array.elements() * (dtype ? size_of(*dtype) : 0)));
    digest.add(bytes.first(std::min(kEnds, bytes.size())));
    digest.add(bytes.last(std::min(kEnds, bytes.size())));
  }
  return digest.text();
}

// Returns samples first .. end-1 of the arrays.
Arrays rows_of(const Arrays& arrays, int64_t first, int64_t end) {
  std::vector<NamedArray> list;
  for (const NamedArray& one : arrays.list()) {
    const ArrayView& all = one.array;
    Dims shape = all.shape();
    const int64_t row = shape.empty() || shape[0] < 1 ? 0 : all.elements() / shape[0];
    const auto dtype = dtype_from_name(all.dtype());
    if (!shape.empty()) shape[0] = end - first;
    const auto* data = static_cast<const std::byte*>(all.data()) + first * row * (dtype ? size_of(*dtype) : 0);
    list.emplace_back(one.name, ArrayView(data, (end - first) * row, all.dtype(), std::move(shape)));
  }
  return Arrays(std::move(list));
}

Data rows_of(const Data& data, int64_t first, int64_t end) {
  const Batch& all = data.all();
  return Data::arrays(rows_of(all.x, first, end), rows_of(all.y, first, end), rows_of(all.sample_weight, first, end));
}

}  // namespace

// Checks every batch and calls `use` with it. Arrays count as one batch.
template <typename Use>
Status ModelState::for_each_batch(const Data& data, bool targets, const Use& use) {
  if (data.source() == nullptr) {
    PLIMSOLL_ASSIGN(const BoundBatch all, reader_.bind(data.all(), 0, targets));
    return use(all);
  }
  PLIMSOLL_TRY(data.source()->begin_epoch(0));
  for (bool any = false;; any = true) {
    Batch batch;
    PLIMSOLL_ASSIGN(const bool more, data.source()->next(batch));
    if (!more && !any) return fail(ErrorCode::kDataEmpty, "the source yielded no batch");
    if (!more) return {};
    PLIMSOLL_ASSIGN(const BoundBatch bound, reader_.bind(batch, 0, targets));
    PLIMSOLL_TRY(use(bound));
  }
}

Result<Logs> ModelState::evaluate(const Data& data) {
  PLIMSOLL_TRY(check_between("evaluate()"));
  return evaluate_all(data, nullptr);
}

Status ModelState::check_evaluates() const {
  if (session().plan().phase(PhaseKind::kEvaluate) != nullptr) return {};
  return fail(
      Error{ErrorCode::kUsage, "this model has no loss to evaluate", {}, {"Description::compile({.loss = ...})"}});
}

Status ModelState::evaluate_batch(const BoundBatch& batch, const std::atomic<bool>* stop, EpochSums& sums) {
  const int64_t piece = session().plan().phase(PhaseKind::kEvaluate)->samples;
  PLIMSOLL_TRY(run_->prepare(PhaseKind::kEvaluate, batch.samples));
  for (int64_t first = 0; first < batch.samples; first += piece) {
    if (stop != nullptr && stop->load()) return fail(ErrorCode::kInterrupted, "interrupted while evaluating");
    const int64_t count = std::min(piece, batch.samples - first);
    PLIMSOLL_TRY(session().evaluate(count, [&](const BatchBuffers& into) -> Status {
      reader_.copy(batch, first, count, 0, into);
      return {};
    }));
    PLIMSOLL_ASSIGN(const Sums* one, session().collect());
    sums.add(session().tallies(), *one, count);
  }
  return {};
}

Result<Logs> ModelState::evaluate_all(const Data& data, const std::atomic<bool>* stop) {
  PLIMSOLL_TRY(check_evaluates());
  EpochSums sums(session().tallies());
  PLIMSOLL_TRY(for_each_batch(data, true, [&](const BoundBatch& batch) { return evaluate_batch(batch, stop, sums); }));
  return logs_of(sums.means(session().tallies()));
}

Result<Logs> ModelState::test(const Batch& batch) {
  PLIMSOLL_TRY(check_between("test()"));
  PLIMSOLL_TRY(check_evaluates());
  PLIMSOLL_ASSIGN(const BoundBatch bound, reader_.bind(batch, 0, true));
  EpochSums sums(session().tallies());
  PLIMSOLL_TRY(evaluate_batch(bound, nullptr, sums));
  running_.add(sums);
  return logs_of(sums.means(session().tallies()));
}

Status ModelState::predict(const Data& data, const TakeRows& take) {
  PLIMSOLL_TRY(check_between("predict()"));
  const PhasePlan* phase = session().plan().phase(PhaseKind::kPredict);
  if (phase == nullptr) return fail(ErrorCode::kInternal, "the plan has no phase to predict with");
  const int64_t piece = phase->samples;
  return for_each_batch(data, false, [&](const BoundBatch& batch) -> Status {
    PLIMSOLL_TRY(run_->prepare(PhaseKind::kPredict, batch.samples));
    for (int64_t first = 0; first < batch.samples; first += piece) {
      const int64_t count = std::min(piece, batch.samples - first);
      PLIMSOLL_TRY(session().predict(count, [&](const BatchBuffers& into) -> Status {
        reader_.copy(batch, first, count, 0, into);
        return {};
      }));
      for (size_t i = 0; i < run_->model().outputs().size(); ++i) {
        PLIMSOLL_ASSIGN(const TensorView view, session().prediction(count, i));
        PLIMSOLL_TRY(take(i, {view.data, view.elements(), keras_name(view.type.dtype), view.type.shape.dims}));
      }
    }
    return {};
  });
}

Result<std::vector<Array>> ModelState::predict(const Data& data) {
  struct Rows {
    std::vector<std::byte> bytes;
    std::string dtype = "float32";
    int64_t count = 0;
  };
  std::vector<Rows> all(run_->model().outputs().size());
  PLIMSOLL_TRY(predict(data, [&](size_t output, const ArrayView& rows) -> Result<void> {
    Rows& kept = all[output];
    kept.dtype = rows.dtype();
    const auto* first = static_cast<const std::byte*>(rows.data());
    kept.bytes.insert(kept.bytes.end(), first, first + rows.elements() * size_of(*dtype_from_name(kept.dtype)));
    kept.count += rows.shape()[0];
    return {};
  }));
  std::vector<Array> arrays;
  for (size_t i = 0; i < all.size(); ++i) {
    Dims shape = run_->model().outputs()[i].sample.dims;
    shape.insert(shape.begin(), all[i].count);
    PLIMSOLL_ASSIGN(Array array, Array::zeros(shape, all[i].dtype));
    if (!all[i].bytes.empty()) std::memcpy(array.bytes().data(), all[i].bytes.data(), all[i].bytes.size());
    all[i].bytes = {};
    arrays.push_back(std::move(array));
  }
  return arrays;
}

Status ModelState::check_monitor(const char* option, const std::string& metric, bool validates) const {
  std::vector<std::string> reported;
  for (const Tally& tally : session().tallies()) {
    if (tally.elements && (metric == tally.name || metric == "val_" + tally.name))
      return fail(
          ErrorCode::kUsage,
          fmt::format("FitOptions::{} watches '{}', which is a vector, and vectors have no order", option, metric));
    reported.push_back(tally.name);
    if (validates) reported.push_back("val_" + tally.name);
  }
  if (std::find(reported.begin(), reported.end(), metric) != reported.end()) return {};
  Error error{ErrorCode::kUsage,
              fmt::format("FitOptions::{} watches '{}', which this run does not report", option, metric),
              {},
              {}};
  error.fact(fmt::format("it reports {}", fmt::join(reported, ", ")));
  if (metric.starts_with("val_") && !validates) return fail(error.remedy("FitOptions::validation"));
  if (const std::string meant = suggestion(metric, reported); !meant.empty()) error.remedy("'" + meant + "'");
  return fail(std::move(error));
}

Status ModelState::check_fit(const Data& data, const plimsoll::FitOptions& options) const {
  PLIMSOLL_TRY(check_trains());
  PLIMSOLL_TRY(check_between("fit()"));
  PLIMSOLL_TRY(at_least(options.epochs, 1, "epochs"));
  PLIMSOLL_TRY(at_least(options.steps_per_epoch, 0, "steps_per_epoch"));
  PLIMSOLL_TRY(at_least(options.checkpoint_every, 0, "checkpoint_every"));
  PLIMSOLL_TRY(at_least(options.keep_checkpoints, 1, "keep_checkpoints"));
  if (!(options.validation_split >= 0 && options.validation_split < 1))
    return fail(ErrorCode::kUsage,
                fmt::format("FitOptions::validation_split must lie between 0 and 1, got {}", options.validation_split));
  if (options.validation_split > 0 && (options.validation || data.source() != nullptr))
    return fail(ErrorCode::kUsage, options.validation
                                       ? "FitOptions has both validation and validation_split: set only one of them"
                                       : "FitOptions::validation_split needs arrays: a source cannot be split");
  if (options.resume && options.checkpoint.empty())
    return fail(ErrorCode::kUsage, "FitOptions::resume needs FitOptions::checkpoint, the folder to resume from");
  for (const auto& callback : options.callbacks)
    if (callback == nullptr) return fail(ErrorCode::kUsage, "FitOptions::callbacks has an empty pointer");
  return {};
}

Result<FitOptions> ModelState::fit_options(const plimsoll::FitOptions& options, bool validates) {
  FitOptions made;
  made.epochs = options.epochs;
  made.steps_per_epoch = options.steps_per_epoch;
  made.seed = run_->options().seed;
  made.checkpoint_folder = options.checkpoint;
  made.checkpoint_every_steps = options.checkpoint_every;
  made.keep_checkpoints = options.keep_checkpoints;
  made.resume = options.resume;
  made.stop = options.stop;
  if (const auto& early = options.early_stopping) {
    PLIMSOLL_TRY(check_monitor("early_stopping", early->monitor, validates));
    PLIMSOLL_TRY(at_least(early->patience, 0, "early_stopping.patience"));
    made.callbacks.early_stopping = EarlyStopping{early->monitor, early->patience, early->restore_best_weights};
  }
  if (const auto& plateau = options.reduce_lr_on_plateau) {
    PLIMSOLL_TRY(check_monitor("reduce_lr_on_plateau", plateau->monitor, validates));
    PLIMSOLL_TRY(at_least(plateau->patience, 0, "reduce_lr_on_plateau.patience"));
    if (!(plateau->factor > 0 && plateau->factor < 1))
      return fail(
          ErrorCode::kUsage,
          fmt::format("FitOptions::reduce_lr_on_plateau.factor must lie between 0 and 1, got {}", plateau->factor));
    if (!run_->model().optimizer().schedule.is_null())
      return fail(ErrorCode::kUsage,
                  "FitOptions::reduce_lr_on_plateau is not possible: a schedule sets the learning rate of this model's "
                  "optimizer");
    made.callbacks.reduce_lr = ReduceLrOnPlateau{plateau->monitor, plateau->patience, plateau->factor};
  }
  if (const auto& best = options.save_best) {
    PLIMSOLL_TRY(check_monitor("save_best", best->monitor, validates));
    if (!best->path.ends_with(".keras"))
      return fail(ErrorCode::kUsage, fmt::format("FitOptions::save_best.path '{}' must end in .keras", best->path));
    made.callbacks.save_best = SaveBest{best->monitor, best->path};
    made.save_best = [this, path = best->path](const OptimizerState& reached) { return run_->save(path, reached); };
  }
  return made;
}

Result<History> ModelState::fit(plimsoll::Model& self, const Data& data, const plimsoll::FitOptions& options) {
  PLIMSOLL_TRY(check_fit(data, options));
  const bool validates = options.validation || options.validation_split > 0;
  PLIMSOLL_ASSIGN(FitOptions made, fit_options(options, validates));
  made.identity = identity();
  made.identity["batch"] = cut().effective;
  made.identity["seed"] = run_->options().seed;
  std::optional<FolderLock> folder;
  if (!options.checkpoint.empty()) {
    PLIMSOLL_ASSIGN(FolderLock taken, take_checkpoint_folder(options.checkpoint, options.resume, run_->options().note));
    folder.emplace(std::move(taken));
  }
  BoundBatch all;
  std::unique_ptr<WindowReader> windows;
  if (data.source() == nullptr) {
    PLIMSOLL_ASSIGN(all, reader_.bind(data.all(), 0, true));
    int64_t end = all.samples;
    if (options.validation_split > 0) {
      PLIMSOLL_ASSIGN(end, validation_split_at(all.samples, options.validation_split));
    }
    made.identity["samples"] = end;
    made.identity["shuffle"] = options.shuffle;
    if (folder) made.identity["contents"] = contents_of(data.all().x) + contents_of(data.all().y);
    windows = std::make_unique<ArrayWindows>(
        *run_, reader_, all,
        ArrayWindows::Settings{0, end, options.steps_per_epoch, options.shuffle, run_->options().seed});
  } else {
    windows = std::make_unique<SourceWindows>(*run_, reader_, *data.source());
  }
  const int64_t split = windows->cut().samples;
  Validate validate;
  const auto metrics_of = [](Result<Logs> logs) -> Result<std::vector<Metric>> {
    PLIMSOLL_TRY(logs);
    std::vector<Metric> list;
    for (const plimsoll::MetricValue& metric : logs->metrics())
      list.push_back({metric.name, metric.value, metric.elements});
    return list;
  };
  const Data rest = options.validation_split > 0 ? rows_of(data, split, all.samples) : Data();
  if (options.validation)
    validate = [&] { return metrics_of(evaluate_all(*options.validation, options.stop)); };
  else if (options.validation_split > 0)
    validate = [&] { return metrics_of(evaluate_all(rest, options.stop)); };
  FitBridge bridge(self, *this, options);
  const auto fitting = [&] {
    const FlagGuard guard(fitting_);
    return run_->fit(*windows, validate, made, bridge);
  };
  auto result = fitting();
  PLIMSOLL_TRY(result);
  History history;
  for (const EpochEvent& epoch : result->history) history.epochs.push_back(logs_of(epoch.metrics));
  history.steps = result->steps;
  history.stopped = result->stopped || result->stopped_early;
  history.interrupted = result->interrupted;
  return history;
}

}  // namespace plimsoll::engine
