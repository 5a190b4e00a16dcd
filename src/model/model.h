// A checked model: layers known, shapes concrete, weights listed. From it graphs are built for any batch size and
// precision.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/description.h"
#include "model/optimizer.h"

namespace plimsoll {

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
  bool sparse_labels = false;     // outputs with a loss: the target is one integer a row
  Shape target;                   // outputs with a loss: the target's shape of one sample ([] for one label a sample)
  int64_t classes = 0;            // with sparse labels: labels must be below
  bool has_loss = false;          // outputs: a target is read for it
  double loss_weight = 1;         // outputs with a loss: the dividend of its loss factor
  int64_t rows_per_sample = 1;    // outputs with a loss: a row is one prediction, and the loss is a mean over rows
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
  std::vector<ValueId> predictions;  // one an output, activation applied
  // Mean over the *effective* batch, this micro-batch's share of it, all outputs with their loss weights, without
  // regularization.
  ValueId loss = kNone;
  std::vector<Tally> tallies;  // metrics, and the loss of each output where there are several
};

// The dtype data arrive in: casts are nodes of the graph.
struct DataTypes {
  std::vector<DType> inputs, targets;
  bool sample_weights = false;  // [N] of T, one an output (class weights are folded in by the data stage)
};

enum class Mode { kTrain, kEvaluate, kPredict };

class Model {
 public:
  // Everything the file asks for that we do not do is listed in one kUnsupported error.
  static Result<Model> create(const Description& description, const ModelOptions& options);

  const std::string& name() const { return name_; }
  const std::vector<Weight>& weights() const {
    return weights_;
  }  // in Keras's order of model.weights... trainable ones in order of trainable_variables
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<LayerInfo>& layers() const { return layers_; }
  const Optimizer& optimizer() const { return optimizer_; }
  // The mixed policy that layers of the file have, or float32 where none has one. Layers in float32 beside mixed ones
  // stay so in any mixed precision.
  const Precision& policy() const { return policy_; }
  Model with_loss_scale() const;                                      // around an optimizer that has none
  bool couples_samples() const { return !coupling_layers_.empty(); }  // in training
  const std::vector<std::string>& coupling_layers() const { return coupling_layers_; }
  // kBadGeometry when a tensor of the forward pass would have more elements than an index can count.
  Status check_batch(int64_t batch) const;
  // Metrics asked for that we do not compute, under the names Keras reports. The compile configuration keeps them.
  const std::vector<std::string>& skipped_metrics() const { return skipped_metrics_; }

  // Adds the forward pass for `batch` samples. Graph inputs (model/values.h): inputs and, not in kPredict, targets, and
  // sample weights where DataTypes says so; persistent ones: every weight by its name (T, the policy's dtype of
  // variables), the loss factors, and the step scalars kOne, kRandom and kFirstSample. Moving statistics become updates
  // in kTrain. Returns through the builder's status() what shapes do not allow.
  Forward build(GraphBuilder& b, int64_t batch, const Precision& precision, Mode mode, const DataTypes& data) const;

 private:
  friend class ModelBuilder;
  std::string name_;
  std::vector<Weight> weights_;
  std::vector<Port> inputs_, outputs_;
  std::vector<LayerInfo> layers_;
  Optimizer optimizer_;
  Precision policy_;
  std::vector<std::string> coupling_layers_;
  std::vector<std::string> skipped_metrics_;
  std::shared_ptr<const struct ModelPlan> plan_;  // the checked layers and calls, private to model/
};

// The sum of the L1 and L2 penalties of all trainable weights (a frozen weight has none, as in Keras), a scalar; kNone
// if there is none. Its gradient comes from autodiff, like the loss's.
ValueId append_penalty(GraphBuilder& b, const Model& model, DType precision);

}  // namespace plimsoll
