// Embedding: a table of vectors, one per id.
#include <fmt/format.h>

#include <array>

#include "model/expression.h"
#include "model/layer.h"

namespace plimsoll::engine {
namespace {

constexpr int64_t kMostIds = int64_t{1} << 31;  // ids are read as i32

// Returns 1 for each id that is not 0.
ValueId nonzero_ids(const BuildCall& call) {
  const DType dtype = wide(call.precision);
  return (1 - equal(Expression(call.b, call.in()).cast(dtype), 0)).id();
}

Layer embedding(Config& c) {
  const int64_t ids = c.integer("input_dim", 1, kMostIds - 1), width = c.integer("output_dim", 1, kMostElements);
  const WeightConfig table = read_weight(c, "embeddings", "uniform");
  const bool masks = c.flag("mask_zero", false);
  for (const char* key : {"lora_rank", "lora_alpha", "quantization_config"}) c.only(key);
  c.ignore({"input_length", "batch_input_shape"});  // of Keras 2
  const std::string where = c.where();
  Layer layer;
  layer.reads_integers = true;
  layer.float32_weights = true;  // under a mixed policy, Keras reads rows of the float32 table
  if (masks) layer.masking = Masking::kMakes;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    std::vector<int64_t> dims = in[0].dims;
    dims.push_back(width);
    PLIMSOLL_ASSIGN(Shape output, checked_shape(std::move(dims), where));
    PLIMSOLL_ASSIGN(Shape all, checked_shape({ids, width}, where + ": embeddings"));
    return LayerShape(std::move(output), {table.spec("embeddings", std::move(all))});
  };
  layer.build = [=](const BuildCall& call) -> LayerValues {
    const Expression rows(call.b, call.add("embedding", {call.weights[0], call.in()}));
    return {rows.cast(call.precision).id(), masks ? nonzero_ids(call) : kNone};
  };
  return layer;
}

constexpr std::array kLayers = {
    LayerClass{"Embedding", embedding},
};

}  // namespace

std::span<const LayerClass> embedding_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
