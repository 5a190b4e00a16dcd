#include "cli/sources.h"

#include <fmt/format.h>

#include <algorithm>

#include "search/batch.h"

namespace plimsoll {
namespace {

// One graph serves training and validation: both give weights or neither does.
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

}  // namespace

Status DataFlags::check() const {
  if (validation_split < 0 || validation_split >= 1)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--validation-split takes a fraction from 0 to below 1, got {}", validation_split),
                      {},
                      {"--validation-split 0.2"}});
  return {};
}

CLI::Option* add_data_flags(CLI::App& command, DataFlags& flags, const std::string& data_text) {
  command.add_option("--validation-data", flags.validation_data, "as --data");
  command.add_option("--validation-split", flags.validation_split, "the last part of --data, held out");
  command.add_option("--validation-batch-size", flags.validation_batch, "default: --batch-size")
      ->check(whole_above_zero());
  command.add_option("--class-weight", flags.class_weight, "0:1,1:5");
  return command.add_option("--data", flags.data, data_text);
}

Result<Sources> open_sources(const DataFlags& flags, const Model& model) {
  const DataSpec spec = data_spec(model, true);
  std::optional<DataSet> data, validation;
  SourceOptions train{0, -1, flags.shuffle, flags.seed, {}}, held_out;
  if (!flags.data.empty()) {
    PLIMSOLL_ASSIGN(data, open_data(flags.data, spec));
  }
  if (!flags.class_weight.empty()) {
    PLIMSOLL_ASSIGN(train.class_weights, ClassWeights::parse(flags.class_weight));
  }
  if (!flags.validation_data.empty()) {
    DataSpec held = spec;
    held.split = Split::kValidation;
    PLIMSOLL_ASSIGN(validation, open_data(flags.validation_data, held));
  } else if (flags.validation_split > 0 && data) {
    PLIMSOLL_ASSIGN(train.end, validation_split_at(data->samples, flags.validation_split));
    held_out.begin = train.end;
    validation = data;
  }
  const bool weights =
      (data && !data->weights.empty()) || !train.class_weights.empty() || (validation && !validation->weights.empty());
  Sources sources;
  sources.validates = validation || flags.validation_split > 0;
  sources.types = data         ? data_types(*data, weights)
                  : validation ? data_types(*validation, weights)
                               : assumed_data_types(model, weights);
  if (data && validation) PLIMSOLL_TRY(same_types(sources.types, data_types(*validation, weights)));
  if (data) {
    PLIMSOLL_ASSIGN(sources.train, make_source(std::move(*data), weights, train));
  }
  if (validation) {
    PLIMSOLL_ASSIGN(sources.validation, make_source(std::move(*validation), weights, held_out));
  }
  return sources;
}

Result<TrainingRequest> training_request(const CommonFlags& common, const DataFlags& flags, const Model& model,
                                         const Device& device, const Sources& sources, const Budget& budget) {
  PLIMSOLL_TRY(common.check_cut());
  PLIMSOLL_ASSIGN(const Precision precision, parse_precision(common.job.precision));
  const int64_t samples = sources.samples();
  const auto request_of = [&](int64_t batch_size) {
    SearchRequest request = base_request(common.job, model, device, precision, sources.types, budget);
    request.batch = batch_size * common.job.accumulation_steps;
    if (samples > 0) {
      request.batch = std::min(request.batch, samples);
      request.partial_window = samples % request.batch;
    }
    if (sources.validates) {
      request.evaluate_samples = sources.validation ? sources.validation->samples() : 0;
      request.evaluate_batch = flags.validation_batch > 0 ? flags.validation_batch : batch_size;
    }
    request.data = data_demand(model, sources.types, true);
    return request;
  };
  const auto why = [&](int64_t chosen) -> std::string {
    if (samples > 0 && samples / common.job.accumulation_steps / 2 < chosen)
      return fmt::format(", the largest power of two that {} samples make", samples);
    if (samples == 0 && chosen == kLargestAutomaticBatch) return ", the most it takes without --data";
    return chosen > 1 ? ", the largest power of two that fits in one piece" : "";
  };
  int64_t batch_size = common.job.batch_size;
  if (common.job.automatic_batch) {
    PLIMSOLL_ASSIGN(batch_size, largest_batch(request_of, samples));
    message(common, fmt::format("--batch-size auto: {}{}", batch_size, why(batch_size)));
  }
  PLIMSOLL_TRY(model.check_batch(batch_size * common.job.accumulation_steps));
  return TrainingRequest{request_of(batch_size), batch_size};
}

}  // namespace plimsoll
