#include "explain/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/checked.h"

namespace plimsoll::engine::explain {
namespace {

constexpr size_t kMostNames = 4;  // per chunk size

using ByBytes = std::multimap<Bytes, std::string>;

void add(ByBytes& known, const std::optional<int64_t>& elements, Bytes width, std::string what) {
  const auto bytes = elements ? checked_multiply(*elements, width) : std::nullopt;
  const auto rounded = bytes ? checked_align_up(*bytes, kAlignment) : std::nullopt;
  if (rounded && *rounded > kAlignment) known.emplace(*rounded, std::move(what));
}

void add_weights(ByBytes& known, const Model& model, const Plan& plan) {
  const Bytes width = size_of(model.policy().variables);
  std::map<Bytes, int64_t> slots;  // optimizer values by their bytes
  for (const PersistentSlot& slot : plan.persistent)
    if (slot.category == Category::kOptimizer) ++slots[slot.type.bytes()];
  std::map<Bytes, int64_t> trainable;
  for (const Weight& weight : model.weights())
    if (weight.trainable) ++trainable[weight.shape.elements() * width];
  for (const Weight& weight : model.weights()) {
    const Bytes bytes = weight.shape.elements() * width;
    const int64_t of_each = weight.trainable && trainable[bytes] > 0 ? slots[bytes] / trainable[bytes] : 0;
    std::string what = weight.name + ": the weight";
    if (weight.trainable) what += ", its gradient";
    if (of_each > 0) what += fmt::format(", {} optimizer slot{}", of_each, of_each > 1 ? "s" : "");
    add(known, weight.shape.elements(), width, std::move(what));
  }
}

void add_activations(ByBytes& known, const Model& model, int64_t batch) {
  const Bytes width = size_of(model.policy().compute);
  for (const LayerInfo& layer : model.layers())
    add(known, checked_multiply(layer.output.elements(), batch), width,
        fmt::format("output of {} for {} samples, or its gradient", layer.name, batch));
  for (const Port& input : model.inputs())
    add(known, checked_multiply(input.sample.elements(), batch), size_of(input.dtype),
        fmt::format("input {} for {} samples", input.name, batch));
}

// A chunk that holds far more samples than a batch is a data set.
std::string samples_in(Bytes bytes, const Model& model, int64_t batch) {
  for (const Port& input : model.inputs())
    for (const DType dtype : {input.dtype, DType::kUInt8, DType::kFloat64}) {
      const Bytes sample = input.sample.elements() * size_of(dtype);
      // The rounding to 256 bytes is below one sample, or the count is not certain.
      if (sample < kAlignment || bytes / sample < 4 * batch || bytes % sample >= kAlignment) continue;
      return fmt::format("{} samples of input {} as {}: a data set, not a batch", count_words(bytes / sample),
                         input.name, keras_name(dtype));
    }
  return "";
}

}  // namespace

void name_chunks(std::vector<ChunkLine>& chunks, const Model& model, const Plan& plan, int64_t batch) {
  ByBytes known;
  add_weights(known, model, plan);
  add_activations(known, model, batch);
  for (ChunkLine& chunk : chunks) {
    const auto [first, last] = known.equal_range(chunk.bytes);
    size_t named = 0;
    for (auto one = first; one != last && named < kMostNames; ++one, ++named) chunk.what.push_back(one->second);
    if (const auto more = static_cast<size_t>(std::distance(first, last)); more > named)
      chunk.what.push_back(fmt::format("and {} more of this size", more - named));
    if (first != last) continue;
    if (const std::string samples = samples_in(chunk.bytes, model, batch); !samples.empty())
      chunk.what.push_back(samples);
  }
}

}  // namespace plimsoll::engine::explain
