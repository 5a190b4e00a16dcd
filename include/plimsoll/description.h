/// @file
/// Models as descriptions: read from Keras, or put together from layers.
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

/// Something that compile() takes per output of the model: nothing, one value for all outputs, a list with one value
/// per output, or pairs of an output's name and its value.
template <typename T>
class PerOutput {
 public:
  using Named = std::vector<std::pair<std::string, T>>;  ///< Pairs of an output's name and its value.

  PerOutput() = default;  ///< Nothing.
  /// One value for all outputs.
  template <typename One>
  requires std::convertible_to<One, T> PerOutput(const One& one)
      : value_(T(one)) {}  // NOLINT(google-explicit-constructor)
  /// One value per output, in their order.
  PerOutput(std::initializer_list<T> list) : value_(std::vector<T>(list)) {}  // NOLINT(google-explicit-constructor)
  /// One value per output, in their order.
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

  Metrics() = default;  ///< None.
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

/// The arguments of Description::compile(), as Keras's Model.compile has them.
struct CompileOptions {
  Optimizer optimizer = optimizers::Adam();  ///< How weights are updated.
  /// What is minimised, required: one loss for all outputs, one per output, or losses by the names of the outputs.
  PerOutput<Loss> loss = {};
  /// The factor of each output's loss in the sum that is minimised; 1 by default.
  PerOutput<double> loss_weights = {};
  Metrics metrics = {};           ///< What is reported beside the loss; sample weights are ignored.
  Metrics weighted_metrics = {};  ///< The same, with sample weights.
};

/// What a model is: its layers, their connections, and what it was compiled with. An immutable value that is cheap to
/// copy; any number of threads may use one.
///
/// Every Description was checked when it was made: a model that Plimsoll cannot read is an error of the function that
/// would have made it (P204 for what makes no sense, P205 with a list of everything that is not supported).
class Description {
 public:
  Description(const Description&) = default;             ///< The same model.
  Description& operator=(const Description&) = default;  ///< The same model.

  /// A model as Keras's `model.to_json()` writes it. `compile_config` is the JSON of `model.get_compile_config()`, or
  /// empty for a model that is not compiled. Errors: P204 and P205.
  static Result<Description> from_json(std::string_view architecture, std::string_view compile_config = {});
  /// A `.keras` file, whose weights come along, or a `.json` of `model.to_json()`. Weights are read when a model is
  /// made of the description; the file must still be there then. Errors: P202 to P205, P213.
  static Result<Description> load(const std::string& path);
  /// A model that comes with Plimsoll, compiled: "fashion-cnn", "seed-1", "seed-2" or "seed-3". P201 for other names.
  static Result<Description> builtin(const std::string& name);

  /// The same model with this optimizer, these losses and metrics instead of those that it has. P201 for a
  /// missing loss, a metric that Keras does not have, and numbers that are not finite; P204 for losses that do not
  /// match the outputs; P205 for what is not supported.
  Result<Description> compile(const CompileOptions& options) const;

  /// The same model with layers frozen (`trainable` false) or trained again (true).
  ///
  /// `layer_pattern` is a name or a pattern with `*`, `?` and `[...]`. It is compared with the names of all layers and
  /// with their paths inside nested models: "conv2d_*", "backbone", "backbone/block5_*". A nested model stands for all
  /// layers in it. Where a layer inside a frozen model is to be trained, the model's other layers stay frozen. P201 if
  /// no layer matches.
  Result<Description> set_trainable(std::string_view layer_pattern, bool trainable) const;

  std::string name() const;  ///< The model's name.
  /// The architecture, as Keras's `model.to_json()` writes it and `keras.models.model_from_json` reads it.
  std::string to_json() const;
  /// What the model was compiled with, as `model.get_compile_config()` has it; "null" where it is not compiled.
  std::string compile_json() const;
  /// The paths of all layers in the order of the file, nested models and their layers included: "backbone",
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

/// A model whose layers follow one another. The first entry is usually layers::Input(); without one the shape of the
/// data decides the shape of the input.
///
/// Layers without a name get Keras's automatic ones, "conv2d", "conv2d_1", counted per model. Errors: P201 for an empty
/// list, an input that is not the first entry, a layer that is listed twice, a name that is used twice, a number that
/// is not finite or text that is not UTF-8; P204 and P205 for what the layers are configured with.
Result<Description> sequential(const std::vector<SequentialItem>& layers, const std::string& name = "sequential");

/// The model that computes `outputs` from `inputs`, which layers::Input() made.
///
/// Outputs are named after the layers that compute them. Layers without a name get Keras's automatic ones, counted per
/// model. Errors: P201 for an empty list, an input that is listed twice, not used, or not made by Input(), an output
/// that needs an input which is not listed, a layer that was called without tensors, two layers of one name, a number
/// that is not finite or text that is not UTF-8; P204 and P205 for what the layers are configured with.
Result<Description> functional(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                               const std::string& name = "functional");

namespace layers {

/// Arguments of model().
struct ModelOptions {
  std::string name = {};  ///< The layer's name; "": the name of the model.
  bool trainable = true;  ///< False freezes all layers of the model; true leaves them as they are.
};
/// A whole model as a layer of another one. Weights of a model that was loaded from a file come along. What the model
/// was compiled with is left out.
Layer model(const Description& description, const ModelOptions& options = {});

}  // namespace layers
}  // namespace plimsoll
#pragma GCC visibility pop
