#include "api/run_data.h"

#include <algorithm>

#include "base/json.h"
#include "device/machine.h"
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
  std::vector<CachePlan> caches;
  SourceOptions train, held_out;

  bool have_weights() const {
    return (data && !data->weights.empty()) || !train.class_weights.empty() ||
           (validation && !validation->weights.empty());
  }
};

// Memory that the kernel's page cache may take: half of what lies beyond the budget. It depends on the machine and the
// cgroup alone, not on what is free now, so that a run that is resumed reads its data in the same way.
Bytes page_room(const RunOptions& run) {
  const HostState host = read_host();
  const Bytes room = host.cgroup && host.cgroup->limit ? std::min(host.memory, *host.cgroup->limit) : host.memory;
  return run.budget && *run.budget > 0 ? std::max<Bytes>(room - *run.budget, 0) / 2 : room / 4;
}

ReadOptions read_options(const RunOptions& run) {
  ReadOptions read = run.data.read;
  read.note = run.note;
  read.cache.page_room = read.shuffle.page_room = page_room(run);
  read.shuffle.folder = read.cache.folder;
  read.padding = run.data.padding;
  return read;
}

// Puts a cache before each input that is decoded. All columns of a source get the same one. What a cache takes of the
// disk and of memory is no longer there for the next.
void cache_pictures(DataSet& set, ReadOptions& read, std::vector<CachePlan>& plans) {
  for (size_t i = 0; i < set.inputs.size(); ++i) {
    const std::shared_ptr<RowSource> inner = set.inputs[i].rows;
    if (!inner || !inner->decoding(set.inputs[i].field)) continue;
    if (read.cache.when == CacheOptions::When::kOff) {  // the verdict still says what a cache would do
      const Decoding decoding = *inner->decoding(set.inputs[i].field);
      plans.push_back(plan_cache(read.cache, decoding, set.samples, set.inputs[i].type.shape.elements(), 0));
      continue;
    }
    const auto cached = std::make_shared<CachedRows>(inner, set.inputs[i].field, set.samples,
                                                     set.inputs[i].type.shape.elements(), read.cache, read.note);
    for (auto* columns : {&set.inputs, &set.targets, &set.weights})
      for (Column& column : *columns)
        if (column.rows == inner) column.rows = cached;
    plans.push_back(cached->plan());
    if (!cached->plan().used) continue;
    const Bytes taken = cached->plan().disk_bytes();
    if (read.cache.most > 0) read.cache.most = std::max<Bytes>(read.cache.most - taken, 1);
    read.cache.page_room = std::max<Bytes>(read.cache.page_room - taken, 0);
  }
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
    cache_pictures(*opened.data, spec.read, opened.caches);
  }
  if (!options.class_weight.empty()) {
    PLIMSOLL_ASSIGN(opened.train.class_weights, ClassWeights::parse(options.class_weight));
  }
  if (!options.validation_data.empty()) {
    DataSpec held = spec;
    held.split_seed.reset();
    held.split = Split::kValidation;
    PLIMSOLL_ASSIGN(opened.validation, open_data(options.validation_data, held));
    cache_pictures(*opened.validation, held.read, opened.caches);
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
  auto& [data, validation, caches, train, held_out] = opened;
  const bool weights = opened.have_weights() || options.data.sample_weights;
  RunData run;
  run.caches = std::move(caches);
  DataOutline& outline = run.outline;
  outline.types = data         ? data_types(*data, weights)
                  : validation ? data_types(*validation, weights)
                               : assumed_data_types(model, weights);
  if (data && validation) PLIMSOLL_TRY(same_types(outline.types, data_types(*validation, weights)));
  outline.samples = options.data.samples;
  outline.validates = validation || options.data.validation_split > 0 || options.data.validates;
  outline.validation_samples = options.data.validation_samples;
  outline.reads_ahead = reads_ahead(options);
  if (data && train.shuffle) {
    const int64_t end = train.end < 0 ? data->samples : train.end;
    run.shuffle = train.plan = plan_shuffle(read_options(options).shuffle, *data, end - train.begin);
    train.note = options.note;
  }
  const DataSet none;
  outline.reader_bytes = row_source_bytes({data ? &*data : &none, validation ? &*validation : &none});
  if (run.shuffle) outline.reader_bytes += run.shuffle->memory_bytes();
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

std::vector<std::string> data_lines(const RunData& data) {
  std::vector<std::string> lines;
  for (const CachePlan& cache : data.caches)
    if (cache.asked) lines.push_back(cache_text(cache));
  if (data.shuffle && data.shuffle->by_disk) lines.push_back(shuffle_text(*data.shuffle));
  return lines;
}

nlohmann::ordered_json data_json(const RunData& data) {
  nlohmann::ordered_json json;
  for (const CachePlan& cache : data.caches) {
    nlohmann::ordered_json one = ordered_object({{"used", cache.used}, {"work", cache.work}});
    if (cache.used)
      one.update(ordered_object({{"folder", cache.folder},
                                 {"disk_bytes", cache.disk_bytes()},
                                 {"records", cache.records},
                                 {"kept", cache.kept},
                                 {"exact", !cache.rounds},
                                 {"make_seconds", cache.make_seconds},
                                 {"read_seconds", cache.read_seconds}}));
    else
      one["why"] = cache.why;
    json["caches"].push_back(one);
  }
  if (data.shuffle && data.shuffle->entry_bytes > 0)
    json["shuffle"] = ordered_object({{"by", data.shuffle->by_disk ? "disk" : "index"},
                                      {"buckets", data.shuffle->buckets},
                                      {"disk_bytes", data.shuffle->by_disk ? data.shuffle->disk_bytes() : 0},
                                      {"memory_bytes", data.shuffle->memory_bytes()},
                                      {"index_seconds", data.shuffle->index_seconds},
                                      {"disk_seconds", data.shuffle->disk_seconds}});
  return json;
}

}  // namespace plimsoll::engine
