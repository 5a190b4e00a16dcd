// A model: an architecture (architecture.h) with the shapes of its inputs. From it graphs are built for any batch size
// and precision.
//
//   the architecture's      name, optimizer, policy; names of inputs, outputs, layers and weights, and which are
//   trained of these shapes         ports, shapes of layers and weights, what couples samples, which metrics are
//   computed
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/architecture.h"

namespace plimsoll::engine {

struct Weight {
  std::string name;       // "conv1/kernel", "backbone/bn/moving_mean": layer path and Keras's variable name; unique
  std::string layer;      // "conv1", "backbone/bn"
  std::string file_path;  // dataset in model.weights.h5: "layers/conv2d/vars/0"
  Shape shape;
  bool trainable = true;  // receives gradients: neither a frozen layer's nor a statistic
  nlohmann::json initializer;
  double l1 = 0, l2 = 0;  // regularization
};

struct Port {
  std::string name;
  Shape sample;                   // without the batch dimension
  DType dtype = DType::kFloat32;  // as the model declares it
  bool sparse_labels = false;     // outputs with a loss: the target is one integer per row
  Shape target;                   // outputs with a loss: the target's shape of one sample ([] for one label per sample)
  int64_t classes = 0;            // with sparse labels: labels must be below
  bool has_loss = false;          // outputs: a target is read for it
  double loss_weight = 1;         // outputs with a loss: the dividend of its loss factor
  int64_t rows_per_sample = 1;    // outputs with a loss: a row is one prediction, and the loss is a mean over rows
  bool masked = false;            // outputs with a loss: the mean is over the rows that a mask names
};

struct LayerInfo {  // for the report
  std::string name, class_name;
  Shape output;  // without the batch
  int64_t parameters = 0;
};

// A number summed over a micro-batch. What is shown is the sum over the window or epoch divided by its weight: the
// number of rows, or, with `weighted`, the sum of the rows' sample weights.
struct Tally {
  std::string name;  // Keras's: "loss", "accuracy", "out_a_loss", "out_a_accuracy"
  ValueId sum = kNone;
  int output = 0;  // which output it belongs to
  int64_t rows_per_sample = 1;
  bool weighted = false;
  bool larger_is_better = false;  // as Keras's callbacks take it: accuracies grow, losses shrink
};

struct Forward {
  std::vector<ValueId> predictions;  // one per output, activation applied
  // Mean over the *effective* batch, this micro-batch's share of it, all outputs with their loss weights, without
  // regularization.
  ValueId loss = kNone;
  std::vector<Tally> tallies;  // metrics, and the loss of each output where there are several
  // In kAccumulate, where the losses are masked: how many rows of this micro-batch there are, and how many count. The
  // loss and the losses among the tallies are means over all rows of the window, to be multiplied by the window's
  // rows / counted once it is over (append_mask_factor).
  ValueId rows = kNone, counted = kNone;
};

// The dtype data arrive in: casts are nodes of the graph.
struct DataTypes {
  std::vector<DType> inputs, targets;
  bool sample_weights = false;  // [N] of T, one per output (class weights are folded in by the data stage)
};

// kTrain reads a whole window, kAccumulate one micro-batch of it.
enum class Mode { kTrain, kAccumulate, kEvaluate, kPredict };

class Model {
 public:
  // Everything the file asks for that we do not do is listed in one kUnsupported error.
  static Result<Model> create(const Description& description, const ModelOptions& options);
  // The same model with inputs of other shapes (one sample each). Its weights have the same names, order and shapes, so
  // both can use one set; kBadGeometry where a weight's shape depends on an input's.
  Result<Model> with_inputs(const std::vector<Shape>& samples) const;

  const Architecture& architecture() const { return architecture_; }
  const std::string& name() const { return architecture_.name(); }
  // In Keras's order of model.weights; the trainable ones among them are in the order of trainable_variables.
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<LayerInfo>& layers() const { return layers_; }
  const Optimizer& optimizer() const { return architecture_.optimizer(); }
  const Precision& policy() const { return architecture_.policy(); }
  Model with_loss_scale() const;  // around an optimizer that has none
  // The denominators of the losses depend on the data: Port::masked. All losses have the same mask then.
  bool has_masked_losses() const;
  bool couples_samples() const { return !coupling_layers_.empty(); }  // in training
  const std::vector<std::string>& coupling_layers() const { return coupling_layers_; }
  // kBadGeometry when a tensor of the forward pass would have more elements than an index can count.
  Status check_batch(int64_t batch) const;
  // Metrics asked for that we do not compute, under the names Keras reports. The compile configuration keeps them.
  const std::vector<std::string>& skipped_metrics() const { return skipped_metrics_; }

  // Adds the forward pass for `batch` samples. Graph inputs (model/values.h): inputs and, not in kPredict, targets, and
  // sample weights where DataTypes says so; persistent ones: every weight by its name (T, the policy's dtype of
  // variables), the loss factors, and the step scalars kOne, kRandom and kFirstSample. Moving statistics become updates
  // in training. Returns through the builder's status() what shapes do not allow.
  Forward build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode, const DataTypes& data) const;

 private:
  friend class ModelBuilder;
  Architecture architecture_;
  std::vector<Weight> weights_;
  std::vector<Port> inputs_, outputs_;
  std::vector<LayerInfo> layers_;
  std::vector<std::string> coupling_layers_;
  std::vector<std::string> skipped_metrics_;
  std::shared_ptr<const struct LayerProgram> program_;  // the calls of the layers, private to model/
};

// rows / counted, or anything where nothing counts (all that it multiplies is 0 then): what turns a mean over all rows
// into one over the rows that count.
ValueId append_mask_factor(GraphBuilder& b, ValueId rows, ValueId counted);

// The sum of the L1 and L2 penalties of all trainable weights (a frozen weight has none, as in Keras), a scalar; kNone
// if there is none. Its gradient comes from autodiff, like the loss's.
ValueId append_penalty(GraphBuilder& b, const Model& model, DType precision);

}  // namespace plimsoll::engine
