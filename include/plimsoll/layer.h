/// @file
/// Layers and symbolic tensors, which are the parts of a model. The layer classes are in plimsoll/layers.h.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "plimsoll/config_value.h"

#pragma GCC visibility push(default)
namespace plimsoll {

namespace engine {
struct CallNode;        // one call of a layer
struct DescribedLayer;  // a layer's class and configuration
}  // namespace engine

/// A symbolic tensor: an input of a model, made by layers::Input(), or the result of a layer's call.
///
/// It holds no numbers. Copies are the same tensor; a tensor may be used in several models.
class Tensor {
 public:
  Tensor(const Tensor&) = default;             ///< The same tensor.
  Tensor& operator=(const Tensor&) = default;  ///< The same tensor.

 private:
  friend struct engine::Access;
  Tensor(std::shared_ptr<engine::CallNode> node, size_t index) : node_(std::move(node)), index_(index) {}
  std::shared_ptr<engine::CallNode> node_;
  size_t index_;
};

/// A layer: its Keras class and configuration. Made by a function in plimsoll::layers.
///
/// Calls of one Layer, or of copies of it, share its weights, as in Keras. A layer is not checked when it is made.
/// sequential() and functional() check it and return an error that names the layer.
class Layer {
 public:
  Layer(const Layer&) = default;             ///< The same layer: calls of both share its weights.
  Layer& operator=(const Layer&) = default;  ///< The same layer: calls of both share its weights.

  /// Calls the layer on one tensor and returns its first output.
  Tensor operator()(const Tensor& input) const;
  /// Calls the layer on several tensors, as Add() and Concatenate() need, and returns its first output.
  Tensor operator()(const std::vector<Tensor>& inputs) const;
  /// Calls the layer and returns all its outputs: several if the layer is a model with several outputs, otherwise one.
  std::vector<Tensor> outputs(const std::vector<Tensor>& inputs) const;

  /// The Keras class, "Conv2D".
  std::string class_name() const;
  /// The name that was given, or "" if the model will choose one.
  std::string name() const;
  /// The configuration as JSON text.
  std::string to_json() const;

 private:
  friend struct engine::Access;
  explicit Layer(std::shared_ptr<const engine::DescribedLayer> layer) : layer_(std::move(layer)) {}
  std::shared_ptr<const engine::DescribedLayer> layer_;
};

}  // namespace plimsoll
#pragma GCC visibility pop
