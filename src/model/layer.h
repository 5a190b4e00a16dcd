// One layer class is one function: it reads a configuration and returns a Layer, which says what the layer does with
// shapes and with graphs.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "model/config.h"
#include "model/model.h"

namespace plimsoll::engine {

struct WeightSpec {
  std::string name;  // "kernel"; of a sublayer "query/kernel"
  Shape shape;
  Json initializer;
  double l1 = 0, l2 = 0;
  bool frozen = false;  // never receives a gradient: a moving statistic, or a weight of a frozen sublayer
  // Where the file has it, inside the layer's group: "cell/vars/0" of a sublayer. Empty: "vars/I", where I counts the
  // weights of the layer that have no path.
  std::string path;
};
std::string vars_path(size_t index);  // "vars/0"

// An output size and TensorFlow's padding for it, along one dimension of an image.
struct KernelWindow {
  int64_t output = 0, before = 0, after = 0;
};

// What a layer becomes once the shapes of its inputs are known (without the batch dimension).
struct LayerShape {
  std::vector<Shape> outputs;
  std::vector<WeightSpec> weights;    // in Keras's order of layer.weights
  std::vector<KernelWindow> windows;  // where a kernel slides over an image: one per spatial dimension
  std::vector<LayerShape> sublayers;  // of layers that call others

  LayerShape() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a layer with one output and no weights returns its shape
  LayerShape(Shape output, std::vector<WeightSpec> weights_of = {})
      : outputs{std::move(output)}, weights(std::move(weights_of)) {}

  const Shape& output() const { return outputs[0]; }
};

Shape with_batch(int64_t batch, const Shape& sample);

// What a layer's call makes: one value per output. A layer with one output returns just that.
struct LayerValues {
  std::vector<ValueId> outputs;
  ValueId mask = kNone;  // of output 0, where the layer makes or merges masks

  // NOLINTNEXTLINE(google-explicit-constructor): as said above
  LayerValues(ValueId output, ValueId mask_of = kNone) : outputs{output}, mask(mask_of) {}
  explicit LayerValues(std::vector<ValueId> all) : outputs(std::move(all)) {}
};

// What a call of a layer sees while a graph is built.
struct BuildCall {
  GraphBuilder& b;
  int64_t batch;
  DType precision;
  bool training;
  bool trainable;  // of this layer: a frozen BatchNormalization runs in inference mode
  int64_t call;    // number of this call in the program: the counter of its random numbers
  std::span<const ValueId> inputs;
  std::span<const ValueId> masks;    // of the inputs; kNone where there is none
  std::span<const ValueId> weights;  // persistent
  const LayerShape& computed;        // what Layer::shape returned for these inputs
  // What the statistics of this layer hold after the calls so far. A shared BatchNormalization updates them in turn.
  std::map<ValueId, ValueId>& statistics;

  ValueId in() const { return inputs[0]; }
  std::vector<int64_t> output_dims() const { return with_batch(batch, computed.output()).dims; }  // of output 0
  const Shape& shape(ValueId id) const { return b.graph().type(id).shape; }
  ValueId add(const std::string& op, std::vector<ValueId> values, Attrs attrs = {}) const {
    return b.add1(op, std::move(values), std::move(attrs));
  }
};

// What becomes of a mask, as in Keras's compute_mask. The mask of a tensor [N,...,C] is [N,...]: 1 where a row of it
// counts, else 0. Only output 0 of a layer can have one.
enum class Masking {
  kStops,    // the layer does not know masks: its output has none
  kPasses,   // its output has the mask of its input
  kMakes,    // it makes one
  kMerges,   // of several inputs: its output has one where all of them have
  kChanges,  // under a mask the layer computes what we do not do: listed as unsupported
};

struct Layer {
  size_t least_inputs = 1, most_inputs = 1;
  size_t outputs = 1;
  Masking masking = Masking::kStops;
  bool couples_samples = false;  // in training, unless frozen
  bool draws = false;            // random numbers, in training
  bool float32_weights = false;  // its ops take them as they are held, whatever it computes in: normalisations
  // Shape errors are kBadGeometry; what is unsupported for these shapes is listed, and a shape returned all the same.
  std::function<Result<LayerShape>(std::span<const Shape>, Issues&)> shape;
  std::function<LayerValues(const BuildCall&)> build;
};

using LayerParser = Layer (*)(Config&);
// The parser of that class, or null. InputLayer and nested models are read by tree.cpp.
LayerParser find_layer(std::string_view class_name);
LayerParser find_operation(std::string_view class_name);  // of keras.ops

// An entry of a class table; each layers_*.cpp has one.
struct LayerClass {
  std::string_view name;
  LayerParser parse;
};
std::span<const LayerClass> core_layers();
std::span<const LayerClass> image_layers();
std::span<const LayerClass> convolution_layers();
std::span<const LayerClass> pooling_layers();
std::span<const LayerClass> normalization_layers();
std::span<const LayerClass> activation_layers();
std::span<const LayerClass> merge_layers();
std::span<const LayerClass> wrapping_layers();
std::span<const LayerClass> masking_layers();

// An activation: what Dense(activation=...) and Activation(...) share. Linear returns its input.
using Activation = std::function<ValueId(const BuildCall&, ValueId)>;
Activation read_activation(Config& config, const std::string& key);

// A weight as the configuration's "PREFIX_initializer", "PREFIX_regularizer" and "PREFIX_constraint" describe it.
struct WeightConfig {
  Json initializer;
  double l1 = 0, l2 = 0;

  WeightSpec spec(std::string name, Shape shape) const {
    return {std::move(name), std::move(shape), initializer, l1, l2, false, ""};
  }
};
WeightConfig read_weight(Config& config, const std::string& prefix, const std::string& initializer);

// The dtype policy of a layer: mixed_bfloat16, mixed_float16, or float32, as which float64 counts too (the engine's
// precision is a choice of the run); all others are listed.
Precision read_policy(Config& config);
void check_policy(Config& config);  // of what is never computed in half precision: a mixed policy is listed too

// Fails unless the sample has that many dimensions: images have 3.
Status need_rank(const Shape& sample, size_t rank, const std::string& where);

// Places a window along one dimension. `kernel` is the effective size, dilation included.
Result<KernelWindow> place_window(int64_t input, int64_t kernel, int64_t stride, bool same, const std::string& where);

// One entry of `axis`, an integer counted with the batch, made positive; nullopt when it is not inside `rank`.
std::optional<int64_t> positive_axis(int64_t axis, size_t rank);

}  // namespace plimsoll::engine
