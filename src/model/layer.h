// Each layer class is one function that reads a configuration and returns a Layer. The Layer computes shapes and builds
// graph nodes.
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
  std::string name;  // "kernel"; for a sublayer "query/kernel"
  Shape shape;
  Json initializer;
  double l1 = 0, l2 = 0;
  bool frozen = false;  // never gets a gradient: a moving statistic, or a weight of a frozen sublayer
  // The path in the file, relative to the layer's group: "cell/vars/0" for a sublayer. Empty: "vars/I", where I counts
  // the layer's weights that have no path.
  std::string path;
  std::string second_path;  // where Keras writes it once more; "" if it does not
  Regularizer regularizer;  // besides l1 and l2
  std::optional<Constraint> constraint;
};
std::string vars_path(size_t index);  // "vars/0"

// The output size and TensorFlow's padding along one dimension of an image.
struct KernelWindow {
  int64_t output = 0, before = 0, after = 0;
};

// What the elements of a tensor between layers are. In a graph, floats and truth values (0 or 1) have a floating-point
// dtype, integers have i32.
enum class TensorKind : uint8_t { kFloat, kInteger, kTruth };

// A tensor between layers: the shape of one sample, without the batch. A tensor that is shared by all samples (a
// weight, or a function of weights) has no batch, and this is its whole shape. Only operations read such tensors.
struct TensorSpec {
  Shape sample;
  TensorKind kind = TensorKind::kFloat;
  bool shared = false;
};

// The properties of a layer that depend on the shapes of its inputs (without the batch dimension).
struct LayerShape {
  std::vector<Shape> outputs;
  std::vector<WeightSpec> weights;    // in the order of Keras's layer.weights
  std::vector<KernelWindow> windows;  // one per spatial dimension if a kernel slides over an image
  std::vector<LayerShape> sublayers;  // only for layers that call other layers
  std::vector<TensorKind> kinds;      // one per output; empty: all are floats
  std::vector<TensorKind> reads;      // one per input, only for operations
  std::vector<bool> shared;           // one per output: TensorSpec::shared; empty: none is
  std::vector<bool> reads_shared;     // one per input, only for operations

  LayerShape() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a layer with one output and no weights returns its shape
  LayerShape(Shape output, std::vector<WeightSpec> weights_of = {})
      : outputs{std::move(output)}, weights(std::move(weights_of)) {}

  const Shape& output() const { return outputs[0]; }
};

Shape with_batch(int64_t batch, const Shape& sample);

// The values that a layer's call makes, one per output. A layer with one output can return just that value.
struct LayerValues {
  std::vector<ValueId> outputs;
  ValueId mask = kNone;  // the mask of output 0, if the layer makes or merges masks

  // NOLINTNEXTLINE(google-explicit-constructor): a layer with one output returns just that
  LayerValues(ValueId output, ValueId mask_of = kNone) : outputs{output}, mask(mask_of) {}
  explicit LayerValues(std::vector<ValueId> all) : outputs(std::move(all)) {}
};

// The arguments of a layer's call while a graph is built.
struct BuildCall {
  GraphBuilder& b;
  int64_t batch;
  DType precision;
  bool training;
  bool trainable;  // whether this layer is trainable: a frozen BatchNormalization runs in inference mode
  int64_t call;    // number of this call in the program, which is the counter of its random numbers
  std::span<const ValueId> inputs;
  std::span<const ValueId> masks;    // masks of the inputs; kNone if an input has none
  std::span<const ValueId> weights;  // persistent values
  const LayerShape& computed;        // the result of Layer::shape for these inputs
  // The values of this layer's statistics after the calls so far. A BatchNormalization that is called several times
  // updates them in turn.
  std::map<ValueId, ValueId>& statistics;
  DType compute = DType::kFloat32;  // the run's compute dtype, for operations; their `precision` is that of variables

  ValueId in() const { return inputs[0]; }
  // Dimensions of output 0.
  std::vector<int64_t> output_dims() const { return with_batch(batch, computed.output()).dims; }
  const Shape& shape(ValueId id) const { return b.graph().type(id).shape; }
  ValueId add(const std::string& op, std::vector<ValueId> values, Attrs attrs = {}) const {
    return b.add1(op, std::move(values), std::move(attrs));
  }
};

// How a layer treats masks, as in Keras's compute_mask. The mask of a tensor [N,...,C] is [N,...]: 1 for unmasked rows,
// 0 for masked ones. Only output 0 of a layer can have a mask.
enum class Masking {
  kStops,    // the layer ignores masks: its output has none
  kReads,    // the layer reads the mask of its input, and its output has none
  kPasses,   // the output has the mask of one input (Layer::passed_mask)
  kMakes,    // it makes one
  kMerges,   // merges masks of several inputs: the output has one if all inputs have one
  kJoins,    // joins masks of several inputs: the output has one if any input has one
  kChanges,  // a mask would change the layer's computation in an unsupported way: listed as unsupported
};

// Keras's activity_regularizer: l1 * sum|y| + l2 * sum y^2 over each output y of a call, divided by the batch, is part
// of the loss.
struct ActivityPenalty {
  double l1 = 0, l2 = 0;
  explicit operator bool() const { return l1 != 0 || l2 != 0; }
};

struct Layer {
  size_t least_inputs = 1, most_inputs = 1;
  size_t outputs = 1;
  Masking masking = Masking::kStops;
  size_t passed_mask = 0;  // kPasses: the input whose mask the output has
  // Inputs that have no mask any more after the call: as in Keras, MultiHeadAttention removes those of its inputs, and
  // layers that run later see none.
  std::vector<size_t> unmasks;
  bool couples_samples = false;  // couples samples in training, unless frozen
  bool draws = false;            // draws random numbers in training
  // Its ops take the weights in the variables' dtype, whatever the compute dtype: normalisations.
  bool float32_weights = false;
  ActivityPenalty activity;
  // Moves elements of any kind: integers are passed on as i32 if an operation or an Embedding reads them. All other
  // layers read them as floats.
  bool takes_integers = false;
  bool reads_integers = false;  // reads its input as i32, whatever it is: Embedding
  std::string half_cast;  // the half-precision dtype that the call names: the file must have a mixed policy with it
  // Shape errors are kBadGeometry. Features that are unsupported for these shapes are listed in Issues, and a shape is
  // returned anyway.
  std::function<Result<LayerShape>(std::span<const Shape>, Issues&)> shape;
  std::function<LayerValues(const BuildCall&)> build;
  // Replaces weights before the layer's call in training (SpectralNormalization): returns a value per weight, kNone for
  // one that stays. It depends on the weights alone, so all micro-batches of a window share the result.
  std::function<std::vector<ValueId>(GraphBuilder&, std::span<const ValueId> weights)> replace_weights;
  // Set instead of `shape` by operations, whose results also depend on the kinds of their inputs.
  std::function<Result<LayerShape>(std::span<const TensorSpec>, Issues&)> typed_shape;
};

using LayerParser = Layer (*)(Config&);
// Returns the parser of that class, or null. tree.cpp reads InputLayer and nested models.
LayerParser find_layer(std::string_view class_name);
// The same for functions of keras.ops.
std::function<Layer(Config&)> find_operation(std::string_view class_name);
// Returns why a function of keras.ops is not supported; "" if there is no particular reason.
std::string_view refusal_of(std::string_view class_name);
// Returns "sequence layers" or "preprocessing layers" for Keras's classes of a family that is not supported yet, else
// "".
std::string_view later_family(std::string_view class_name);

// An entry of a table that maps class names to parsers. Each layers_*.cpp has one such table.
struct LayerClass {
  std::string_view name;
  LayerParser parse;
};
std::span<const LayerClass> core_layers();
std::span<const LayerClass> image_layers();
std::span<const LayerClass> convolution_layers();
std::span<const LayerClass> pooling_layers();
std::span<const LayerClass> normalization_layers();
std::span<const LayerClass> more_normalization_layers();
std::span<const LayerClass> activation_layers();
std::span<const LayerClass> merge_layers();
std::span<const LayerClass> wrapping_layers();
std::span<const LayerClass> masking_layers();
std::span<const LayerClass> embedding_layers();
std::span<const LayerClass> regularization_layers();
std::span<const LayerClass> dot_layers();
std::span<const LayerClass> application_layers();

// The weights of a layer written in Python.
Layer traced_weights(Config& config);
// The parser of an operation of that module, or null.
std::function<Layer(Config&)> find_traced(std::string_view class_name);

// An activation, shared by Dense(activation=...) and Activation(...). Linear returns its input.
using Activation = std::function<ValueId(const BuildCall&, ValueId)>;
Activation read_activation(Config& config, const std::string& key);

// A weight as described by "PREFIX_initializer", "PREFIX_regularizer" and "PREFIX_constraint" of the configuration.
struct WeightConfig {
  Json initializer;
  double l1 = 0, l2 = 0;
  Regularizer regularizer;
  std::optional<Constraint> constraint;

  WeightSpec spec(std::string name, Shape shape) const {
    return {std::move(name), std::move(shape), initializer, l1, l2, false, "", "", regularizer, constraint};
  }
};
WeightConfig read_weight(Config& config, const std::string& prefix, const std::string& initializer);

// Reads "activity_regularizer", which every class of layers may have.
ActivityPenalty read_activity(Config& config);

// Returns the dtype policy of a layer: mixed_bfloat16, mixed_float16 or float32. float64 counts as float32, because the
// precision is an option of the run. All other policies are listed as unsupported.
Precision read_policy(Config& config);
// For objects that never compute in half precision: a mixed policy is unsupported too.
void check_policy(Config& config);

// Fails unless the sample has `rank` dimensions. Images have 3.
Status need_rank(const Shape& sample, size_t rank, const std::string& where);

// Places a window along one dimension. `kernel` is the effective size, including dilation.
Result<KernelWindow> place_window(int64_t input, int64_t kernel, int64_t stride, bool same, const std::string& where);

// Converts one entry of `axis`, which counts the batch, to a non-negative number; nullopt if it is outside `rank`.
std::optional<int64_t> positive_axis(int64_t axis, size_t rank);

}  // namespace plimsoll::engine
