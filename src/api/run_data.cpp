#include "api/run_data.h"

#include <algorithm>

#include "model/text/text_inputs.h"

namespace plimsoll::engine {
namespace {

// Training and validation share one graph, so both have sample weights or neither has.
void give_weights(DataSet& set) {
  Column ones;
  ones.role = Role::kWeights;
  if (set.weights.empty()) set.weights.assign(set.targets.size(), ones);
}

Status same_types(const DataTypes& a, const DataTypes& b) {
  if (a.inputs == b.inputs && a.targets == b.targets) return {};
  return fail(Error{ErrorCode::kDataShape,
                    "training and validation data have different dtypes",
                    {},
                    {"convert one of them: array.astype(...)"}});
}

Result<std::unique_ptr<ColumnSource>> make_source(DataSet data, bool weights, SourceOptions options) {
  if (weights) give_weights(data);
  PLIMSOLL_ASSIGN(ColumnSource source, ColumnSource::create(std::move(data), std::move(options)));
  return std::make_unique<ColumnSource>(std::move(source));
}

// The opened data for training and validation.
struct Opened {
  std::optional<DataSet> data, validation;
  SourceOptions train, held_out;

  bool have_weights() const {
    return (data && !data->weights.empty()) || !train.class_weights.empty() ||
           (validation && !validation->weights.empty());
  }
};

ReadOptions read_options(const RunOptions& run) {
  ReadOptions read = run.data.read;
  read.note = run.note;
  read.padding = run.data.padding;
  return read;
}

Result<Opened> open_files(const RunOptions& run, const Model& model) {
  const DataOptions& options = run.data;
  DataSpec spec = data_spec(model, true);
  spec.read = read_options(run);
  if (options.validation_data.empty() && options.validation_split > 0) spec.split_seed = run.seed;
  Opened opened;
  opened.train.shuffle = options.shuffle && !options.buckets;  // BucketWindows shuffles by itself
  opened.train.seed = run.seed;
  if (!options.data.empty()) {
    PLIMSOLL_ASSIGN(opened.data, open_data(options.data, spec));
  }
  if (!options.class_weight.empty()) {
    PLIMSOLL_ASSIGN(opened.train.class_weights, ClassWeights::parse(options.class_weight));
  }
  if (!options.validation_data.empty()) {
    DataSpec held = spec;
    held.split_seed.reset();
    held.split = Split::kValidation;
    PLIMSOLL_ASSIGN(opened.validation, open_data(options.validation_data, held));
  } else if (options.validation_split > 0 && opened.data) {
    PLIMSOLL_ASSIGN(opened.train.end,
                    validation_split_at(opened.data->samples, options.validation_split, opened.data->folder));
    opened.held_out.begin = opened.train.end;
    opened.validation = opened.data;
  }
  return opened;
}

Result<RunData> open_training_data(const RunOptions& options, const Model& model) {
  PLIMSOLL_ASSIGN(Opened opened, open_files(options, model));
  auto& [data, validation, train, held_out] = opened;
  const bool weights = opened.have_weights() || options.data.sample_weights;
  RunData run;
  DataOutline& outline = run.outline;
  outline.types = data         ? data_types(*data, weights)
                  : validation ? data_types(*validation, weights)
                               : assumed_data_types(model, weights);
  if (data && validation) PLIMSOLL_TRY(same_types(outline.types, data_types(*validation, weights)));
  outline.samples = options.data.samples;
  outline.validates = validation || options.data.validation_split > 0 || options.data.validates;
  outline.validation_samples = options.data.validation_samples;
  outline.reads_ahead = reads_ahead(options);
  const DataSet none;
  outline.reader_bytes = row_source_bytes({data ? &*data : &none, validation ? &*validation : &none});
  if (data) {
    PLIMSOLL_ASSIGN(run.source, make_source(std::move(*data), weights, train));
    outline.samples = run.source->samples();
  }
  if (validation) {
    PLIMSOLL_ASSIGN(run.validation, make_source(std::move(*validation), weights, held_out));
    outline.validation_samples = run.validation->samples();
  }
  return run;
}

}  // namespace

DataSpec data_spec(const Model& model, bool needs_targets) {
  DataSpec spec;
  for (const Port& port : model.inputs()) {
    spec.inputs.push_back({port.name, port.sample, false, port.classes, {}});
    spec.inputs.back().text = port.text;
  }
  for (const Port& port : model.outputs())
    if (port.has_loss)
      spec.outputs.push_back({port.name, port.sample, port.sparse_labels, port.classes, port.target, port.ignored_class,
                              port.padded_labels});
  spec.needs_targets = needs_targets;
  return spec;
}

DataTypes data_types(const DataSet& data, bool sample_weights) {
  DataTypes types;
  for (const Column& column : data.inputs) types.inputs.push_back(column.type.dtype);
  for (const Column& column : data.targets) types.targets.push_back(column.type.dtype);
  types.sample_weights = sample_weights;
  return types;
}

DataTypes assumed_data_types(const Model& model, bool sample_weights) {
  DataTypes types;
  for (const Port& port : model.inputs()) types.inputs.push_back(port.text ? port.text->text->dtype() : port.dtype);
  for (const Port& port : model.outputs())
    if (port.has_loss) types.targets.push_back(port.sparse_labels ? DType::kInt32 : DType::kFloat32);
  types.sample_weights = sample_weights;
  return types;
}

bool reads_ahead(const RunOptions& options) {
  if (options.mode != Mode::kTrain) return false;
  return options.forced ? options.forced->prefetch > 0 : options.data.reads_ahead;
}

Split split_of(Mode mode) {
  return mode == Mode::kTrain ? Split::kTrain : Split::kTest;
}

Result<RunData> open_run_data(const RunOptions& options, const Model& model) {
  if (options.mode == Mode::kTrain) return open_training_data(options, model);
  const bool targets = options.mode == Mode::kEvaluate;
  RunData run;
  if (options.data.data.empty()) {
    run.outline.types = assumed_data_types(model, targets && options.data.sample_weights);
    if (!targets) run.outline.types.targets.clear();
    run.outline.samples = options.data.samples;
    return run;
  }
  DataSpec spec = data_spec(model, targets);
  spec.split = split_of(options.mode);
  spec.read = read_options(options);
  PLIMSOLL_ASSIGN(DataSet data, open_data(options.data.data, spec));
  run.outline.types = data_types(data, targets && !data.weights.empty());
  run.outline.reader_bytes = row_source_bytes({&data});
  PLIMSOLL_ASSIGN(run.source, make_source(std::move(data), false, {}));
  run.outline.samples = run.source->samples();
  return run;
}

}  // namespace plimsoll::engine
