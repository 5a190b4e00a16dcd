#include "cli/tensorboard.h"

#include <algorithm>
#include <utility>

namespace plimsoll::engine {
namespace {

// Scalars of steps are written at most so often: a curve of ten points per second shows no more.
constexpr double kStepSeconds = 0.1;

}  // namespace

Result<TensorBoardLog> TensorBoardLog::open(Setup setup) {
  TensorBoardLog log;
  log.setup_ = std::move(setup);
  const std::string& folder = log.setup_.folder;
  if (folder.empty()) return log;
  PLIMSOLL_ASSIGN(log.train_, EventFile::create(folder + "/train"));
  if (log.setup_.validates) {
    PLIMSOLL_ASSIGN(log.validation_, EventFile::create(folder + "/validation"));
  }
  return log;
}

void TensorBoardLog::on_step(const StepEvent& event) {
  if (!train_) return;
  steps_ = event.step;
  since_scalars_ += event.seconds;
  const double read = std::exchange(read_seconds_, 0);
  if (has_scalars_ && since_scalars_ < kStepSeconds && event.window != event.windows) return;
  has_scalars_ = true;
  since_scalars_ = 0;
  EventFile& file = *train_;
  file.scalar("batch_loss", event.step, event.loss);
  file.scalar("memory/held_bytes", event.step, static_cast<double>(setup_.held()));
  file.scalar("memory/budget_bytes", event.step, static_cast<double>(setup_.budget));
  file.scalar("memory/arena_bytes", event.step, static_cast<double>(setup_.arena));
  file.scalar("step/seconds", event.step, event.seconds);
  file.scalar("step/waiting_for_data_seconds", event.step, read);
  file.scalar("step/computing_seconds", event.step, std::max(0.0, event.seconds - read));
  if (event.seconds > 0)
    file.scalar("step/samples_per_second", event.step, static_cast<double>(event.samples) / event.seconds);
}

// The names are those of Keras's callback, so that the curves of both lie over each other.
Status TensorBoardLog::on_epoch_end(const EpochEvent& event) {
  if (!train_) return {};
  for (const Metric& metric : event.metrics) {
    const bool of_validation = metric.name.starts_with("val_");
    if (!of_validation) {
      train_->scalar("epoch_" + metric.name, event.epoch, metric.value);
    } else if (validation_) {
      const std::string name = metric.name.substr(4);
      validation_->scalar("evaluation_" + name + "_vs_iterations", steps_, metric.value);
      validation_->scalar("epoch_" + name, event.epoch, metric.value);
    }
  }
  const bool has_rate = setup_.session->model().optimizer().schedule.is_null();
  if (has_rate) train_->scalar("epoch_learning_rate", event.epoch, event.learning_rate);
  if (setup_.histogram_epochs > 0 && event.epoch % setup_.histogram_epochs == 0) PLIMSOLL_TRY(histograms(event.epoch));
  train_->flush();
  if (validation_) validation_->flush();
  return {};
}

Status TensorBoardLog::histograms(int64_t epoch) {
  PLIMSOLL_ASSIGN(const HostView values, setup_.session->look());
  for (const Weight& weight : setup_.session->model().weights()) {
    const TensorView view = values[weight.name];
    if (view.data == nullptr || view.type.dtype != DType::kFloat32) continue;
    train_->histogram(weight.name + "/histogram", epoch,
                      std::span(view.as<const float>(), static_cast<size_t>(view.elements())));
  }
  return {};
}

Status TensorBoardLog::failed() const {
  if (train_) PLIMSOLL_TRY(train_->failed());
  return validation_ ? validation_->failed() : Status();
}

}  // namespace plimsoll::engine
