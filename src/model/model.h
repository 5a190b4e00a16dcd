// A model: an architecture (architecture.h) together with the shapes of its inputs. Graphs can be built from it for any
// batch size and precision.
//
// The architecture gives the name, optimizer, policy, the names of inputs, outputs, layers and weights, and which
// weights are trained. The input shapes give the ports, the shapes of layers and weights, which layers couple samples,
// and which metrics are computed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/architecture.h"

namespace plimsoll::engine {

// Keras's OrthogonalRegularizer: the mean absolute cosine of all pairs of rows or columns, times the factor.
struct Regularizer {
  double orthogonal = 0;
  bool rows = true;
};

struct TextInput;

struct Weight {
  std::string name;       // layer path and Keras's variable name: "conv1/kernel", "backbone/bn/moving_mean"; unique
  std::string layer;      // "conv1", "backbone/bn"
  std::string file_path;  // dataset in model.weights.h5: "layers/conv2d/vars/0"
  std::string second_file_path;  // another dataset with the same values; "": there is none
  Shape shape;
  bool trainable = true;  // gets gradients; false for statistics and weights of frozen layers
  nlohmann::json initializer;
  double l1 = 0, l2 = 0;  // regularization
  Regularizer regularizer;
  std::optional<Constraint> constraint;
};

struct Port {
  std::string name;
  Shape sample;                   // without the batch dimension
  DType dtype = DType::kFloat32;  // declared by the model
  bool sparse_labels = false;     // outputs with a loss: the target is one integer per row
  Shape target;  // outputs with a loss: the target's shape for one sample ([] for one label per sample)
  // With sparse labels: a sample may have fewer than `target` says; 0 fills the rest.
  bool padded_labels = false;
  // With sparse labels: labels must be below this. Inputs that an Embedding reads: ids must be; 0: no limit.
  int64_t classes = 0;
  bool has_loss = false;        // outputs: whether a target is read
  double loss_weight = 1;       // outputs with a loss: the numerator of its loss factor
  bool loss_is_sum = false;     // outputs with a loss: its rows are added up; else the loss is a mean over rows
  int64_t rows_per_sample = 1;  // outputs with a loss: a row is one prediction
  // Outputs with a loss: the mean is over the unmasked rows, or the rows are divided by the sum of their weights.
  bool masked = false;
  std::optional<int64_t> ignored_class;   // outputs with sparse labels: a label that may lie outside of the classes
  std::shared_ptr<const TextInput> text;  // inputs whose numbers are made from strings where the data are read
};

struct LayerInfo {  // for the report
  std::string name, class_name;
  Shape output;  // without the batch
  int64_t parameters = 0;
};

// Numbers that are summed over a micro-batch. The reported value is a function of the sums over the window or epoch. If
// it has no such function, there is one number, and its mean is reported: divided by its weight, which is the number of
// rows, or with `weighted` the sum of the rows' sample weights.
struct Tally {
  std::string name;  // Keras's name: "loss", "accuracy", "out_a_loss", "out_a_accuracy"
  ValueId sum = kNone;
  int output = 0;  // index of the output it belongs to
  int64_t rows_per_sample = 1;
  bool weighted = false;
  bool larger_is_better = false;  // as in Keras's callbacks: true for accuracies, false for losses
  bool is_loss = false;           // the loss of an output, without its weight
  bool per_batch = false;         // the sum is the value of a batch; its mean over batches is weighted by their samples
  Shape shape;                    // of the sums: [] or [K]
  std::function<double(std::span<const double>)> result;
  std::function<double(double)> of_mean;
  std::function<std::vector<double>(std::span<const double>)> elements;  // of a metric that is a vector

  size_t size() const { return static_cast<size_t>(shape.elements()); }
};

struct Forward {
  std::vector<ValueId> predictions;  // one per output, after the activation
  // This micro-batch's share of the mean over the *effective* batch: the sum over all outputs with their loss weights,
  // without regularization.
  ValueId loss = kNone;
  std::vector<Tally> tallies;  // metrics, and each output's loss if there are several outputs
  // Set in kAccumulate if the losses are masked: the number of rows in this micro-batch, and of unmasked rows. The loss
  // and the losses among the tallies are then means over all rows of the window, to be multiplied by the window's rows
  // / counted at its end (append_mask_factor).
  ValueId rows = kNone, counted = kNone;
  // In kTrain: the values that a weight has during the step, if a layer replaces it (Layer::replace_weights). Each is
  // the weight of one call, and the loss has a gradient with respect to each.
  std::map<ValueId, std::vector<ValueId>> replaced;

  // The value of a persistent weight after the forward pass.
  ValueId current(ValueId weight) const {
    const auto found = replaced.find(weight);
    return found == replaced.end() ? weight : found->second.back();
  }
};

// The dtypes of the data. Casts are nodes of the graph.
struct DataTypes {
  std::vector<DType> inputs, targets;
  bool sample_weights = false;  // the graph reads sample weights: [N] of T, one per output, with class weights included
};

// kTrain reads a whole window, kAccumulate one micro-batch of a window.
enum class Mode { kTrain, kAccumulate, kEvaluate, kPredict };

class Model {
 public:
  // Fails with one kUnsupported error that lists every unsupported feature of the file.
  static Result<Model> create(const Description& description, const ModelOptions& options);
  // Returns the same model with inputs of other shapes (for one sample each). Its weights have the same names, order
  // and shapes, so both models can share them. Fails with kBadGeometry if a weight's shape depends on an input's shape.
  Result<Model> with_inputs(const std::vector<Shape>& samples) const;

  const Architecture& architecture() const { return architecture_; }
  const std::string& name() const { return architecture_.name(); }
  // In the order of Keras's model.weights. The trainable ones among them are in the order of trainable_variables.
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<LayerInfo>& layers() const { return layers_; }
  const Optimizer& optimizer() const { return architecture_.optimizer(); }
  const Precision& policy() const { return architecture_.policy(); }
  Model with_loss_scale() const;  // adds loss scaling to an optimizer that has none
  // Returns whether the denominator of the losses depends on the data (Port::masked) and is applied at the end of a
  // window: all losses have the same mask. Losses with different masks couple samples instead.
  bool has_masked_losses() const;
  bool couples_samples() const { return !coupling_layers_.empty(); }  // in training
  const std::vector<std::string>& coupling_layers() const { return coupling_layers_; }
  // Fails with kBadGeometry if a tensor of the forward pass would have more elements than an index can count.
  Status check_batch(int64_t batch) const;
  // Requested metrics that are not computed, with the names that Keras reports. The compile configuration keeps them.
  const std::vector<std::string>& skipped_metrics() const { return skipped_metrics_; }

  // Adds the forward pass for `batch` samples. Graph inputs (model/values.h): the inputs; the targets, except in
  // kPredict; sample weights if DataTypes says so. Persistent inputs: every weight by its name (with dtype T, the
  // policy's dtype of variables), the loss factors, and the step scalars kOne, kRandom and kFirstSample. In training,
  // moving statistics become updates. Shape errors are returned by the builder's status().
  Forward build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode, const DataTypes& data) const;
  // Adds what must happen to weights before the first micro-batch of a window. kTrain does it inside the forward pass.
  void replace_weights(GraphBuilder& b, const Precision& precision) const;

 private:
  friend class ModelBuilder;
  Architecture architecture_;
  std::vector<Weight> weights_;
  std::vector<Port> inputs_, outputs_;
  std::vector<LayerInfo> layers_;
  std::vector<std::string> coupling_layers_;
  std::vector<std::string> skipped_metrics_;
  std::shared_ptr<const struct LayerProgram> program_;  // the layers' calls; private to model/
};

// Returns rows / counted, which turns a mean over all rows into a mean over the unmasked rows, or into a sum divided by
// the sum of weights. 0 if `counted` is 0, as Keras's divide_no_nan.
ValueId append_mask_factor(GraphBuilder& b, ValueId rows, ValueId counted);

// Returns the sum of the L1 and L2 penalties of all trainable weights as a scalar (as in Keras, a frozen weight has
// none); kNone if there are none. Autodiff derives its gradient, like that of the loss. `forward`: the forward pass in
// the same graph, which may have replaced weights.
ValueId append_penalty(GraphBuilder& b, const Model& model, DType precision, const Forward& forward = {});

}  // namespace plimsoll::engine
