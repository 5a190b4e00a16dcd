/// @file
/// Descriptions of models, which are read from Keras or built from layers.
///
/// @code
/// using namespace plimsoll;
/// auto model = require(sequential({layers::Input({28, 28, 1}),
///                                  layers::Conv2D(32, 3, {.activation = "relu"}),
///                                  layers::Flatten(),
///                                  layers::Dense(10, {.activation = "softmax"})}));
/// model = require(model.compile({.optimizer = optimizers::Adam(),
///                                .loss = losses::SparseCategoricalCrossentropy(),
///                                .metrics = {"accuracy"}}));
/// @endcode
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "plimsoll/error.h"
#include "plimsoll/layer.h"
#include "plimsoll/layers.h"
#include "plimsoll/losses.h"
#include "plimsoll/optimizers.h"

#pragma GCC visibility push(default)
namespace plimsoll {

namespace engine {
struct DescribedModel;
}

/// An argument of compile() with a value per output of the model: nothing, one value for all outputs, a list with one
/// value per output, or pairs of an output's name and its value.
template <typename T>
class PerOutput {
 public:
  using Named = std::vector<std::pair<std::string, T>>;  ///< Pairs of an output's name and its value.

  PerOutput() = default;  ///< Nothing.
  /// One value for all outputs.
  template <typename One>
  requires std::convertible_to<One, T> PerOutput(const One& one)
      : value_(T(one)) {}  // NOLINT(google-explicit-constructor)
  /// One value per output, in the order of the outputs.
  PerOutput(std::initializer_list<T> list) : value_(std::vector<T>(list)) {}  // NOLINT(google-explicit-constructor)
  /// One value per output, in the order of the outputs.
  PerOutput(const std::vector<T>& list) : value_(list) {}  // NOLINT(google-explicit-constructor)
  /// Values by the names of the outputs.
  PerOutput(std::initializer_list<std::pair<std::string, T>> named)
      : value_(Named(named)) {}  // NOLINT(google-explicit-constructor)
  /// Values by the names of the outputs.
  PerOutput(const Named& named) : value_(named) {}  // NOLINT(google-explicit-constructor)

  /// Nothing, one value, a list, or named values.
  const std::variant<std::monostate, T, std::vector<T>, Named>& value() const { return value_; }

 private:
  std::variant<std::monostate, T, std::vector<T>, Named> value_;
};

/// Metrics: a list for a model with one output, {"accuracy", "mae"}, or lists by the name of the output,
/// {{"price", {"mae"}}, {"kind", {"accuracy"}}}. As in Keras, a plain list for a model with several outputs has one
/// metric per output.
class Metrics {
 public:
  using Named = std::vector<std::pair<std::string, std::vector<Metric>>>;  ///< An output's name and its metrics.

  Metrics() = default;  ///< No metrics.
  /// A list.
  Metrics(std::initializer_list<Metric> list)
      : value_(std::vector<Metric>(list)) {}  // NOLINT(google-explicit-constructor)
  /// A list.
  Metrics(const std::vector<Metric>& list) : value_(list) {}  // NOLINT(google-explicit-constructor)
  /// Lists by the names of the outputs.
  Metrics(std::initializer_list<std::pair<std::string, std::vector<Metric>>> named)
      : value_(Named(named)) {}  // NOLINT(google-explicit-constructor)
  /// Lists by the names of the outputs.
  Metrics(const Named& named) : value_(named) {}  // NOLINT(google-explicit-constructor)

  /// A list, or lists by output.
  const std::variant<std::vector<Metric>, Named>& value() const { return value_; }

 private:
  std::variant<std::vector<Metric>, Named> value_;
};

/// The arguments of Description::compile(). They match those of Keras's Model.compile.
struct CompileOptions {
  Optimizer optimizer = optimizers::Adam();  ///< How weights are updated.
  /// The loss to minimise (required): one loss for all outputs, one per output, or losses by the names of the outputs.
  PerOutput<Loss> loss = {};
  /// The factor of each output's loss in the sum that is minimised; 1 by default.
  PerOutput<double> loss_weights = {};
  Metrics metrics = {};           ///< Reported in addition to the loss, without sample weights.
  Metrics weighted_metrics = {};  ///< Reported in addition to the loss, with sample weights.
};

/// The description of a model: its layers, their connections, and its compile configuration. It is an immutable value
/// that is cheap to copy. Any number of threads may use the same object. Every Description is checked when it is made.
/// If Plimsoll cannot read a model, the function that makes the Description fails: with P204 if the configuration is
/// not valid, or with P205 and a list of all features that are not supported.
class Description {
 public:
  Description(const Description&) = default;             ///< The same model.
  Description& operator=(const Description&) = default;  ///< The same model.

  /// Reads a model from the JSON of Keras's `model.to_json()`. `compile_config` is the JSON of
  /// `model.get_compile_config()`, or empty for a model that is not compiled. Fails with P204 or P205.
  static Result<Description> from_json(std::string_view architecture, std::string_view compile_config = {});
  /// Loads a `.keras` file with its weights, or a `.json` file of `model.to_json()`. The weights are read later, when a
  /// model is made from the description, so the file must still exist then. Fails with P202 to P205 or P213.
  static Result<Description> load(const std::string& path);
  /// Returns a built-in model, compiled: "fashion-cnn", "seed-1", "seed-2" or "seed-3". Fails with P201 for other
  /// names.
  static Result<Description> builtin(const std::string& name);

  /// Returns the same model with this optimizer and these losses and metrics instead of its own. Fails with P201 if the
  /// loss is missing, Keras does not have a metric, or a number is not finite; with P204 if the losses do not match the
  /// outputs; with P205 if a feature is not supported.
  Result<Description> compile(const CompileOptions& options) const;

  /// Returns the same model with some layers frozen (`trainable` false) or made trainable again (true).
  ///
  /// `layer_pattern` is a name or a pattern with `*`, `?` and `[...]`. It is compared with the names of all layers and
  /// with their paths inside nested models: "conv2d_*", "backbone", "backbone/block5_*". A nested model stands for all
  /// layers in it. If a layer inside a frozen model is made trainable, the other layers of that model stay frozen.
  /// Fails with P201 if no layer matches.
  Result<Description> set_trainable(std::string_view layer_pattern, bool trainable) const;

  std::string name() const;  ///< The model's name.
  /// Returns the architecture as JSON, in the form that Keras's `model.to_json()` writes and
  /// `keras.models.model_from_json` reads.
  std::string to_json() const;
  /// Returns the compile configuration as JSON, in the form of `model.get_compile_config()`, or "null" if the model is
  /// not compiled.
  std::string compile_json() const;
  /// Returns the paths of all layers in the order of the file, including nested models and their layers: "backbone",
  /// "backbone/conv1", "dense". Inputs are left out.
  std::vector<std::string> layer_names() const;

 private:
  friend struct engine::Access;
  explicit Description(std::shared_ptr<const engine::DescribedModel> model) : model_(std::move(model)) {}
  std::shared_ptr<const engine::DescribedModel> model_;
};

/// An entry of sequential(): an input, a layer, or a whole model.
class SequentialItem {
 public:
  /// An input, made by layers::Input().
  SequentialItem(const Tensor& input) : item_(input) {}  // NOLINT(google-explicit-constructor)
  /// A layer.
  SequentialItem(const Layer& layer) : item_(layer) {}  // NOLINT(google-explicit-constructor)
  /// A whole model as a layer.
  SequentialItem(const Description& model) : item_(model) {}  // NOLINT(google-explicit-constructor)

  /// The tensor, layer or model.
  const std::variant<Tensor, Layer, Description>& value() const { return item_; }

 private:
  std::variant<Tensor, Layer, Description> item_;
};

/// Makes a model whose layers follow one another. The first entry is usually layers::Input(). Without an Input, the
/// data determine the input shape. Layers without a name get Keras's automatic names, "conv2d", "conv2d_1", counted per
/// model. Fails with P201 for an empty list, an input that is not the first entry, a layer that is listed twice, a name
/// that is used twice, a number that is not finite or text that is not UTF-8. Fails with P204 or P205 if the
/// configuration of a layer is not valid or not supported.
Result<Description> sequential(const std::vector<SequentialItem>& layers, const std::string& name = "sequential");

/// Makes the model that computes `outputs` from `inputs`. The inputs must come from layers::Input().
///
/// Outputs are named after the layers that compute them. Layers without a name get Keras's automatic names, counted per
/// model. Fails with P201 for an empty list, an input that is listed twice, not used, or not made by Input(), an output
/// that depends on an unlisted input, a layer that was called without tensors, two layers with the same name, a number
/// that is not finite or text that is not UTF-8. Fails with P204 or P205 if the configuration of a layer is not valid
/// or not supported.
Result<Description> functional(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                               const std::string& name = "functional");

namespace layers {

/// Arguments of model().
struct ModelOptions {
  std::string name = {};  ///< The layer's name; "": the name of the model.
  bool trainable = true;  ///< False freezes all layers of the model; true leaves them as they are.
};
/// Makes a layer from a whole model. If the model was loaded from a file, the layer keeps its weights. The compile
/// configuration of the model is left out.
Layer model(const Description& description, const ModelOptions& options = {});

}  // namespace layers
}  // namespace plimsoll
#pragma GCC visibility pop
