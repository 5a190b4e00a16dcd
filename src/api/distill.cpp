#include "api/distill.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "api/lite_feed.h"
#include "api/run.h"
#include "base/digest.h"
#include "data/identity.h"
#include "device/process_memory.h"
#include "formats/npy/npy.h"
#include "shrink/distill_config.h"

namespace plimsoll::engine {
namespace {

// The user's data in the types that a model declares, and as a second target the teacher's probabilities, made of its
// cached logits. Several threads may read; they wait for each other.
class DistillSource final : public BatchSource {
 public:
  // `classes` 0: no second target, and no first one either.
  static Result<DistillSource> open(const RunOptions& options, const Model& model, bool needs_targets, bool shuffle) {
    DataSpec spec = data_spec(model, needs_targets);
    if (needs_targets) spec.outputs.resize(1);
    spec.split = Split::kTrain;
    spec.read = options.data.read;
    spec.read.note = options.note;
    PLIMSOLL_ASSIGN(DataSet data, open_data(options.data.data, spec));
    data.weights.clear();
    if (!needs_targets) data.targets.clear();
    SourceOptions order;
    order.shuffle = shuffle;
    order.seed = options.seed;
    PLIMSOLL_ASSIGN(ColumnSource source, ColumnSource::create(std::move(data), order));
    DistillSource made(std::move(source), order);
    const DataTypes types = assumed_data_types(model, false);
    for (size_t i = 0; i < types.inputs.size(); ++i)
      made.inputs_.push_back({types.inputs[i], made.source_->input_types()[i].shape});
    if (needs_targets) made.targets_.push_back({types.targets[0], made.source_->target_types()[0].shape});
    return made;
  }

  // Adds the teacher's probabilities as the second target.
  Status add_teacher(const std::string& logits, double temperature) {
    PLIMSOLL_ASSIGN(teacher_, open_npy(logits));
    PLIMSOLL_ASSIGN(teacher_file_, File::open_read(teacher_->path));
    temperature_ = temperature;
    const auto& dims = teacher_->dims;
    if (teacher_->dtype != DType::kFloat32 || dims.size() != 2 || dims[0] != samples())
      return fail(ErrorCode::kDataShape, fmt::format("{} does not hold the teacher's logits of these data", logits));
    targets_.push_back({DType::kFloat32, Shape{dims[1]}});
    PLIMSOLL_ASSIGN(order_source_, positions());
    return {};
  }

  const DataSet& data() const { return source_->data(); }
  int64_t samples() const override { return source_->samples(); }
  const std::vector<TensorType>& input_types() const override { return inputs_; }
  const std::vector<TensorType>& target_types() const override { return targets_; }
  bool has_weights() const override { return false; }
  Bytes buffer_bytes() const override {
    Bytes sum = source_->buffer_bytes() + static_cast<Bytes>(numbers_.size() * sizeof(int32_t));
    for (const TensorType& type : source_->input_types()) sum += type.bytes();
    return sum;
  }

  Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) override {
    const std::lock_guard lock(*mutex_);
    for (int64_t i = 0; i < count; ++i) PLIMSOLL_TRY(read_one(epoch, first + i, i, into));
    return {};
  }

 private:
  DistillSource(ColumnSource source, SourceOptions order)
      : order_(std::move(order)), source_(std::make_unique<ColumnSource>(std::move(source))) {
    for (const TensorType& type : source_->input_types()) raw_.emplace_back(static_cast<size_t>(type.bytes()));
    for (const TensorType& type : source_->target_types()) raw_targets_.emplace_back(static_cast<size_t>(type.bytes()));
  }

  // Numbers of the samples, read in the same order as the samples themselves.
  Result<std::unique_ptr<ColumnSource>> positions() {
    numbers_.resize(static_cast<size_t>(samples()));
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<int32_t>(i);
    DataSet data;
    data.samples = samples();
    Column column;
    column.label = "numbers of the samples";
    column.type = {DType::kInt32, Shape{1}};
    column.memory = reinterpret_cast<const std::byte*>(numbers_.data());
    data.inputs.push_back(column);
    PLIMSOLL_ASSIGN(ColumnSource made, ColumnSource::create(std::move(data), order_));
    return std::make_unique<ColumnSource>(std::move(made));
  }

  static void convert(const std::vector<std::byte>& raw, const TensorType& from, const TensorType& to, void* out) {
    lite::Tensor tensor;
    tensor.type = to.dtype == DType::kFloat32 ? lite::Type::kFloat32 : lite::Type::kInt32;
    for (const int64_t d : to.shape.dims) tensor.shape.push_back(static_cast<int32_t>(d));
    fill_input(raw.data(), from.dtype, tensor, out);
  }

  Status read_one(int64_t epoch, int64_t position, int64_t at, const BatchBuffers& into) {
    BatchBuffers raw;
    for (auto& buffer : raw_) raw.inputs.push_back(buffer.data());
    if (!into.targets.empty())
      for (auto& buffer : raw_targets_) raw.targets.push_back(buffer.data());
    PLIMSOLL_TRY(source_->read(epoch, position, 1, raw));
    for (size_t i = 0; i < inputs_.size(); ++i)
      convert(raw_[i], source_->input_types()[i], inputs_[i],
              static_cast<std::byte*>(into.inputs[i]) + at * inputs_[i].bytes());
    if (into.targets.empty()) return {};
    convert(raw_targets_[0], source_->target_types()[0], targets_[0],
            static_cast<std::byte*>(into.targets[0]) + at * targets_[0].bytes());
    if (!teacher_) return {};
    int32_t sample = 0;
    BatchBuffers number;
    number.inputs.push_back(&sample);
    PLIMSOLL_TRY(order_source_->read(epoch, position, 1, number));
    return read_teacher(sample,
                        reinterpret_cast<float*>(static_cast<std::byte*>(into.targets[1]) + at * targets_[1].bytes()));
  }

  // softmax(logits / temperature)
  Status read_teacher(int64_t sample, float* out) {
    const int64_t classes = targets_[1].shape[0];
    const auto row = static_cast<size_t>(targets_[1].bytes());
    PLIMSOLL_TRY(teacher_file_->pread_exact(teacher_->offset + sample * static_cast<int64_t>(row),
                                            {reinterpret_cast<std::byte*>(out), row}));
    const float most = *std::max_element(out, out + classes);
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) sum += out[k] = static_cast<float>(std::exp((out[k] - most) / temperature_));
    for (int64_t k = 0; k < classes; ++k) out[k] = static_cast<float>(out[k] / sum);
    return {};
  }

  SourceOptions order_;
  std::unique_ptr<ColumnSource> source_, order_source_;
  std::vector<TensorType> inputs_, targets_;
  std::vector<std::vector<std::byte>> raw_, raw_targets_;
  std::vector<int32_t> numbers_;
  std::optional<ArraySource> teacher_;
  std::optional<File> teacher_file_;
  double temperature_ = 1;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

// Opens a model and replaces it by a changed form of it. Its file, and what will be saved, stay.
template <typename Change>
Result<OpenModel> open_changed(const RunOptions& options, const Change& change) {
  PLIMSOLL_ASSIGN(OpenModel opened, open_model(options));
  PLIMSOLL_ASSIGN(const Description own, description_of(opened));
  PLIMSOLL_ASSIGN(const Description changed, change(own));
  ModelOptions overrides = options.overrides;
  overrides.loss.reset();
  overrides.metrics.clear();
  PLIMSOLL_ASSIGN(opened.model, Model::create(changed, overrides));
  return opened;
}

Result<std::string> digest_of(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  Digest digest;
  PLIMSOLL_TRY(file.stream(0, file.size(), [&](std::span<const std::byte> piece) -> Status {
    digest.add(piece);
    return {};
  }));
  return digest.text();
}

// What the cached logits belong to.
Result<std::string> cache_identity(const std::string& teacher, const DataSet& data) {
  PLIMSOLL_ASSIGN(const std::string own, digest_of(teacher));
  PLIMSOLL_ASSIGN(const nlohmann::json identity, data_identity(data));
  const std::string all = own + identity.dump();
  Digest digest;
  digest.add(bytes_of_text(all));
  return digest.text();
}

// Writes the teacher's logits for all samples, in the order of the data, unless they are there already.
Status write_logits(const DistillOptions& o, const std::string& path, DistillReport& report) {
  RunOptions options = o.run;
  options.model = o.teacher;
  options.weights.clear();
  options.mode = Mode::kPredict;
  options.overrides = {};
  options.overrides.input_shape = o.run.overrides.input_shape;
  options.overrides.needs_loss = false;
  options.overrides.needs_training = false;
  options.micro_batch.reset();
  PLIMSOLL_ASSIGN(OpenModel opened,
                  open_changed(options, [&](const Description& d) { return with_logits(d, o.teacher); }));
  PLIMSOLL_ASSIGN(DistillSource source, DistillSource::open(o.run, opened.model, false, false));
  report.samples = source.samples();
  PLIMSOLL_ASSIGN(const std::string identity, cache_identity(o.teacher, source.data()));
  const std::string mark = path + ".of";
  if (const auto known = File::open_read(mark); known && known->size() == static_cast<int64_t>(identity.size())) {
    std::string found(identity.size(), '\0');
    if (known->pread_exact(0, std::as_writable_bytes(std::span(found))) && found == identity && open_npy(path)) {
      report.cache_reused = true;
      return {};
    }
  }
  options.data = {};
  options.data.samples = source.samples();
  PLIMSOLL_ASSIGN(const auto run, Run::open(std::move(opened), options));
  PLIMSOLL_TRY(run->plan());
  report.teacher_planned = run->peak_bytes();
  PLIMSOLL_TRY(run->start());
  const Port& port = run->model().outputs()[0];
  if (port.sample.rank() != 1)
    return fail(ErrorCode::kUnsupported, fmt::format("{} does not give one row of classes per sample", o.teacher));
  PLIMSOLL_ASSIGN(NpyWriter writer, NpyWriter::create(path, DType::kFloat32, {source.samples(), port.sample[0]}));
  const int64_t batch = run->session().plan().phase(PhaseKind::kPredict)->samples;
  for (int64_t first = 0; first < source.samples();) {
    if (o.stop != nullptr && o.stop->load())
      return fail(ErrorCode::kInterrupted, "interrupted while the teacher predicted; nothing was written");
    const int64_t count = std::min(batch, source.samples() - first);
    PLIMSOLL_TRY(run->prepare(PhaseKind::kPredict, count));
    PLIMSOLL_TRY(
        run->session().predict(count, [&](const BatchBuffers& into) { return source.read(0, first, count, into); }));
    PLIMSOLL_ASSIGN(const TensorView view, run->session().prediction(count, 0));
    PLIMSOLL_TRY(writer.write({static_cast<const std::byte*>(view.data), static_cast<size_t>(view.type.bytes())}));
    first += count;
    if (o.teacher_progress) o.teacher_progress(first, source.samples());
  }
  PLIMSOLL_TRY(writer.commit());
  PLIMSOLL_ASSIGN(AtomicFile note, AtomicFile::create(mark));
  PLIMSOLL_TRY(note.write(bytes_of_text(identity)));
  return note.commit();
}

Status train(const DistillOptions& o, const std::string& logits, Bytes held, DistillReport& report) {
  RunOptions options = o.run;
  options.mode = Mode::kTrain;
  options.overrides.needs_loss = true;
  options.overrides.needs_training = true;
  options.resident_before = held;
  PLIMSOLL_ASSIGN(OpenModel opened, open_changed(options, [&](const Description& d) -> Result<Description> {
                    PLIMSOLL_ASSIGN(const Description plain, with_logits(d, options.model));
                    return with_teacher(plain, o.temperature, o.alpha, options.model);
                  }));
  PLIMSOLL_ASSIGN(DistillSource source, DistillSource::open(options, opened.model, true, options.data.shuffle));
  PLIMSOLL_TRY(source.add_teacher(logits, o.temperature));
  report.classes = source.target_types()[1].shape[0];
  report.samples = source.samples();
  const Shape& own = opened.model.outputs()[0].sample;
  if (own.rank() != 1 || own[0] != report.classes)
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("the teacher has {} classes, and the student's output is [{}]", report.classes, to_text(own)),
              {},
              {}});
  options.data = {};
  options.data.shuffle = o.run.data.shuffle;
  options.data.samples = source.samples();
  options.resident_before += source.buffer_bytes();
  PLIMSOLL_ASSIGN(const auto run, Run::open(std::move(opened), options));
  PLIMSOLL_TRY(run->plan());
  report.student_planned = run->peak_bytes();
  report.budget_bytes = run->budget().bytes;
  PLIMSOLL_TRY(run->start());
  FitOptions fit_options;
  fit_options.epochs = o.epochs;
  fit_options.seed = options.seed;
  fit_options.stop = o.stop;
  PLIMSOLL_ASSIGN(report.fitted, fit(run->session(), source, nullptr, run->optimizer(), fit_options, *o.observer));
  run->optimizer() = report.fitted.optimizer;
  if (report.fitted.interrupted) return {};
  PLIMSOLL_TRY(run->save(o.output));
  report.peak_bytes = run->session().peak_held_bytes();
  return {};
}

Status validate(const DistillOptions& o, Bytes held, DistillReport& report) {
  RunOptions options = o.run;
  options.mode = Mode::kEvaluate;
  options.model = o.output;
  options.weights.clear();
  options.data.data = o.run.data.validation_data;
  options.data.validation_data.clear();
  options.overrides = {};
  options.overrides.needs_training = false;
  options.micro_batch.reset();
  options.resident_before = held;
  PLIMSOLL_ASSIGN(const auto run, Run::open(options));
  PLIMSOLL_TRY(run->plan());
  PLIMSOLL_TRY(run->start());
  PLIMSOLL_ASSIGN(report.metrics, run->evaluate(o.stop, nullptr));
  report.peak_bytes = std::max(report.peak_bytes, run->session().peak_held_bytes());
  return {};
}

}  // namespace

Result<DistillReport> distill(const DistillOptions& options) {
  DistillReport report;
  const Bytes before = resident_bytes();
  // What an earlier run has left in the process counts against the budget of the next.
  const auto held = [&] { return std::max<Bytes>(0, resident_bytes() - before); };
  report.cache = options.cache.empty() ? options.output + ".teacher.npy" : options.cache;
  PLIMSOLL_TRY(write_logits(options, report.cache, report));
  if (const auto file = File::open_read(report.cache)) report.cache_bytes = file->size();
  PLIMSOLL_TRY(train(options, report.cache, held(), report));
  if (!options.run.data.validation_data.empty() && !report.fitted.interrupted)
    PLIMSOLL_TRY(validate(options, held(), report));
  if (options.cache.empty() && !report.fitted.interrupted) {
    ::unlink(report.cache.c_str());
    ::unlink((report.cache + ".of").c_str());
  }
  return report;
}

}  // namespace plimsoll::engine
