#include "api/model_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/layers.h"

namespace plimsoll::engine {
namespace {

int64_t elements_of(const Model& model) {
  int64_t sum = 0;
  for (const LayerInfo& layer : model.layers()) sum += layer.output.elements();
  return sum;
}

bool same_outputs(const Model& model, const Model& changed) {
  const auto& before = model.outputs();
  const auto& after = changed.outputs();
  return std::equal(before.begin(), before.end(), after.begin(), after.end(),
                    [](const Port& a, const Port& b) { return a.sample == b.sample; });
}

// How many of the leading sizes of a sample are heights, widths and lengths.
size_t sizes_to_halve(const Port& input) {
  const size_t rank = input.sample.dims.size();
  if (rank >= 3) return rank - 1;
  const bool ids = input.dtype == DType::kInt32 || input.dtype == DType::kInt64 || input.classes > 0;
  return rank == 2 || (rank == 1 && ids) ? 1 : 0;
}

}  // namespace

std::optional<ModelChange> half_input(const Pricing& pricing, const RunOptions& base) {
  const auto& inputs = pricing.run().model().inputs();
  if (inputs.size() != 1 || !base.data.data.empty()) return std::nullopt;
  std::vector<int64_t> sample = base.what_if.input_shape.empty() ? inputs[0].sample.dims : base.what_if.input_shape;
  const size_t halved = sizes_to_halve(inputs[0]);
  if (halved == 0) return std::nullopt;
  for (size_t i = 0; i < halved; ++i) {
    if (sample[i] < 2) return std::nullopt;
    sample[i] /= 2;
  }
  ModelChange change{sample.size() >= 3 ? "half the resolution" : "half the length",
                     "resize the data, and change the model's Input",
                     {{"--input-shape", fmt::format("{}", fmt::join(sample, ","))}},
                     base};
  change.options.what_if.input_shape = change.options.overrides.input_shape = sample;
  return change;
}

std::optional<ModelChange> half_filters(const Pricing&, const RunOptions& base) {
  ModelChange change{"half the filters and units", "change the model in Keras", {}, base};
  change.options.what_if.filters *= 0.5;
  change.flags = {{"--scale-filters", fmt::format("{}", change.options.what_if.filters)}};
  return change;
}

std::optional<ModelChange> smaller_kernels(const Pricing& pricing, const RunOptions& base) {
  const auto description = description_of(pricing.run().opened());
  const int64_t largest = description ? largest_kernel(*description) : 0;
  if (largest < 2 || base.what_if.largest_kernel > 0) return std::nullopt;
  const int64_t size = largest > 3 ? 3 : largest - 1;
  ModelChange change{"smaller kernels",
                     fmt::format("kernels of at most {0} x {0}", size),
                     {{"--max-kernel", fmt::format("{}", size)}},
                     base};
  change.options.what_if.largest_kernel = size;
  return change;
}

std::optional<ModelChange> without_a_layer(const Pricing& pricing, const RunOptions& base) {
  constexpr size_t kMostTried = 8;
  const Run& run = pricing.run();
  std::vector<LayerBytes> layers = layer_bytes(run.model(), run.found().plan);
  std::erase_if(layers, [](const LayerBytes& layer) { return layer.info.parameters == 0; });
  std::stable_sort(layers.begin(), layers.end(),
                   [](const auto& a, const auto& b) { return a.activation_bytes > b.activation_bytes; });
  if (layers.size() > kMostTried) layers.resize(kMostTried);
  std::optional<RunOptions> best;
  int64_t least = elements_of(run.model());
  for (const LayerBytes& layer : layers) {
    RunOptions options = base;
    options.what_if.without_layers.push_back(layer.info.name);
    const auto model = pricing.changed_model(options);
    if (!model || !same_outputs(run.model(), *model) || elements_of(*model) >= least) continue;
    least = elements_of(*model);
    best = options;
  }
  if (!best) return std::nullopt;
  const std::vector<std::string>& without = best->what_if.without_layers;
  return ModelChange{fmt::format("without the layer {}", without.back()),
                     "change the model in Keras",
                     {{"--without-layer", fmt::format("{}", fmt::join(without, ","))}},
                     *best};
}

}  // namespace plimsoll::engine
