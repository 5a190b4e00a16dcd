#include "api/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "api/open_backend.h"
#include "base/checked.h"
#include "data/prefetcher.h"
#include "device/host_room.h"
#include "search/auto_batch.h"

namespace plimsoll::engine {
namespace {

constexpr Bytes kSmallestMargin = 64 * kMiB;

void ask_for_training(const RunOptions& options, int64_t batch_size, const DataOutline& data, SearchRequest& request) {
  request.batch = batch_size * options.accumulation_steps;
  request.accumulation_steps = options.accumulation_steps;
  request.micro_batch = options.micro_batch;
  if (data.samples > 0) {
    request.batch = std::min(request.batch, data.samples);
    request.partial_window = data.samples % request.batch;
  }
  const int64_t inference = options.data.validation_batch > 0 ? options.data.validation_batch : batch_size;
  if (options.data.predicts) request.predict_batch = inference;
  if (!data.validates) return;
  request.evaluate_samples = data.validation_samples;
  request.evaluate_batch = inference;
}

Bytes host_budget_of(const RunOptions& options, const DeviceInfo& device) {
  if (options.host_budget) return *options.host_budget;
  // For a GPU profile, the host of that GPU is unknown.
  const std::string name = canonical_device(options.device);
  const bool here = name == "auto" || name.starts_with("gpu");
  return here && device.own_memory ? free_host_bytes() / 4 * 3 : 0;
}

}  // namespace

Budget choose_budget(const RunOptions& options, const DeviceInfo& device) {
  // The budget cannot exceed the memory of the GPU.
  if (options.budget) return {device.own_memory ? std::min(*options.budget, device.memory_bytes) : *options.budget, 0};
  // If little memory is free, use a quarter of it, because the usual margin may exceed it.
  const Bytes margin = std::min(std::max(kSmallestMargin, device.free_bytes / 20), device.free_bytes / 4);
  return {std::max<Bytes>(device.free_bytes - margin, kMiB), margin};
}

DataDemand data_demand(const Model& model, const DataTypes& types, bool reads_ahead) {
  DataDemand demand;
  const auto add = [&](Bytes sample) {
    demand.per_sample += sample;
    demand.padding += kAlignment;  // upper bound: each array is padded by less than one alignment unit
  };
  for (size_t i = 0; i < types.inputs.size(); ++i) add(TensorType{types.inputs[i], model.inputs()[i].sample}.bytes());
  size_t target = 0;
  for (const Port& port : model.outputs()) {
    if (!port.has_loss || target >= types.targets.size()) continue;
    add(TensorType{types.targets[target++], port.target}.bytes());
    if (types.sample_weights) add(static_cast<Bytes>(sizeof(float)));
  }
  demand.reads_ahead = reads_ahead;
  if (reads_ahead) demand.fixed = Prefetcher::kThreadStack + demand.padding;
  return demand;
}

Bytes held_before(const RunOptions& options, const Backend& backend) {
  return backend.device().info().own_memory ? backend.held_before_bytes() : options.resident_before;
}

Status check_cut(const RunOptions& options) {
  if (!checked_multiply(options.batch_size, options.accumulation_steps))
    return fail(Error{
        ErrorCode::kUsage,
        fmt::format("{} batches of {} are too many samples to count", options.accumulation_steps, options.batch_size),
        {},
        {"a smaller --batch-size or --gradient-accumulation-steps"}});
  if (!options.micro_batch) return {};
  const int64_t micro = *options.micro_batch;
  if (micro > options.batch_size)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("--micro-batch {} is larger than --batch-size {}", micro, options.batch_size),
                      {},
                      {fmt::format("--micro-batch {}", options.batch_size), "remove --micro-batch"}});
  if (micro < options.batch_size && options.forbidden.count(std::string(kMicroBatch)) != 0)
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("--micro-batch {} cuts the batch, which is forbidden", micro),
              {},
              {"remove --micro-batch", fmt::format("remove {} from --forbid, or add it to --allow", kMicroBatch)}});
  return {};
}

Result<SearchRequest> make_request(const RunOptions& options, const Model& model, const Backend& backend,
                                   const DataOutline& data, const Budget& budget) {
  const Device& device = backend.device();
  SearchRequest request;
  request.model = &model;
  request.device = &device;
  PLIMSOLL_ASSIGN(request.graph.precision, parse_precision(options.precision));
  request.graph.data = data.types;
  request.data = data_demand(model, data.types, data.reads_ahead);
  request.data.held_before = held_before(options, backend);
  request.data.readers = data.reader_bytes;
  if (options.data.keeps_windows && !device.info().own_memory) {
    const auto window = checked_multiply(options.batch_size, options.accumulation_steps);
    const auto bytes = window ? checked_multiply(*window, request.data.per_sample) : std::nullopt;
    const auto held = bytes ? checked_add(request.data.held_before, *bytes) : std::nullopt;
    if (!held) return fail(ErrorCode::kUsage, "the batches of a window are too large to count");
    request.data.held_before = *held;
  }
  request.batch = 0;
  if (options.mode == Mode::kTrain) ask_for_training(options, options.batch_size, data, request);
  if (options.mode == Mode::kEvaluate) {
    request.evaluate_batch = options.batch_size;
    request.evaluate_samples = data.samples;
    if (options.data.predicts) request.predict_batch = options.batch_size;
  }
  if (options.mode == Mode::kPredict) {
    request.predict_batch = options.batch_size;
    request.predict_samples = data.samples;
  }
  request.per_micro_batch_norm = options.per_micro_batch_norm;
  request.forbidden = options.forbidden;
  request.budget = budget.bytes;
  request.host_budget = host_budget_of(options, device.info());
  request.host_budget_asked = options.host_budget.has_value();
  if (options.host_budget == Bytes{0}) request.forbidden.insert(std::string(kOffload));
  request.find_least = options.find_least;
  return request;
}

Result<AutomaticBatch> automatic_batch(const RunOptions& options, const Model& model, const Backend& backend,
                                       const Device& device, const DataOutline& data, const Budget& budget) {
  const int64_t samples = data.samples;
  if (options.mode != Mode::kTrain)
    return AutomaticBatch{
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::min(samples, kLargestAutomaticBatch)))), ""};
  PLIMSOLL_ASSIGN(SearchRequest any, make_request(options, model, backend, data, budget));
  any.device = &device;
  const auto request_of = [&](int64_t batch_size) {
    SearchRequest request = any;
    ask_for_training(options, batch_size, data, request);
    return request;
  };
  PLIMSOLL_ASSIGN(const BestBatch best, best_batch(request_of, samples));
  AutomaticBatch chosen{best.size, ""};
  if (best.next_times > 0)
    chosen.why = fmt::format(", the fastest per sample: {} would take {:.2f}x as long", 2 * best.size, best.next_times);
  else if (samples > 0 && samples / options.accumulation_steps / 2 < chosen.size)
    chosen.why = fmt::format(", the largest power of two that {} samples make", samples);
  else if (samples == 0 && chosen.size == kLargestAutomaticBatch)
    chosen.why = ", the maximum without --data";
  else if (chosen.size > 1)
    chosen.why = ", the largest power of two that fits in one piece";
  return chosen;
}

}  // namespace plimsoll::engine
